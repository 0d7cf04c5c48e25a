# SPDX-License-Identifier: Apache-2.0
"""The arguments of a norm: rows of a caller's arrays as rms_norm_t has them."""
from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Tuple

from . import _abi, _values
from ._buffers import Buffer, buffer_of, elements_of
from ._handle import call
from ._library import lib

#: Quantised outputs, by name.
QUANTS = {"f8_tensor": _abi.QUANT_F8_TENSOR, "f8_token": _abi.QUANT_F8_TOKEN}


def row_range(tokens: int, size: int, rank: int) -> Tuple[int, int]:
    """(first, count) of the rows that a rank of a group of size ranks keeps in the sequence-parallel calls."""
    first, count = ctypes.c_uint64(), ctypes.c_uint64()
    call(lib.row_range, _values.uint64("tokens", tokens), _values.int32("size", size), _values.int32("rank", rank), first, count)
    return first.value, count.value


#: What codes may lie in: 8-bit floats of another kind would be read as other numbers.
_CODES = (_abi.F8_E4M3, _abi.U8, _abi.I8)


def _float32(what: str, value: Any) -> ctypes.c_float:
    try:
        return ctypes.c_float(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}; it must be a number") from None


def _address(data: Optional[Buffer]) -> Optional[int]:
    return data.address or None if data is not None else None


def norm_args(x: Any, weight: Any, out: Any, *, eps: float, weight_bias: float, residual: Any, sum_out: Any, quant: Optional[str],
              quantized: Any, scale: Any, path: Optional[str], tag: int, device: str,
              ranks: Optional[Tuple[int, int]]) -> Tuple[_abi.rms_norm_t, List[Any]]:
    """The struct, and what it points to. ranks: (size, rank) where the outputs have this rank's rows alone."""
    code = _values.one_of(QUANTS, "quant", quant)
    if out is None and code == _abi.QUANT_NONE:
        if ranks is not None:
            raise TypeError("out is None; the rows of this rank need a buffer of their own")
        out = x
    source = elements_of(x, "x", writable=out is x, device=device)
    vector = elements_of(weight, "weight", writable=False, device=device)
    hidden = vector.length
    if hidden == 0 or source.length % hidden:
        raise ValueError(f"x has {source.length} elements, which are no rows of weight's {hidden}")
    tokens = source.length // hidden
    rows = row_range(tokens, *ranks)[1] if ranks is not None else tokens
    taken: List[Any] = [source, vector]

    def matrix(what: str, data: Any, *, codes: bool = False) -> Optional[Buffer]:
        if data is None:
            return None
        found = (buffer_of if codes else elements_of)(data, what, writable=True, device=device)
        if found.dtype not in (_CODES if codes else (source.dtype,)):
            wanted = "float8_e4m3fn, uint8 or int8" if codes else source.dtype_name
            raise TypeError(f"{what} is of {found.dtype_name}; it must be of {wanted}")
        if found.length != rows * hidden:
            raise ValueError(f"{what} has {found.length} elements; {rows} rows of {hidden} are {rows * hidden}")
        taken.append(found)
        return found

    scales = None
    if scale is not None:
        scales = elements_of(scale, "scale", writable=code == _abi.QUANT_F8_TOKEN, device=device)
        wanted = rows if code == _abi.QUANT_F8_TOKEN else 1
        if code != _abi.QUANT_NONE and (scales.dtype != _abi.F32 or scales.length != wanted):
            raise ValueError(f"scale has {scales.length} elements of {scales.dtype_name}; it must have {wanted} of float32")
        taken.append(scales)
    made = _abi.rms_norm_t(struct_size=ctypes.sizeof(_abi.rms_norm_t), dtype=source.dtype, weight_dtype=vector.dtype, quant=code,
                           path=_values.one_of(_values.PATHS, "path", path), hidden=hidden, tokens=tokens, eps=_float32("eps", eps),
                           weight_bias=_float32("weight_bias", weight_bias), weight=_address(vector),
                           residual=_address(matrix("residual", residual)), sum=_address(matrix("sum_out", sum_out)),
                           out=_address(matrix("out", out)), quantized=_address(matrix("quantized", quantized, codes=True)),
                           tag=_values.uint64("tag", tag))
    setattr(made, "in", _address(source))
    if scales is not None:
        made.scale = ctypes.cast(_address(scales), ctypes.POINTER(ctypes.c_float))
    return made, taken


def rms_norm(x: Any, weight: Any, out: Any = None, *, eps: float, weight_bias: float = 0.0, residual: Any = None,
             quant: Optional[str] = None, quantized: Any = None, scale: Any = None, device: str = "cpu", stream: Any = None) -> Any:
    """The norm alone, without a group: x is the sum; arguments as Comm.all_reduce_rms_norm. device: "cpu" or "cuda". Returns out."""
    args, _ = norm_args(x, weight, out, eps=eps, weight_bias=weight_bias, residual=residual, sum_out=None, quant=quant,
                        quantized=quantized, scale=scale, path=None, tag=0, device=device, ranks=None)
    kind = _values.one_of({"cpu": _abi.DEVICE_CPU, "cuda": _abi.DEVICE_CUDA}, "device", device)
    call(lib.rms_norm, kind, args, _values.stream_of(stream))
    return x if out is None and quant is None else out
