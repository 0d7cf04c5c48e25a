# SPDX-License-Identifier: Apache-2.0
"""Check the norm's calls: exact against numpy's own float32 arithmetic in the documented order, the sequence-parallel rows against the
replicated ones, bad arrays refused before anything is sent."""
import numpy as np
import pytest

import ranks
import tpcomm

HIDDEN = 264


def tree(values):
    while len(values) > 1:
        values = values[:len(values) // 2] + values[len(values) // 2:]
    return values[0]


def reference(rows, weight, eps, bias, residual=None):
    """(x, out) of float32 rows of each rank, as docs/numerics.md writes it down."""
    x = rows[0].copy()
    for row in rows[1:]:
        x = x + row
    if residual is not None:
        x = x + residual
    out = np.empty_like(x)
    for t, row in enumerate(x):
        squares = np.zeros(64 * 256, np.float32)
        squares[:row.size] = row * row
        vectors = squares.reshape(-1, 8)
        sums = vectors[:, 0].copy()
        for k in range(1, 8):
            sums = sums + vectors[:, k]
        groups = np.array([tree(group) for group in sums.reshape(64, 32)], np.float32)
        mean = tree(groups) / np.float32(row.size)
        inverse = np.float32(1 / np.sqrt(np.float64(mean + np.float32(eps))))
        out[t] = (row * inverse) * (weight + np.float32(bias))
    return x, out


def data(rank, tokens):
    return np.random.default_rng(rank).standard_normal((tokens, HIDDEN)).astype(np.float32)


def norms(comm):
    weight = data(50, 1)[0]
    for tokens in (0, 1, 5):
        every = [data(r, tokens) for r in range(comm.size)]
        want_x, want = reference(every, weight, 1e-6, 1, data(90, tokens))
        residual, out = data(90, tokens), np.zeros((tokens, HIDDEN), np.float32)
        for path in (None, "fused_oneshot", "unfused"):
            residual[:] = data(90, tokens)
            assert comm.all_reduce_rms_norm(data(comm.rank, tokens), weight, out, eps=1e-6, weight_bias=1, residual=residual,
                                            path=path, tag=3) is out
            assert np.array_equal(residual, want_x) and np.array_equal(out, want)
        in_place = data(comm.rank, tokens)
        residual[:] = data(90, tokens)
        assert comm.all_reduce_rms_norm(in_place, weight, eps=1e-6, weight_bias=1, residual=residual) is in_place
        assert np.array_equal(in_place, want)

        first, count = comm.row_range(tokens)
        mine, own = np.zeros((count, HIDDEN), np.float32), data(90, tokens)[first:first + count].copy()
        comm.reduce_scatter_rms_norm(data(comm.rank, tokens), weight, mine, eps=1e-6, weight_bias=1, residual=own)
        assert np.array_equal(mine, want[first:first + count]) and np.array_equal(own, want_x[first:first + count])
        gathered = np.zeros_like(out)
        assert comm.all_gather_rows(mine, gathered, HIDDEN) is gathered
        assert np.array_equal(gathered, want)

        total = np.zeros_like(out)
        codes, scale = np.zeros((tokens, HIDDEN), np.uint8), np.zeros(tokens, np.float32)
        comm.all_reduce_rms_norm(data(comm.rank, tokens), weight, eps=1e-6, sum_out=total, quant="f8_token", quantized=codes, scale=scale)
        assert np.array_equal(total, reference(every, weight, 1e-6, 0)[0])
        greatest = np.abs(reference(every, weight, 1e-6, 0)[1]).max(1, initial=0)
        assert np.array_equal(scale, greatest / np.float32(448))
        assert ((codes & 0x7F).max(1, initial=0) == 0x7E).all()
    alone = tpcomm.rms_norm(data(3, 2), weight, np.zeros((2, HIDDEN), np.float32), eps=1e-6)
    assert np.array_equal(alone, reference([data(3, 2)], weight, 1e-6, 0)[1])
    assert comm.explain("all_reduce_rms_norm", HIDDEN, hidden=HIDDEN).path in ("fused_oneshot", "unfused")
    with tpcomm.batch():
        later = data(comm.rank, 2)
        comm.all_reduce_rms_norm(later, weight, eps=1e-6)
        assert np.array_equal(later, data(comm.rank, 2))
    assert np.array_equal(later, reference([data(r, 2) for r in range(comm.size)], weight, 1e-6, 0)[1])


class Codes:
    """An array of 8-bit floats of a kind, as ml_dtypes and others name them."""
    itemsize = 1

    def __init__(self, dtype):
        self.dtype = dtype
        self.bytes = np.zeros((2, HIDDEN), np.uint8)
        self.__array_interface__ = {**self.bytes.__array_interface__, "typestr": "|V1"}


def refusals(comm):
    x, weight = data(0, 2), data(1, 1)[0]
    for raised, match, change in (
            (ValueError, "not contiguous", {"x": data(0, 4)[::2]}),
            (ValueError, "no rows", {"weight": np.ones(7, np.float32)}),
            (ValueError, "out has 264", {"out": data(0, 1)}),
            (TypeError, "residual is of float64", {"residual": data(0, 2).astype(np.float64)}),
            (TypeError, "eps is '1e-6'; it must be a number", {"eps": "1e-6"}),
            (TypeError, "weight_bias is None", {"weight_bias": None}),
            (tpcomm.InvalidArgument, "scale is given, but quant is none", {"scale": np.zeros(2, np.float32)}),
            (TypeError, "must be of float8_e4m3fn, uint8 or int8", {"quant": "f8_token", "quantized": data(0, 2), "scale": np.zeros(2, np.float32)}),
            (ValueError, "it must have 2 of float32", {"quant": "f8_token", "quantized": x.astype(np.int8), "scale": np.zeros(1, np.float32)}),
            (TypeError, "quantized is of float8_e5m2; it must be of float8_e4m3fn",
             {"quant": "f8_token", "quantized": Codes("float8_e5m2"), "scale": np.zeros(2, np.float32)}),
            (TypeError, "quantized is of float8_e4m3fnuz",
             {"quant": "f8_token", "quantized": Codes("float8_e4m3fnuz"), "scale": np.zeros(2, np.float32)}),
            (ValueError, "quant is 'int8'", {"quant": "int8"}),
            (ValueError, "path is 'fast'", {"path": "fast"}),
            (tpcomm.InvalidArgument, "eps is 0", {"eps": 0}),
            (tpcomm.InvalidArgument, "overlap", {"residual": x}),
            (tpcomm.Unsupported, "weight_dtype float16|weight_dtype f16", {"weight": weight.astype(np.float16)})):
        arguments = {"x": x, "weight": weight, "out": np.zeros_like(x), "eps": 1e-6, **change}
        with pytest.raises(raised, match=match):
            comm.all_reduce_rms_norm(**arguments)
    codes = Codes("float8_e4m3fn")
    comm.all_reduce_rms_norm(x, weight, eps=1e-6, quant="f8_token", quantized=codes, scale=np.zeros(2, np.float32))
    assert ((codes.bytes & 0x7F).max(1) == 0x7E).all()
    read_only = data(0, 2)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        comm.all_reduce_rms_norm(read_only, weight, eps=1e-6)
    with pytest.raises(ValueError, match="this rank's rows have"):
        comm.all_gather_rows(x, np.zeros((4 * comm.size, HIDDEN), np.float32), HIDDEN)
    with pytest.raises(TypeError, match="out is None"):
        comm.reduce_scatter_rms_norm(x, weight, eps=1e-6)


def test_norms_on_threads():
    for size in (2, 3):
        ranks.on_threads(size, norms)


def test_norms_on_processes():
    ranks.on_processes(2, norms)


def test_refusals():
    ranks.on_threads(1, refusals)


def test_partition():
    assert [tpcomm.row_range(7, 3, r) for r in range(3)] == [(0, 3), (3, 3), (6, 1)]
    with pytest.raises(tpcomm.InvalidArgument, match="rank is 3"):
        tpcomm.row_range(7, 3, 3)
