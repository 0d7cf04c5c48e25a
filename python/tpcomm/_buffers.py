# SPDX-License-Identifier: Apache-2.0
"""Where the elements of a caller's array lie: numpy, torch, anything with the buffer protocol or an array interface, with neither of
them imported. All is checked here, before the library hears of the call."""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from . import _abi

#: Element types by the names that numpy, torch, ml_dtypes and jax give them.
DTYPES: Dict[str, int] = {
    "float32": _abi.F32, "float16": _abi.F16, "bfloat16": _abi.BF16, "float64": _abi.F64,
    "int8": _abi.I8, "uint8": _abi.U8, "int32": _abi.I32, "int64": _abi.I64, "uint32": _abi.U32, "uint64": _abi.U64,
    "float8_e4m3fn": _abi.F8_E4M3, "float8_e5m2": _abi.F8_E5M2,
}
_DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
# Letters of the struct module: which kind of number; its size comes from the buffer, since "l" has two.
_LETTERS = {**dict.fromkeys("efd", "float"), **dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQNc", "uint")}
_NATIVE = "<" if sys.byteorder == "little" else ">"

_seen: Dict[Any, int] = {}  # dtype objects met so far
_readers: Dict[type, Callable[[Any, str, bool, str], Buffer]] = {}  # by the types met so far


class Buffer(NamedTuple):
    """Elements in one piece of memory, kept alive by keep."""
    address: int
    length: int  # in elements
    itemsize: int
    dtype: Optional[int]  # None: not one of the library's
    dtype_name: str
    keep: Any

    @property
    def nbytes(self) -> int:
        return self.length * self.itemsize


class _PyBuffer(ctypes.Structure):
    """Py_buffer, as Include/pybuffer.h has it."""
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi))
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))


def _dtype_of(dtype: Any) -> Tuple[Optional[int], str]:
    """(number, name) of a dtype object."""
    known = _seen.get(dtype)
    if known is not None:
        return known, _DTYPE_NAMES[known]
    name = str(dtype).rsplit("torch.", 1)[-1]
    number = DTYPES.get(name)
    if number is not None:
        _seen[dtype] = number
    return number, name


def _refuse_layout(what: str, shape: Any, strides: Any) -> None:
    raise ValueError(f"{what} is not contiguous: shape {tuple(shape)}, strides {tuple(strides)}. Give a contiguous copy of it "
                     "(numpy.ascontiguousarray, tensor.contiguous()); where it is an output, copy the result back")


def _refuse_read_only(what: str) -> None:
    raise ValueError(f"{what} is read-only, and the result is written to it")


def _of_tensor(tensor: Any, what: str, _writable: bool, device: str) -> Buffer:
    """torch.Tensor, by its methods."""
    place = tensor.device.type
    if place != device:
        raise ValueError(f"{what} lies on {tensor.device}, and this group computes on the {device} device")
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise ValueError(f"{what} is not contiguous: its layout is {layout}")
    if not tensor.is_contiguous():
        _refuse_layout(what, tensor.shape, tensor.stride())
    # Views whose elements are not what lies in memory.
    for method in ("is_neg", "is_conj"):
        if getattr(tensor, method, bool)():
            raise ValueError(f"{what} is a lazily computed view ({method}() is true): give tensor.resolve_{method[3:]}()")
    number, name = _dtype_of(tensor.dtype)
    return Buffer(tensor.data_ptr(), tensor.numel(), tensor.element_size(), number, name, tensor)


def _is_contiguous(shape: Tuple[int, ...], strides: Tuple[int, ...], itemsize: int) -> bool:
    """Whether elements lie row by row without a gap."""
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length == 0:
            return True
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def _described(array: Any, interface: Dict[str, Any], what: str, writable: bool) -> Buffer:
    """What an array interface, of host or cuda memory, says."""
    shape, strides = interface["shape"], interface.get("strides")
    typestr = interface["typestr"]
    if typestr[1] == "O":
        raise TypeError(f"{what} has elements that are Python objects; known are {', '.join(DTYPES)}")
    itemsize = getattr(array, "itemsize", None)
    if not isinstance(itemsize, int):
        itemsize = int(typestr[2:])
    length = 1
    for extent in shape:
        length *= extent
    if strides is not None and not _is_contiguous(shape, strides, itemsize):
        _refuse_layout(what, shape, strides)
    address, read_only = interface["data"]
    if writable and read_only:
        _refuse_read_only(what)
    dtype = getattr(array, "dtype", None)
    if dtype is not None:
        number, name = _dtype_of(dtype)
    else:
        kind = {"f": "float", "i": "int", "u": "uint"}.get(typestr[1], "")
        name = f"{kind}{8 * itemsize}" if kind and typestr[0] in (_NATIVE, "|") else typestr
        number = DTYPES.get(name)
    return Buffer(address, length, itemsize, number, name, array)


