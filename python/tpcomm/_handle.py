# SPDX-License-Identifier: Apache-2.0
"""Ownership of a C object: freed once, never while a call is inside it, and at the latest when the interpreter ends."""
from __future__ import annotations

import ctypes
import threading
import time
import weakref
from typing import Any, Callable, List, Optional, Sequence, Set, Tuple

from . import _abi, _interrupt
from ._errors import check, error_of, refuse_state
from ._library import lib

_WAIT_S = 1.0  # as tpcomm_destroy


def free_once(free: Callable[[int], int], cell: ctypes.c_void_p) -> int:
    """Free what the cell points to, unless that was done before."""
    pointer, cell.value = cell.value, None
    if pointer is None:
        return _abi.OK
    status = free(pointer)
    if status != _abi.OK:
        cell.value = pointer
    return status


class Inside:
    """One use of a C object, as a context manager: while there is one, the object is not freed."""
    __slots__ = ("_handle", "kept")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.kept = False  # by a batch, which ends it

    def __enter__(self) -> Inside:
        # First there, then a look: of this and close(), at least one sees the other.
        self._handle.uses.add(self)
        if self._handle.closed:
            self._handle.uses.discard(self)
            refuse_state(f"{self._handle.what} is closed")
        return self

    def __exit__(self, kind: Any, raised: Optional[BaseException], trace: Any) -> None:
        if not self.kept:
            self._handle.uses.discard(self)

    def end(self) -> None:
        self._handle.uses.discard(self)


class Handle:
    """A C object. Freed by close(), by the garbage collector, or at exit (newest first); all do local work only."""

    def __init__(self, cell: ctypes.c_void_p, free: Callable[[int], int], what: str) -> None:
        self.pointer: int = cell.value or 0
        self.what = what
        self.uses: Set[Inside] = set()  # no lock: adding and discarding are atomic, and a fork cannot leave them half done
        self._closing = False
        self._cell = cell
        self._free = free
        self._finalizer = weakref.finalize(self, free_once, free, cell)

    @property
    def closed(self) -> bool:
        return self._closing or self._cell.value is None

    def inside(self) -> Inside:
        return Inside(self)

    def close(self, comms: Sequence[int]) -> None:
        """Free it, if nobody has. comms: to abort if a thread is inside, which wakes it. Busy, and nothing is freed: one is still inside
        after 1 s, or an open batch has a call on it."""
        if self._finalizer.detach() is None:  # of two closers, one gets it
            return
        self._closing = True
        try:
            if any(use.kept for use in list(self.uses)):
                raise error_of(_abi.ERR_BUSY, f"an open batch has a call on {self.what}; nothing was freed")
            if self.uses:
                for comm in comms:
                    lib.abort(comm, b"closed by another thread")
                limit = time.monotonic() + _WAIT_S
                while self.uses and time.monotonic() < limit:
                    time.sleep(0.001)
                if self.uses:
                    raise error_of(_abi.ERR_BUSY, f"a thread is still inside {self.what} after {_WAIT_S:g} s; nothing was freed")
            check(free_once(self._free, self._cell))
        except BaseException:
            # As it was, so that it can be closed again; at exit it is tried once more.
            self._finalizer = weakref.finalize(self, free_once, self._free, self._cell)
            raise
        finally:
            self._closing = False


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Call the library; raise what it says, or what a signal handler raised meanwhile."""
    status = function(*arguments)
    _interrupt.reraise()
    check(status)


def adopt(function: Callable[..., int], free: Callable[[int], int], what: str, *arguments: Any) -> Optional[Handle]:
    """Call a function whose last argument is where a new object goes, and own the object; None where it made none."""
    cell = _abi.comm_p()
    try:
        call(function, *arguments, cell)
        return Handle(cell, free, what) if cell.value else None
    except BaseException:
        # A signal handler may raise at any point here; then nobody would ever free the object.
        free_once(free, cell)
        raise


# ---- batches


class _Batch(threading.local):
    depth = 0

    def __init__(self) -> None:
        self.kept: List[Tuple[Inside, Any]] = []


_batch = _Batch()


def keep_for_batch(use: Inside, buffers: Any) -> None:
    """Where this thread has a batch open: hold the communicator and the buffers until its end."""
    if _batch.depth > 0:
        use.kept = True
        _batch.kept.append((use, buffers))


class Batch:
    """Calls inside ``with tpcomm.batch():`` are taken together; see batch()."""

    def __enter__(self) -> Batch:
        check(lib.batch_begin())
        _batch.depth += 1
        return self

    def __exit__(self, kind: Any, raised: Optional[BaseException], trace: Any) -> None:
        _batch.depth -= 1
        status = lib.batch_end()
        failed = error_of(status) if status != _abi.OK else None
        if _batch.depth == 0:
            kept, _batch.kept = _batch.kept, []
            for use, _ in kept:
                use.end()
        _interrupt.reraise()
        if failed is not None and raised is None:
            raise failed


def batch() -> Batch:
    """Take the calls of a ``with`` block together: ranks may make them in different orders, as long as the order on each
    communicator is the same. On the cpu device they run when the outermost block ends, also where the block raises (peers wait for them);
    until then outputs are not written. Host messages are never part of a batch. Raises the first failure of the calls."""
    return Batch()
