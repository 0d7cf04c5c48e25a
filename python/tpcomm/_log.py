# SPDX-License-Identifier: Apache-2.0
"""Where the library's log lines go."""
from __future__ import annotations

import atexit
from typing import Any, Callable, Optional

from . import _abi
from ._errors import check
from ._library import lib
from ._values import LEVELS, name_of, one_of, py_text

LogFunction = Callable[[str, str, str], None]

_in_use: Any = None  # C calls it until another takes its place


def set_log(function: Optional[LogFunction], level: str = "warn") -> None:
    """Send log lines to function(level, subsystem, line), for the whole process; None: stderr, or TPCOMM_LOG_FILE.

    level is the most detailed one wanted: "none", "error", "warn", "info", "debug"; TPCOMM_LOG wins over it. function is called by any
    thread. After this returns the former function never runs again. Not to be called by such a function.
    """
    global _in_use  # pylint: disable=global-statement
    number = one_of(LEVELS, "level", level)

    def on_line(_: Any, line_level: int, subsystem: bytes, line: bytes) -> None:
        function(name_of(LEVELS, line_level), py_text(subsystem), py_text(line))  # type: ignore[misc]

    wrapped = _abi.log_fn(on_line) if function is not None else _abi.log_fn()
    check(lib.log_set(wrapped, None, number))
    _in_use = wrapped


# No thread of the library's may call Python when the interpreter is gone.
atexit.register(lambda: _in_use and lib.log_set(_abi.log_fn(), None, _abi.LOG_WARN))
