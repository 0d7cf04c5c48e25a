# SPDX-License-Identifier: Apache-2.0
"""Check real torch tensors of every element type, what is refused of them, and torch.distributed's own stores as a way in."""
import threading

import pytest
import torch
import torch.distributed

import tpcomm

import ranks

DTYPES = [dtype for dtype in ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64") if hasattr(torch, dtype)]
EIGHT_BITS = [dtype for dtype in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, dtype)]


def pattern(rank, count):
    return (7 * torch.arange(count) + 3 * rank) % 13


def reductions(comm):
    for name in DTYPES:
        dtype = getattr(torch, name)
        for count in (0, 1, 7, 4097):
            wanted = sum(pattern(r, count) for r in range(comm.size)).to(dtype)
            x = pattern(comm.rank, count).to(dtype)
            out = torch.full_like(x, 99)
            assert comm.all_reduce(x, out) is out and torch.equal(out, wanted), (name, count)
            assert comm.all_reduce(x) is x and torch.equal(x, wanted)
    x = torch.full((2, 3), 1.5, dtype=torch.bfloat16, requires_grad=True)
    out = torch.empty(2, 3, dtype=torch.bfloat16)
    assert (comm.all_reduce(x, out) == 1.5 * comm.size).all()
    assert torch.equal(comm.all_reduce(torch.nn.Parameter(torch.ones(3)), torch.empty(3)), torch.full((3,), float(comm.size)))


def movements(comm):
    for name in DTYPES + EIGHT_BITS:
        dtype = getattr(torch, name)
        x = pattern(comm.rank, 33).to(dtype)
        every = torch.cat([pattern(r, 33) for r in range(comm.size)]).to(dtype)
        out = comm.all_gather(x, torch.zeros(33 * comm.size, dtype=torch.int64).to(dtype))
        assert torch.equal(out.to(torch.float32), every.to(torch.float32)), name
        assert torch.equal(comm.broadcast(x.clone(), root=1).to(torch.float32), pattern(1, 33).to(dtype).to(torch.float32))
    x = torch.arange(4 * comm.size)
    assert torch.equal(comm.reduce_scatter(x, torch.zeros(4, dtype=torch.int64)), comm.size * x[4 * comm.rank:4 * comm.rank + 4])
    assert comm.host_all_gather(torch.tensor([comm.rank], dtype=torch.uint8)) == [bytes([r]) for r in range(comm.size)]
    data = torch.full((5,), comm.rank, dtype=torch.int16)  # no type for a reduction; bytes are bytes
    assert (comm.host_broadcast(data, root=1) == 1).all()


def refused(comm):
    x = torch.zeros(4, 4)
    for tensor, why in ((x[:, ::2], "not contiguous"), (x.t()[1:], "not contiguous"), (x.to_sparse(), "not contiguous: its layout"),
                        (torch.zeros(4, device="meta"), "lies on meta"), (torch.zeros(4, dtype=torch.complex64).imag, "not contiguous"),
                        (torch.zeros(2, dtype=torch.complex64).conj().imag[:1], "lazily computed view"), (torch.ones(1).expand(4), "not contiguous")):
        with pytest.raises(ValueError, match=why):
            comm.all_reduce(tensor)
    for dtype in (torch.bool, torch.complex64, torch.int16):
        with pytest.raises(TypeError, match=str(dtype).split(".")[1]):
            comm.all_reduce(torch.zeros(4, dtype=dtype))
    if torch.cuda.is_available():
        with pytest.raises(ValueError, match="lies on cuda:0, and this group computes on the cpu device"):
            comm.all_reduce(torch.zeros(4, device="cuda"))
    comm.all_reduce(x[:2])
    assert comm.async_error() is None


def everything(comm):
    reductions(comm)
    movements(comm)
    refused(comm)


@pytest.mark.parametrize("n, start", [(2, ranks.on_threads), (4, ranks.on_threads), (2, ranks.on_processes)])
def test(n, start):
    start(n, everything)


def stores(folder):
    """A store of each kind for each of two ranks."""
    master = torch.distributed.TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)
    yield "TCPStore", [master, torch.distributed.TCPStore("127.0.0.1", master.port, 2, False, wait_for_workers=False)]
    yield "FileStore", [torch.distributed.FileStore(str(folder / "file"), 2) for _ in range(2)]
    yield "HashStore", [torch.distributed.HashStore()] * 2
    yield "PrefixStore", [torch.distributed.PrefixStore("tp", master)] * 2


def test_stores(tmp_path):
    for kind, pair in stores(tmp_path):
        for _ in range(2):
            sums = [None, None]

            def run(rank, pair=pair, sums=sums):
                with tpcomm.init_from_store(pair[rank], rank, 2, init_timeout_ms=30000) as comm:
                    sums[rank] = comm.all_reduce(torch.tensor([1 << rank])).item()

            threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert sums == [3, 3], kind


def test_missing_rank_of_a_store():
    with pytest.raises(tpcomm.Error) as caught:
        tpcomm.init_from_store(torch.distributed.HashStore(), 0, 2, init_timeout_ms=300)
    assert "nothing from rank 1" in str(caught.value.__cause__)
