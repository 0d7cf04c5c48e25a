# SPDX-License-Identifier: Apache-2.0
"""One rank's membership of one group, and the parallel groups of an engine."""
from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, Dict, Iterator, List, Optional, Sequence, TypeVar

from . import _abi, _rows, _values
from ._buffers import DTYPES, Buffer, buffer_of, elements_of
from ._errors import check, error_of, refuse_state
from ._facts import Decision, Failure, Info, RankInfo, Stats
from ._handle import Handle, adopt, call, keep_for_batch
from ._library import lib
from ._values import int32, name_of, one_of, py_text, stream_of, uint32, uint64

T = TypeVar("T")
_TEXT_BYTES = 8192


def _address(data: Buffer) -> Optional[int]:
    return data.address or None


class Comm:
    """One rank's membership of one group. Made by the ways in (init_env and its like), group, split and mesh.

    Ranks and roots are the group's own: 0 to size - 1. One thread at a time may be in the collectives and one in the host messages;
    another gets Busy. All ranks make the same calls in the same order.

    As a context manager it ends with finalize() and close(); if the block raises, with abort(), so that peers fail at once with the reason.
    Without either, the garbage collector and the end of the interpreter close it: that is local work, and peers that still use
    the group get Aborted.
    """

    def __init__(self, handle: Handle, pointer: int) -> None:
        self._handle = handle
        self._pointer = pointer
        self._finalized = False
        facts = self.info()
        self.rank: int = facts.rank
        self.size: int = facts.size
        self.name: str = facts.name
        self.device: str = facts.device

    def __repr__(self) -> str:
        state = ", closed" if self._handle.closed else ""
        return f"<tpcomm.Comm '{self.name}' rank {self.rank} of {self.size} on {self.device}{state}>"

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind: Any, raised: Optional[BaseException], trace: Any) -> None:
        if self._handle.closed:
            return
        try:
            if raised is not None:
                self.abort(f"{type(raised).__name__}: {raised}")
            elif not self._finalized:
                self.finalize()
        finally:
            self.close()

    def _call(self, function: Any, *arguments: Any) -> None:
        with self._handle.inside():
            call(function, self._pointer, *arguments)

    # ---- the ways out

    def finalize(self) -> None:
        """Agree to end: waits until every rank has called it. Afterwards only facts and close are allowed."""
        self._call(lib.finalize)
        self._finalized = True

    def close(self) -> None:
        """Free it; again does nothing. Without finalize before, peers that still use the group get Aborted. A thread inside is woken
        with Aborted; Busy if it does not leave within 1 s, and then nothing is freed."""
        if self._pointer != self._handle.pointer:
            refuse_state(f"group '{self.name}' belongs to a mesh: close the mesh")
        self._handle.close([self._pointer])

    def abort(self, reason: str = "") -> None:
        """Break the group on all ranks, from any thread: every wait of every rank ends with Aborted and the reason."""
        self._call(lib.abort, _values.c_text("reason", reason.replace("\0", " ")))

    # ---- collectives

    def _collective(self, coll: int, source: Optional[Buffer], target: Optional[Buffer], count: int, *, op: int = 0, root: int = 0,
                    path: Optional[str] = None, tag: int = 0, stream: Any = None) -> None:
        dtype = source or target
        request = _abi.call_t(ctypes.sizeof(_abi.call_t), coll, dtype.dtype if dtype else 0, op, one_of(_values.PATHS, "path", path),
                              0, root, 0, _address(source) if source else None, _address(target) if target else None, count,
                              uint64("tag", tag))
        with self._handle.inside() as use:
            call(lib.call, self._pointer, request, stream_of(stream))
            keep_for_batch(use, (source, target))

    def _pair(self, x: Any, out: Any, *, in_times: int = 1, out_times: int = 1) -> tuple[Buffer, Buffer]:
        """Input and output of one dtype, with in_times and out_times the elements of the call."""
        source = elements_of(x, "x", writable=out is None, device=self.device)
        target = source if out is None else elements_of(out, "out", writable=True, device=self.device)
        if source.dtype != target.dtype:
            raise TypeError(f"x is of {source.dtype_name}, out of {target.dtype_name}")
        if source.length * out_times != target.length * in_times:
            sizes = "as many" if in_times == out_times else f"{max(in_times, out_times)} times as many or one part of"
            raise ValueError(f"x has {source.length} elements and out has {target.length}; out must have {sizes}")
        return source, target

    def all_reduce(self, x: Any, out: Optional[T] = None, op: str = "sum", *, path: Optional[str] = None, tag: int = 0,
                   stream: Any = None) -> Any:
        """out[i] = op over ranks of x[i], on every rank; out None: in place. Returns out.

        x, out  numpy arrays, torch tensors or other buffers, contiguous, of one dtype
        op      "sum", "avg", "max", "min", "prod"
        path    forced path, such as "cpu_oneshot"; None: chosen
        tag     the engine's step or batch id, for flight records
        stream  cuda: a torch.cuda.Stream or a CUstream's address, on which the call is enqueued; cpu: None
        """
        source, target = self._pair(x, out)
        self._collective(_abi.ALL_REDUCE, source, target, source.length, op=one_of(_values.OPS, "op", op), path=path, tag=tag, stream=stream)
        return x if out is None else out

    def broadcast(self, x: Any, out: Optional[T] = None, root: int = 0, *, path: Optional[str] = None, tag: int = 0,
                  stream: Any = None) -> Any:
        """root's x to every rank's out, bit for bit; out None: in place. Returns out."""
        source, target = self._pair(x, out)
        self._collective(_abi.BROADCAST, source, target, target.length, root=int32("root", root), path=path, tag=tag, stream=stream)
        return x if out is None else out

    def all_gather(self, x: Any, out: T, *, path: Optional[str] = None, tag: int = 0, stream: Any = None) -> T:
        """out[r * n + i] = rank r's x[i], where x has n elements and out has size * n. x may be this rank's part of out. Returns out."""
        if out is None:
            raise TypeError("out is None; all_gather needs a buffer of size * count elements")
        source, target = self._pair(x, out, out_times=self.size)
        self._collective(_abi.ALL_GATHER, source, target, source.length, path=path, tag=tag, stream=stream)
        return out

    def reduce_scatter(self, x: Any, out: T, op: str = "sum", *, path: Optional[str] = None, tag: int = 0,
                       stream: Any = None) -> T:
        """out[i] = op over ranks of x[rank * n + i], where out has n elements and x has size * n. out may be this rank's part of x.
        Returns out."""
        if out is None:
            raise TypeError("out is None; reduce_scatter needs a buffer of count elements")
        source, target = self._pair(x, out, in_times=self.size)
        self._collective(_abi.REDUCE_SCATTER, source, target, target.length, op=one_of(_values.OPS, "op", op), path=path, tag=tag,
                         stream=stream)
        return out

    def _norm(self, function: Any, args: Any, stream: Any) -> None:
        struct, buffers = args
        with self._handle.inside() as use:
            call(function, self._pointer, struct, stream_of(stream))
            keep_for_batch(use, buffers)

    def all_reduce_rms_norm(self, x: Any, weight: Any, out: Optional[T] = None, *, eps: float, weight_bias: float = 0.0,
                            residual: Any = None, sum_out: Any = None, quant: Optional[str] = None, quantized: Any = None,
                            scale: Any = None, path: Optional[str] = None, tag: int = 0, stream: Any = None) -> Any:
        """Sum rows over the ranks, add the residual, normalise, quantise, in one call; bits as all_reduce followed by rms_norm.

        x          rows of len(weight) elements: float32, float16 or bfloat16
        weight     of x's type or float32
        out        as x; None: in place, or with quant, not wanted
        residual   as x; the sum is added to it, rounded to its type, and that is what is normalised
        sum_out    as x: receives the sum alone
        quant      "f8_tensor": quantized is out / scale[0] as float8_e4m3fn; "f8_token": scale, one a row, is made here
        quantized  as many elements of float8_e4m3fn, or of uint8 or int8 for their bits
        Returns out. path, tag, stream: as all_reduce.
        """
        args = _rows.norm_args(x, weight, out, eps=eps, weight_bias=weight_bias, residual=residual, sum_out=sum_out, quant=quant,
                               quantized=quantized, scale=scale, path=path, tag=tag, device=self.device, ranks=None)
        self._norm(lib.all_reduce_rms_norm, args, stream)
        return x if out is None and quant is None else out

    def reduce_scatter_rms_norm(self, x: Any, weight: Any, out: Optional[T] = None, *, eps: float, weight_bias: float = 0.0,
                                residual: Any = None, sum_out: Any = None, quant: Optional[str] = None, quantized: Any = None,
                                scale: Any = None, path: Optional[str] = None, tag: int = 0, stream: Any = None) -> Optional[T]:
        """The sequence-parallel form: x has all rows, everything else this rank's alone (row_range). Bits as all_reduce_rms_norm's
        rows. Returns out."""
        args = _rows.norm_args(x, weight, out, eps=eps, weight_bias=weight_bias, residual=residual, sum_out=sum_out, quant=quant,
                               quantized=quantized, scale=scale, path=path, tag=tag, device=self.device, ranks=(self.size, self.rank))
        self._norm(lib.reduce_scatter_rms_norm, args, stream)
        return out

    def all_gather_rows(self, x: Any, out: T, hidden: int = 1, *, stream: Any = None) -> T:
        """Every rank's rows (row_range) in out, bit for bit. hidden: elements of a row. x may be this rank's part of out. Returns out."""
        source = elements_of(x, "x", writable=False, device=self.device)
        target = elements_of(out, "out", writable=True, device=self.device)
        if source.dtype != target.dtype:
            raise TypeError(f"x is of {source.dtype_name}, out of {target.dtype_name}")
        if int32("hidden", hidden) < 1 or target.length % hidden:
            raise ValueError(f"out has {target.length} elements, which are no rows of {hidden}")
        wanted = self.row_range(target.length // hidden)[1] * hidden
        if source.length != wanted:
            raise ValueError(f"x has {source.length} elements; this rank's rows have {wanted}")
        with self._handle.inside() as use:
            call(lib.all_gather_rows, self._pointer, _address(source), _address(target), target.length // hidden, hidden, target.dtype,
                 stream_of(stream))
            keep_for_batch(use, (source, target))
        return out

    def row_range(self, tokens: int) -> tuple[int, int]:
        """(first, count) of this rank's rows of so many."""
        return _rows.row_range(tokens, self.size, self.rank)

    def barrier(self, *, tag: int = 0, stream: Any = None) -> None:
        """Return when every rank of the group has called it."""
        self._collective(_abi.BARRIER, None, None, 0, tag=tag, stream=stream)

    def set_op_timeout(self, timeout_ms: int) -> None:
        """Change the limit of each wait in a collective, from the next wait on."""
        self._call(lib.set_op_timeout, uint32("timeout_ms", timeout_ms))

    def note_waits(self, on: bool = True) -> None:
        """Have this rank's kernels on a GPU note how long each call waits and for whom, in replays too; stats() tells."""
        self._call(lib.note_waits, _abi.ON if on else _abi.OFF)

    # ---- graphs: calls on a capturing stream become part of its graph; these brackets compare the ranks' captures

    def graph_capture_begin(self) -> None:
        """Begin to note what is captured on this communicator (on the cpu device, which captures nothing: all calls)."""
        self._call(lib.graph_capture_begin)

    def graph_capture_end(self) -> None:
        """Compare with all ranks what was captured since graph_capture_begin: Mismatch, before any replay, names the first call that
        differs."""
        self._call(lib.graph_capture_end)

    @contextlib.contextmanager
    def graph_capture(self) -> Iterator[None]:
        """``with comm.graph_capture():`` around one or more captures: graph_capture_begin and graph_capture_end. If the block raises, the
        group is aborted with the reason, since the other ranks wait for this one's graphs."""
        self.graph_capture_begin()
        try:
            yield
        except BaseException as raised:
            self.abort(f"in a graph capture: {type(raised).__name__}: {raised}")
            raise
        self.graph_capture_end()

    # ---- host messages: host memory, an order of their own, usable on another thread beside the collectives

    def host_broadcast(self, data: T, root: int = 0, timeout_ms: int = 0) -> T:
        """root's bytes to every rank, in place. data: equally long on all ranks; on root it may be read-only. timeout_ms 0: the limit of
        collectives. Returns data."""
        memory = buffer_of(data, "data", writable=int32("root", root) != self.rank)
        self._call(lib.host_broadcast, _address(memory), memory.nbytes, root, uint32("timeout_ms", timeout_ms))
        return data

    def host_broadcast_bytes(self, data: Optional[Any] = None, root: int = 0, timeout_ms: int = 0) -> bytes:
        """root's data, of a length that it alone knows, to every rank, as bytes. (Two messages: the length, then the data.)"""
        if int32("root", root) == self.rank:
            if data is None:
                raise TypeError("data is None on root")
            memory = buffer_of(data, "data", writable=False)
            self.host_broadcast(ctypes.c_uint64(memory.nbytes), root, timeout_ms)
            self.host_broadcast(data, root, timeout_ms)
            return ctypes.string_at(memory.address, memory.nbytes)
        length = ctypes.c_uint64()
        self.host_broadcast(length, root, timeout_ms)
        return bytes(self.host_broadcast(bytearray(length.value), root, timeout_ms))

    def host_all_gather(self, mine: Any, out: Any = None, timeout_ms: int = 0) -> Any:
        """Every rank's bytes to every rank; mine is equally long on all. out: a buffer of size * len(mine) bytes, rank r's at
        r * len(mine), which is returned; None: a list with each rank's bytes is returned."""
        source = buffer_of(mine, "mine", writable=False)
        target = buffer_of(bytearray(source.nbytes * self.size) if out is None else out, "out", writable=True)
        if target.nbytes != source.nbytes * self.size:
            raise ValueError(f"out has {target.nbytes} bytes; {self.size} ranks with {source.nbytes} each need {source.nbytes * self.size}")
        self._call(lib.host_all_gather, _address(source), _address(target), source.nbytes, uint32("timeout_ms", timeout_ms))
        if out is not None:
            return out
        return [bytes(target.keep[r * source.nbytes:(r + 1) * source.nbytes]) for r in range(self.size)]

    def host_barrier(self, timeout_ms: int = 0) -> None:
        """Return when every rank has called it."""
        self._call(lib.host_barrier, uint32("timeout_ms", timeout_ms))

    # ---- groups

    def _make_group(self, function: Any, *arguments: Any) -> Optional[Comm]:
        with self._handle.inside():
            handle = adopt(function, lib.destroy, "the communicator", self._pointer, *arguments)
            return Comm(handle, handle.pointer) if handle else None

    def group(self, ranks: Sequence[int], name: Optional[str] = None) -> Optional[Comm]:
        """A group of these ranks, in this order; None at once where this rank is not among them. Called by the listed ranks alone, each
        with the same list and name."""
        numbers = [int32("rank", rank) for rank in ranks]
        return self._make_group(lib.group_create, (ctypes.c_int32 * max(len(numbers), 1))(*numbers), len(numbers),
                                _values.c_text("name", name))

    def split(self, color: Optional[int], key: int = 0, name: Optional[str] = None) -> Optional[Comm]:
        """The group of the ranks that give this color, ordered by key, then by rank; color None or negative: in none, and None is
        returned. Called by every rank."""
        return self._make_group(lib.group_split, -1 if color is None else int32("color", color), int32("key", key),
                                _values.c_text("name", name))

    def shrink(self, lost: Optional[Sequence[int]] = None) -> Comm:
        """This group anew, in the same processes, without the ranks that are lost: after a failure. None: those whose process has ended.
        Called by every rank that is left; this Comm stays broken and is closed by the caller."""
        numbers = [int32("rank", rank) for rank in lost or ()]
        array = (ctypes.c_int32 * len(numbers))(*numbers) if numbers else None
        made = self._make_group(lib.group_shrink, array, len(numbers))
        assert made is not None
        return made

    def mesh(self, *, dp: int = 1, pp: int = 1, cp: int = 1, tp: int = 1, ep: int = 0) -> Mesh:
        """The groups of data, pipeline, context, tensor and expert parallelism; the sizes multiply to this group's, and ep, 0 for all of it,
        divides dp * cp * tp. Called by every rank."""
        sizes = _abi.mesh_config_t(ctypes.sizeof(_abi.mesh_config_t), int32("dp", dp), int32("pp", pp), int32("cp", cp), int32("tp", tp),
                                   int32("ep", ep))
        with self._handle.inside():
            handle = adopt(lib.mesh_create, lib.mesh_destroy, "the mesh", self._pointer, sizes)
            assert handle is not None
            return Mesh(handle)

    @property
    def ranks(self) -> List[int]:
        """World ranks of the members, in group order."""
        numbers = (ctypes.c_int32 * self.size)()
        self._call(lib.group_ranks, numbers, self.size)
        return list(numbers)

    # ---- facts

    def async_error(self) -> Optional[Failure]:
        """What broke the group; None while it is healthy. Waits for nothing; any thread."""
        known = _abi.error_t(ctypes.sizeof(_abi.error_t))
        with self._handle.inside():
            status = lib.async_status(self._pointer, known)
        if status == _abi.OK:
            return None
        return Failure(status, py_text(lib.status_name(status)), known.rank if known.rank >= 0 else None,
                       name_of(_values.COLLS, known.coll) if known.coll else None, known.seq, py_text(known.text))

    def explain(self, coll: str = "all_reduce", count: int = 0, dtype: str = "float32", op: str = "sum", *, root: int = 0,
                hidden: int = 0, path: Optional[str] = None, capturing: bool = False) -> Decision:
        """Say which path a call would take and why; runs nothing. dtype: as numpy and torch name it. hidden: of calls on rows.
        capturing: as if a graph were captured; the other way stands in other_path."""
        request = _abi.call_t(ctypes.sizeof(_abi.call_t), one_of(_values.COLLS, "coll", coll), one_of(DTYPES, "dtype", dtype),
                              one_of(_values.OPS, "op", op), one_of(_values.PATHS, "path", path),
                              _abi.CALL_CAPTURED if capturing else 0, int32("root", root),
                              int32("hidden", hidden), None, None,
                              uint64("count", count), 0)
        made = _abi.decision_t(ctypes.sizeof(_abi.decision_t))
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call(lib.explain, request, made)
        self._call(lib.explain_text, request, text, _TEXT_BYTES)
        rejected = {py_text(lib.path_name(each.path)): py_text(each.why_not) for each in made.rejected[:made.rejected_count]}
        return Decision(py_text(lib.path_name(made.path)), py_text(made.reason), made.bytes_min, made.bytes_max,
                        made.expected_ns if made.expected_ns >= 0 else None, _values.SOURCES.get(made.source, "?"), rejected,
                        py_text(text.value), made.capturing == _abi.ON,
                        py_text(lib.path_name(made.other_path)) if made.other_path else None)

    def info(self) -> Info:
        """Facts about the communicator."""
        made = _abi.info_t(ctypes.sizeof(_abi.info_t))
        self._call(lib.comm_info, made)
        return Info(made.rank, made.size, name_of(_values.DEVICES, made.device_kind), made.workspace_bytes, made.op_timeout_ms,
                    made.init_us, made.deterministic == _abi.ON, *(py_text(getattr(made, name)) for name in
                                                                  ("topology", "name", "launcher", "paths", "tuning", "cpu_kernels",
                                                                   "nccl")), name_of(_values.CHECKS, made.check))

    def rank_info(self, rank: int) -> RankInfo:
        """Facts about one rank of the group."""
        made = _abi.rank_info_t(ctypes.sizeof(_abi.rank_info_t))
        self._call(lib.rank_info, int32("rank", rank), made)
        return RankInfo(made.rank, made.pid, made.same_process != 0, made.seq, made.times_last, py_text(made.host),
                        py_text(made.device), py_text(made.bus_id), py_text(made.link))

    def stats(self) -> Dict[str, Stats]:
        """What each path of the group carried so far."""
        found: Dict[str, Stats] = {}
        made = _abi.stats_t(ctypes.sizeof(_abi.stats_t))
        with self._handle.inside():
            while True:
                status = lib.stats(self._pointer, len(found), made)
                if status == _abi.ERR_INVALID_ARG:  # past the last
                    return found
                check(status)
                found[py_text(lib.path_name(made.path))] = Stats(made.calls, made.bytes, made.wire_bytes, made.wait_ns, made.skew_ns,
                                                                      made.waits)

    def flight_dump(self, path: Any) -> None:
        """Write this rank's last calls in all its groups to a file; tools/tpcomm_flight.py compares those of all ranks."""
        self._call(lib.flight_dump, _values.c_text("path", os.fspath(path)))


class Mesh:
    """The parallel groups of an engine; made by Comm.mesh. str() is the membership of all groups, a line a kind. As a context manager it
    ends as a Comm does. Its groups end with it; one that is still in use keeps it from the garbage collector."""

    KINDS = ("tp", "cp", "pp", "dp", "ep")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._groups: Dict[str, Comm] = {}
        for kind in self.KINDS:
            made = _abi.comm_p()
            check(lib.mesh_group(handle.pointer, kind.encode(), made))
            self._groups[kind] = Comm(handle, made.value or 0)
        self._finalized = False

    def group(self, kind: str) -> Comm:
        """This rank's group of a kind: "tp", "cp", "pp", "dp" or "ep"."""
        if kind not in self._groups:
            raise error_of(_abi.ERR_INVALID_ARG, f"a mesh has no group {kind!r}; there are {', '.join(self.KINDS)}")
        return self._groups[kind]

    @property
    def tp(self) -> Comm:
        return self._groups["tp"]

    @property
    def cp(self) -> Comm:
        return self._groups["cp"]

    @property
    def pp(self) -> Comm:
        return self._groups["pp"]

    @property
    def dp(self) -> Comm:
        return self._groups["dp"]

    @property
    def ep(self) -> Comm:
        return self._groups["ep"]

    def __str__(self) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        with self._handle.inside():
            check(lib.mesh_text(self._handle.pointer, text, _TEXT_BYTES))
        return py_text(text.value)

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, kind: Any, raised: Optional[BaseException], trace: Any) -> None:
        if self._handle.closed:
            return
        try:
            if raised is not None:
                for group in self._groups.values():
                    group.abort(f"{type(raised).__name__}: {raised}")
            elif not self._finalized:
                self.finalize()
        finally:
            self.close()

    def finalize(self) -> None:
        """Agree to end all groups. Called by every rank."""
        with self._handle.inside():
            call(lib.mesh_finalize, self._handle.pointer)
        self._finalized = True

    def close(self) -> None:
        """Free the mesh and its groups; again does nothing. As Comm.close."""
        self._handle.close([group._pointer for group in self._groups.values()])  # pylint: disable=protected-access
