# SPDX-License-Identifier: Apache-2.0
"""The ways in."""
from __future__ import annotations

import ctypes
import datetime
import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, TypedDict, Union

from . import _abi, _interrupt, _values
from ._comm import Comm
from ._errors import check, error_of
from ._handle import Handle, adopt, call, free_once
from ._library import lib
from ._values import int32, one_of, switch, uint32, uint64

if TYPE_CHECKING:
    from typing_extensions import Unpack

_WHAT = "the communicator"

Exchange = Callable[[bytes, int], Union[bytes, bytearray, Sequence[bytes]]]


class Settings(TypedDict, total=False):
    """Settings of a communicator, for every way in. The environment (TPCOMM_*) wins over them; one left out takes rank 0's value."""
    device: Optional[str]  #: "auto", "cpu", "cuda", "cuda:1"
    share_device: Optional[bool]  #: several ranks may use one device
    deterministic: Optional[bool]  #: only paths of the one numerical result
    path: Optional[str]  #: forced path, such as "cpu_oneshot"
    init_timeout_ms: int  #: limit of init; 0: 120000
    op_timeout_ms: int  #: limit of each wait in a collective; 0: 300000
    workspace_bytes: int  #: limit of memory that peers write; 0: 32 MiB
    tuning_file: Union[str, "os.PathLike[str]", None]  #: tuning JSON, read by rank 0 alone
    check: Optional[str]  #: how ranks' calls are compared on the host: "off", "async" (the default), "sync"


def _config(settings: Settings) -> _abi.config_t:
    unknown = set(settings) - set(Settings.__annotations__)
    if unknown:
        raise TypeError(f"there is no setting {min(unknown)!r}; there are {', '.join(Settings.__annotations__)}")
    _interrupt.arm()
    tuning = settings.get("tuning_file")
    kind, device = _values.device_of(settings.get("device"))
    return _abi.config_t(
        ctypes.sizeof(_abi.config_t), kind,
        switch("deterministic", settings.get("deterministic")), one_of(_values.PATHS, "path", settings.get("path")),
        uint32("init_timeout_ms", settings.get("init_timeout_ms", 0)), uint32("op_timeout_ms", settings.get("op_timeout_ms", 0)),
        uint64("workspace_bytes", settings.get("workspace_bytes", 0)),
        _values.c_text("tuning_file", None if tuning is None else os.fsencode(tuning)), _interrupt.function, _interrupt.argument, device,
        switch("share_device", settings.get("share_device")), one_of(_values.CHECKS, "check", settings.get("check")))


def _world(handle: Optional[Handle]) -> Comm:
    assert handle is not None
    return Comm(handle, handle.pointer)


def init_env(**settings: Unpack[Settings]) -> Comm:
    """Join the world that a launcher describes: the first complete set of TPCOMM_RANK/SIZE, torchrun, Open MPI, PMI or Slurm
    variables. Without a launcher: ConfigError."""
    return _world(adopt(lib.init_env, lib.destroy, _WHAT, _config(settings)))


def unique_id() -> bytes:
    """A name for a new world, 128 bytes, made once in the process that becomes rank 0; every rank gets it by the caller's own means."""
    made = _abi.unique_id_t()
    check(lib.unique_id_create(made))
    return bytes(made)


def init_rank(id: Union[bytes, bytearray], rank: int, size: int, **settings: Unpack[Settings]) -> Comm:  # pylint: disable=redefined-builtin
    """Join the world named by an id."""
    wanted = ctypes.sizeof(_abi.unique_id_t)
    if not isinstance(id, (bytes, bytearray)):
        raise TypeError(f"id is a {type(id).__name__}; give the bytes of unique_id()")
    if len(id) != wanted:
        raise ValueError(f"id has {len(id)} bytes; unique_id() makes {wanted}")
    name = _abi.unique_id_t.from_buffer_copy(id)
    return _world(adopt(lib.init_rank, lib.destroy, _WHAT, name, int32("rank", rank), int32("size", size), _config(settings)))


