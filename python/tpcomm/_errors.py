# SPDX-License-Identifier: Apache-2.0
"""A failed call as an exception: one class for each status that a caller may want to tell apart."""
from __future__ import annotations

import builtins
from typing import Dict, NoReturn, Optional, Type

from . import _abi
from ._library import lib


class Error(Exception):
    """A call of the library failed.

    status  the number, as in tpcomm.h
    name    its name, such as "TPCOMM_ERR_TIMEOUT"
    text    what happened, in detail: tpcomm_last_error()
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text
        self.name: str = lib.status_name(status).decode()

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class InvalidArgument(Error, ValueError):
    """An argument is out of its range, or contradicts another."""


class InvalidState(Error):
    """Not allowed now: after close or finalize, in a forked child."""


class Unsupported(Error):
    """This library, build or machine cannot do it."""


class OutOfMemory(Error, MemoryError):
    """Memory or descriptors ran out."""


class Busy(Error):
    """Another thread is inside this communicator."""


class ConfigError(Error, ValueError):
    """A variable, setting or launcher is not valid."""


class Interrupted(Error):
    """The wait was ended from outside."""


class GroupError(Error):
    """The communicator was not made, or is broken for good; every rank of the group gets the same."""


class NoTransport(Error):
    """No way to carry data between the ranks. The communicator was not made; or a call in a group that spans hosts was refused, on every
    rank, and the group is as before: it has host messages, and groups within a host."""


class Aborted(GroupError):
    """abort() was called, or a peer closed its communicator without finalizing."""


class PeerDied(GroupError):
    """A process of the group ended."""


class Mismatch(GroupError):
    """Ranks made different calls."""


class Timeout(GroupError, builtins.TimeoutError):
    """Ranks did not arrive in time; the text names them."""


class PeerFailed(GroupError):
    """A rank failed; the text has its reason."""


class ConfigMismatch(GroupError):
    """Ranks are set up differently; the text has both values."""


_CLASSES: Dict[int, Type[Error]] = {
    _abi.ERR_INVALID_ARG: InvalidArgument,
    _abi.ERR_INVALID_STATE: InvalidState,
    _abi.ERR_UNSUPPORTED: Unsupported,
    _abi.ERR_NO_MEMORY: OutOfMemory,
    _abi.ERR_BUSY: Busy,
    _abi.ERR_CONFIG: ConfigError,
    _abi.ERR_INTERRUPTED: Interrupted,
    _abi.ERR_ABORTED: Aborted,
    _abi.ERR_PEER_DIED: PeerDied,
    _abi.ERR_MISMATCH: Mismatch,
    _abi.ERR_TIMEOUT: Timeout,
    _abi.ERR_PEER_FAILED: PeerFailed,
    _abi.ERR_CONFIG_MISMATCH: ConfigMismatch,
    _abi.ERR_NO_TRANSPORT: NoTransport,
}
_GROUP_STATUSES = range(-79, -39)


def error_of(status: int, text: Optional[str] = None) -> Error:
    """The exception of a status, not raised; text: of this thread's last failed call."""
    if text is None:
        text = lib.last_error().decode("utf-8", "replace")
    known = _CLASSES.get(status) or (GroupError if status in _GROUP_STATUSES else Error)
    return known(status, text)


def check(status: int) -> None:
    """Raise the exception of a status that is not OK."""
    if status != _abi.OK:
        raise error_of(status)


def refuse_state(text: str) -> NoReturn:
    """Raise InvalidState, for what this module finds out by itself."""
    raise error_of(_abi.ERR_INVALID_STATE, text)
