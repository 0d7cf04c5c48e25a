# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C during a wait in the library.

Python runs signal handlers between bytecodes of the main thread, and a call that waits in C runs none. The library asks
config.interrupted every 100 ms; that runs Python in the waiting thread, so the handlers run then. What one raises (KeyboardInterrupt) must
not leave the callback: it is kept there, the wait ends with ERR_INTERRUPTED, and it is raised when the call has returned.

Nothing but a generator can catch it: a handler runs when a Python function begins, which is before any try in that function, but a
generator goes on inside the try that it was left in. methodcaller and threading.local are C, so on the way to the generator no Python
function begins. Threads other than the main one, which never run handlers, get int, which returns 0.
"""
from __future__ import annotations

import ctypes
import operator
import threading
from typing import Iterator, List

from . import _abi


class _Watch(threading.local):
    poll = int
    caught: List[BaseException] = []


def _answers(caught: List[BaseException]) -> Iterator[int]:
    while True:
        try:
            while True:
                yield len(caught)
        except GeneratorExit:
            return
        except BaseException as raised:  # pylint: disable=broad-except
            caught.append(raised)


_watch = _Watch()
_callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.py_object)(operator.methodcaller("poll"))

#: For config.interrupted and config.interrupted_arg.
function = ctypes.cast(_callback, _abi.interrupted_fn)
argument = id(_watch)


def arm() -> None:
    """Make signal handlers run in the waits of the main thread; does nothing elsewhere."""
    if _watch.poll is int and threading.current_thread() is threading.main_thread():
        _watch.caught = []
        answers = _answers(_watch.caught)
        next(answers)
        _watch.poll = answers.__next__  # type: ignore[assignment]


def reraise() -> None:
    """Raise what a signal handler raised during the call that has just returned."""
    if _watch.caught:
        raised = _watch.caught[0]
        _watch.caught.clear()
        raise raised
