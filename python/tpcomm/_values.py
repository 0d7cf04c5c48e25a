# SPDX-License-Identifier: Apache-2.0
"""Values on their way into C: ctypes cuts an int to its field's width and a text at its first NUL in silence, so all are checked here."""
from __future__ import annotations

import operator
import re
from typing import Any, Dict, Optional, Tuple

from . import _abi

OPS: Dict[str, int] = {"sum": _abi.SUM, "avg": _abi.AVG, "max": _abi.MAX, "min": _abi.MIN, "prod": _abi.PROD}
COLLS: Dict[str, int] = {"all_reduce": _abi.ALL_REDUCE, "barrier": _abi.BARRIER, "broadcast": _abi.BROADCAST,
                         "all_gather": _abi.ALL_GATHER, "reduce_scatter": _abi.REDUCE_SCATTER,
                         "all_reduce_rms_norm": _abi.ALL_REDUCE_RMS_NORM, "reduce_scatter_rms_norm": _abi.REDUCE_SCATTER_RMS_NORM,
                         "all_gather_rows": _abi.ALL_GATHER_ROWS}
PATHS: Dict[str, int] = {"auto": _abi.PATH_AUTO, "oneshot": _abi.PATH_ONESHOT, "twoshot": _abi.PATH_TWOSHOT, "ring": _abi.PATH_RING,
                         "nccl": _abi.PATH_NCCL,
                         "fused_oneshot": _abi.PATH_FUSED_ONESHOT, "fused_twoshot": _abi.PATH_FUSED_TWOSHOT, "unfused": _abi.PATH_UNFUSED,
                         "cpu_oneshot": _abi.PATH_CPU_ONESHOT, "cpu_twoshot": _abi.PATH_CPU_TWOSHOT, "local": _abi.PATH_LOCAL}
DEVICES: Dict[str, int] = {"auto": _abi.DEVICE_AUTO, "cuda": _abi.DEVICE_CUDA, "cpu": _abi.DEVICE_CPU}
CHECKS: Dict[str, int] = {"off": _abi.CHECK_OFF, "async": _abi.CHECK_ASYNC, "sync": _abi.CHECK_SYNC}
LEVELS: Dict[str, int] = {"none": _abi.LOG_NONE, "error": _abi.LOG_ERROR, "warn": _abi.LOG_WARN, "info": _abi.LOG_INFO,
                          "debug": _abi.LOG_DEBUG}
SOURCES: Dict[int, str] = {_abi.SOURCE_NONE: "none", _abi.SOURCE_MEASURED: "measured", _abi.SOURCE_ESTIMATED: "estimated"}


def name_of(table: Dict[str, int], number: int) -> str:
    """Name of a number; "?" where a newer library has one that this module does not know."""
    return next((name for name, value in table.items() if value == number), "?")


def one_of(table: Dict[str, int], what: str, name: Optional[str]) -> int:
    """Number of a name; 0, the default, for None."""
    if name is None:
        return 0
    if name not in table:
        raise ValueError(f"{what} is {name!r}; allowed are {', '.join(table)}")
    return table[name]


def _integer(what: str, value: Any, minimum: int, maximum: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}, which is no integer") from None
    if not minimum <= number <= maximum:
        raise ValueError(f"{what} is {number}; allowed are {minimum} to {maximum}")
    return number


def int32(what: str, value: Any) -> int:
    return _integer(what, value, -2**31, 2**31 - 1)


def uint32(what: str, value: Any) -> int:
    return _integer(what, value, 0, 2**32 - 1)


def uint64(what: str, value: Any) -> int:
    return _integer(what, value, 0, 2**64 - 1)


def stream_of(stream: Any) -> Optional[int]:
    """The CUstream of a torch.cuda.Stream, or of a number that is its address. (As a pointer ctypes would take a text too.)"""
    return None if stream is None else uint64("stream", getattr(stream, "cuda_stream", stream))


def device_of(name: Optional[str]) -> Tuple[int, int]:
    """(kind, ordinal + 1) of "auto", "cpu", "cuda" or "cuda:1"; 0 where it is not said."""
    kind, colon, ordinal = (name or "auto").partition(":")
    if colon and (kind != "cuda" or not re.fullmatch("[0-9]{1,4}", ordinal)):
        raise ValueError(f"device is {name!r}; allowed are auto, cpu, cuda and cuda:N")
    return one_of(DEVICES, "device", kind), int(ordinal) + 1 if colon else 0


def switch(what: str, value: Optional[bool]) -> int:
    if value is None:
        return _abi.DEFAULT
    if not isinstance(value, bool):
        raise TypeError(f"{what} is {value!r}; allowed are True, False and None")
    return _abi.ON if value else _abi.OFF


def c_text(what: str, text: Any) -> Optional[bytes]:
    """A str, bytes or None as C has it."""
    if text is None:
        return None
    encoded = text.encode() if isinstance(text, str) else text
    if not isinstance(encoded, bytes):
        raise TypeError(f"{what} is a {type(text).__name__}; give a str")
    if b"\0" in encoded:
        raise ValueError(f"{what} has a NUL in it")
    return encoded


def py_text(text: bytes) -> str:
    return text.decode("utf-8", "replace")