def init_local(n: int, devices: Optional[Sequence[int]] = None, **settings: Unpack[Settings]) -> List[Comm]:
    """Make a world of n ranks that are threads of this process; each communicator is then used by one thread of its own.
    devices: for cuda, the device of each rank; one that stands twice is shared. None: rank r uses device r, or the one of device="cuda:N"."""
    count = int32("n", n)
    ordinals = None
    if devices is not None:
        if len(devices) != count:
            raise ValueError(f"devices has {len(devices)} entries; {count} ranks need {count}")
        ordinals = (ctypes.c_int32 * max(count, 1))(*(int32("device", device) for device in devices))
    made = (_abi.comm_p * max(count, 1))()
    cells: List[ctypes.c_void_p] = []
    try:
        call(lib.init_local, count, ordinals, _config(settings), made)
        cells = [_abi.comm_p(pointer) for pointer in made]
        return [_world(Handle(cell, lib.destroy, _WHAT)) for cell in cells]
    except BaseException:
        for cell in cells or [_abi.comm_p(pointer) for pointer in made]:
            free_once(lib.destroy, cell)
        raise


def init_exchange(rank: int, size: int, exchange: Exchange, **settings: Unpack[Settings]) -> Comm:
    """Join a world whose ranks already have an all-gather of their own.

    exchange(mine, timeout_ms)  returns every rank's bytes in rank order, as a sequence or joined. It is called a small, equal number of
                                times on every rank, only before this function returns. What it raises ends the init.
    """
    raised: List[BaseException] = []

    def gather(_: Any, mine: int, everything: int, count: int, timeout_ms: int) -> int:
        try:
            parts = exchange(ctypes.string_at(mine, count), timeout_ms)
            if not isinstance(parts, (bytes, bytearray)):
                lengths = [len(part) for part in parts]
                if lengths != [count] * size:
                    raise ValueError(f"exchange returned parts of {lengths} bytes; wanted are {size} of {count}")
                parts = b"".join(parts)
            if len(parts) != size * count:
                raise ValueError(f"exchange returned {len(parts)} bytes; wanted are {size} times {count}")
            ctypes.memmove(everything, bytes(parts), len(parts))
            return 1
        except BaseException as error:  # pylint: disable=broad-except
            raised.append(error)
            return 0

    def init(*arguments: Any) -> int:
        status: int = lib.init_exchange(*arguments)
        if raised and status != _abi.OK:
            if not isinstance(raised[0], Exception):  # Ctrl-C
                raise raised[0]
            raise error_of(status) from raised[0]
        return status

    return _world(adopt(init, lib.destroy, _WHAT, int32("rank", rank), int32("size", size), _abi.exchange_fn(gather), None,
                        _config(settings)))


# ---- a store, such as torch.distributed's

_rounds: Dict[Tuple[str, int, int], int] = {}  # worlds made so far with a name, so that each finds keys of its own


def init_from_store(store: Any, rank: int, size: int, name: str = "tpcomm", **settings: Unpack[Settings]) -> Comm:
    """Join a world whose ranks share a key-value store: torch.distributed's TCPStore, FileStore, HashStore or PrefixStore, or
    any object with set(key, value), get(key) and wait(keys, timedelta), and best check(keys) too.

    name  begins every key. Ranks make worlds of one name equally often; a process that was restarted beside others that were not
          needs, as they do, a new name.
    """
    place = (name, int32("rank", rank), int32("size", size))
    world = _rounds[place] = _rounds.get(place, 0) + 1
    step = 0

    def await_keys(keys: List[str], timeout_ms: int) -> None:
        limit = time.monotonic() + timeout_ms / 1000
        if not hasattr(store, "check"):
            store.wait(keys, datetime.timedelta(milliseconds=timeout_ms))
            return
        # Asked again and again rather than waited for: Ctrl-C does not end a wait inside torch.
        pause = 0.001
        while not store.check(keys):
            if time.monotonic() >= limit:
                absent = [str(r) for r, key in enumerate(keys) if not store.check([key])]
                raise TimeoutError(f"after {timeout_ms} ms the store has nothing from rank {', '.join(absent)}")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def exchange(mine: bytes, timeout_ms: int) -> List[bytes]:
        nonlocal step
        step += 1
        keys = [f"{name}/{world}/{step}/{r}" for r in range(size)]
        store.set(keys[rank], mine)
        await_keys(keys, timeout_ms)
        return [bytes(store.get(key)) for key in keys]

    return init_exchange(rank, size, exchange, **settings)
