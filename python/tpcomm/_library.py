# SPDX-License-Identifier: Apache-2.0
"""Finds libtpcomm.so and gives every function of it its types.

Looked for in this order: the file that TPCOMM_LIBRARY names (and nowhere else then), the file that the wheel brought, the build
directories of the source tree that this file lies in, the dynamic loader's own places.
"""
from __future__ import annotations

import ctypes
import glob
import os
import re
import types

from . import _abi

_HERE = os.path.dirname(os.path.abspath(__file__))
_SONAME = f"libtpcomm.so.{_abi.VERSION_MAJOR}.{_abi.VERSION_MINOR}"


class Refused(Exception):
    """Why one file is not the library."""


def _sanitizer_of(build: str) -> str:
    """The sanitizer that a build directory was made with; loading such a library ends a Python that has it not."""
    try:
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8", errors="replace") as file:
            match = re.search(r"^TPCOMM_SANITIZE:[A-Z]+=(.+)$", file.read(), re.MULTILINE)
    except OSError:
        return ""
    return match.group(1) if match else ""


def _built() -> list[str]:
    """Libraries of the source tree around this file: build/ first, then the other build directories by name."""
    root = os.path.dirname(os.path.dirname(_HERE))
    if not os.path.exists(os.path.join(root, "include", "tpcomm.h")):
        return []
    builds = sorted(glob.glob(os.path.join(glob.escape(root), "build*")), key=lambda path: (os.path.basename(path) != "build", path))
    found = [path for build in builds for path in [os.path.join(build, "src", "libtpcomm.so")] if os.path.exists(path)]
    return found or [os.path.join(root, "build", "src", "libtpcomm.so")]


def _candidates() -> list[tuple[str, str]]:
    """(what it is, path) of each place to look."""
    named = os.environ.get("TPCOMM_LIBRARY")
    if named:
        return [("TPCOMM_LIBRARY", named)]
    found = [("of the wheel", os.path.join(_HERE, "libtpcomm.so"))]
    found += [("of the build tree", path) for path in _built()]
    return found + [("of the system", _SONAME), ("of the system", "libtpcomm.so")]


def _bind(library: ctypes.CDLL) -> types.SimpleNamespace:
    """The functions under their names without tpcomm_."""
    try:
        library.tpcomm_version.restype = ctypes.c_int32
        number = library.tpcomm_version()
    except AttributeError:
        raise Refused("it has no function tpcomm_version, so it is not libtpcomm") from None
    # Until 1.0 a minor release may change structs and functions, as the soname says.
    if number // 100 != _abi.VERSION_MAJOR * 100 + _abi.VERSION_MINOR:
        raise Refused(f"it is version {number // 10000}.{number // 100 % 100}.{number % 100}, and this module needs "
                      f"{_abi.VERSION_MAJOR}.{_abi.VERSION_MINOR}")
    bound = types.SimpleNamespace()
    for name, (result, arguments) in _abi.PROTOTYPES.items():
        try:
            function = getattr(library, "tpcomm_" + name)
        except AttributeError:
            raise Refused(f"it has no function tpcomm_{name}") from None
        function.restype, function.argtypes = result, arguments
        setattr(bound, name, function)
    return bound


def _load_one(path: str) -> types.SimpleNamespace:
    if os.sep in path:
        if not os.path.exists(path):
            raise Refused("no such file")
        if not os.path.isfile(path):  # of a pipe the loader would wait for the writer
            raise Refused("it is no regular file")
        sanitizer = _sanitizer_of(os.path.dirname(os.path.dirname(path)))
        if sanitizer and not os.environ.get("TPCOMM_LIBRARY"):
            raise Refused(f"it was built with TPCOMM_SANITIZE={sanitizer}; TPCOMM_LIBRARY can name it all the same")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise Refused(str(error)) from None
    return _bind(library)


def load() -> tuple[types.SimpleNamespace, str]:
    """(functions, path) of the first library that can be used; else an ImportError with every place and its reason."""
    tried = []
    for what, path in _candidates():
        try:
            return _load_one(path), path
        except Refused as reason:
            tried.append(f"  {path} ({what}): {reason}")
    raise ImportError("tpcomm found no library that it can use. Tried were\n" + "\n".join(tried) +
                      "\nBuild it (cmake -S . -B build && cmake --build build), install it, or name the file in TPCOMM_LIBRARY.")


lib, library_path = load()