def _of_cuda(thing: Any, what: str, writable: bool, device: str) -> Buffer:
    """Of a type that can lie on a GPU (cupy, numba, jax); one that does not refuses the attribute."""
    interface = getattr(thing, "__cuda_array_interface__", None)
    if interface is None:
        return (_of_array if hasattr(thing, "__array_interface__") else _of_memory)(thing, what, writable, device)
    if device != "cuda":
        raise ValueError(f"{what} lies on a cuda device, and this group computes on the {device} device")
    return _described(thing, interface, what, writable)


def _refuse_host(what: str, device: str) -> None:
    raise ValueError(f"{what} lies in host memory, and this group computes on the {device} device")


def _of_array(array: Any, what: str, writable: bool, device: str) -> Buffer:
    """numpy.ndarray and what describes itself as it does."""
    interface = array.__array_interface__
    if not isinstance(interface, dict) or not isinstance(interface.get("data"), tuple):
        return _of_memory(array, what, writable, device)
    if device != "cpu":
        _refuse_host(what, device)
    return _described(array, interface, what, writable)


def _of_memory(thing: Any, what: str, writable: bool, device: str) -> Buffer:
    """bytes, bytearray, array.array, ctypes arrays, mmap: whatever has the buffer protocol."""
    try:
        view = memoryview(thing)
    except TypeError:
        raise TypeError(f"{what} is a {type(thing).__name__}; give a numpy array, a torch tensor or another object with the "
                        "buffer protocol") from None
    if device != "cpu":
        _refuse_host(what, device)
    if not view.c_contiguous:
        _refuse_layout(what, view.shape or (), view.strides or ())
    if writable and view.readonly:
        _refuse_read_only(what)
    order, letter = (view.format[0], view.format[1:]) if view.format[:1] in tuple("@=<>!") else ("@", view.format)
    kind = _LETTERS.get(letter, "")
    name = f"{kind}{8 * view.itemsize}" if kind and order in ("@", "=", _NATIVE) else repr(view.format)
    # The view, which is kept, keeps the memory where it is; this only asks for the address.
    raw = _PyBuffer()
    _get_buffer(view, raw, 0x11C if view.readonly else 0x11D)  # PyBUF_FULL_RO, PyBUF_FULL
    address = raw.buf
    _release_buffer(raw)
    return Buffer(address or 0, view.nbytes // max(view.itemsize, 1), view.itemsize, DTYPES.get(name), name, view)


def _reader_of(thing: Any, what: str) -> Callable[[Any, str, bool, str], Buffer]:
    """What reads things of this type."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(thing, numpy.generic):  # its interface describes a copy that is gone at once
        raise TypeError(f"{what} is a numpy scalar ({type(thing).__name__}), which has no memory of its own; give numpy.array of it")
    kind = type(thing)
    for attribute, reader in (("data_ptr", _of_tensor), ("__cuda_array_interface__", _of_cuda), ("__array_interface__", _of_array)):
        if hasattr(kind, attribute):
            _readers[kind] = reader
            return reader
        if hasattr(thing, attribute):
            return reader
    return _of_memory


def buffer_of(thing: Any, what: str, *, writable: bool, device: str = "cpu") -> Buffer:
    """Describe a caller's array. TypeError: it is none; ValueError: not contiguous, read-only, on another device."""
    if isinstance(thing, type):
        raise TypeError(f"{what} is the type {thing.__name__}; give a numpy array or a torch tensor of it")
    return (_readers.get(type(thing)) or _reader_of(thing, what))(thing, what, writable, device)


def elements_of(thing: Any, what: str, *, writable: bool, device: str) -> Buffer:
    """buffer_of, for a collective: of an element type that the library knows."""
    found = buffer_of(thing, what, writable=writable, device=device)
    if found.dtype is None:
        raise TypeError(f"{what} has elements of {found.dtype_name}; known are {', '.join(DTYPES)}")
    return found
