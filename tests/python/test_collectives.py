# SPDX-License-Identifier: Apache-2.0
"""Check that collectives and host messages give exact results on every rank, in place and not, as threads and as processes, and that
explain, stats and info tell what was done."""
import array
import threading

import numpy as np
import pytest

import tpcomm

import ranks

DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64", "uint32", "uint64")
COUNTS = (0, 1, 7, 1021, 70001)


def pattern(rank, count, dtype):
    """Small integers: exact in every type, and a missing, doubled or misplaced part shows."""
    return ((7 * np.arange(count) + 3 * rank) % 13).astype(dtype)


def total(size, count, dtype):
    return sum(pattern(r, count, np.int64) for r in range(size)).astype(dtype)


def all_reduce(comm):
    for dtype in DTYPES:
        for count in COUNTS:
            x = pattern(comm.rank, count, dtype)
            out = np.full(count, 99, dtype)
            assert comm.all_reduce(x, out) is out
            assert np.array_equal(out, total(comm.size, count, dtype)), (dtype, count)
            assert np.array_equal(x, pattern(comm.rank, count, dtype)), "the input was changed"
            assert comm.all_reduce(x) is x
            assert np.array_equal(x, out)


def operations(comm):
    every = np.stack([pattern(r, 50, np.float64) + 1 for r in range(comm.size)])
    for op, wanted in (("sum", every.sum(0)), ("avg", every.sum(0) / comm.size), ("max", every.max(0)), ("min", every.min(0)),
                       ("prod", every.prod(0))):
        for path in (None, "cpu_oneshot", "cpu_twoshot"):
            assert np.array_equal(comm.all_reduce(every[comm.rank].copy(), op=op, path=path, tag=5), wanted), (op, path)
    with pytest.raises(tpcomm.Unsupported, match="avg"):
        comm.all_reduce(np.zeros(4, np.int32), op="avg")


def movements(comm):
    for dtype in ("float32", "uint8", "int64"):
        for count in COUNTS:
            x = pattern(comm.rank, count, dtype)
            every = np.concatenate([pattern(r, count, dtype) for r in range(comm.size)])
            for root in range(comm.size):
                assert np.array_equal(comm.broadcast(x.copy(), root=root), pattern(root, count, dtype))
                assert np.array_equal(comm.broadcast(x, np.zeros_like(x), root), pattern(root, count, dtype))
            out = np.zeros(count * comm.size, dtype)
            assert comm.all_gather(x, out) is out
            assert np.array_equal(out, every)
            mine = slice(comm.rank * count, (comm.rank + 1) * count)
            out[:] = 0
            out[mine] = x
            assert np.array_equal(comm.all_gather(out[mine], out), every), "in place"

            whole = pattern(comm.rank, count * comm.size, dtype)
            part = np.zeros(count, dtype)
            wanted = total(comm.size, count * comm.size, dtype)[mine]
            assert comm.reduce_scatter(whole, part) is part
            assert np.array_equal(part, wanted)
            comm.reduce_scatter(whole, whole[mine])
            assert np.array_equal(whole[mine], wanted), "in place"


def shapes_are_kept(comm):
    x = np.ones((2, 3, 4), np.float32)
    out = np.zeros((comm.size, 2, 3, 4), np.float32)
    assert comm.all_gather(x, out).shape == out.shape and (out == 1).all()
    assert (comm.reduce_scatter(out, np.zeros((2, 3, 4), np.float32), "max") == 1).all()


def wrong_shapes(comm):
    x = np.ones(4, np.float32)
    for out in (np.zeros(4 * comm.size - 1, np.float32), np.zeros(4, np.float32)):
        with pytest.raises(ValueError, match="x has 4 elements and out has"):
            comm.all_gather(x, out)
        with pytest.raises(ValueError, match="out has 4; out must have"):
            comm.reduce_scatter(out, x)
    for function in (comm.all_gather, comm.reduce_scatter):
        with pytest.raises(TypeError, match="out is None"):
            function(x, None)
    for root in (-1, comm.size):
        with pytest.raises(tpcomm.InvalidArgument, match="root is"):
            comm.broadcast(x, root=root)
    with pytest.raises(ValueError, match="root is"):
        comm.broadcast(x, root=2**32)  # ctypes alone would take it for 0
    with pytest.raises(TypeError, match="root is 0.0"):
        comm.broadcast(x, root=0.0)
    comm.barrier()
    assert comm.async_error() is None


def other_buffers(comm):
    x = array.array("i", [1, 2, comm.rank])
    assert list(comm.all_reduce(x)) == [comm.size, 2 * comm.size, sum(range(comm.size))]
    data = bytearray(b"root %d" % comm.rank)
    assert comm.broadcast(data, root=1) == b"root 1"


def batches(comm):
    """Two communicators, called in opposite orders."""
    other = comm.group(range(comm.size), "other")
    a, b = pattern(comm.rank, 100, "float32"), pattern(comm.rank, 5000, "int64")
    calls = [lambda: comm.all_reduce(a), lambda: other.all_reduce(b)]
    for _ in range(20):
        a[:], b[:] = pattern(comm.rank, 100, "float32"), pattern(comm.rank, 5000, "int64")
        with tpcomm.batch():
            for function in calls if comm.rank % 2 else reversed(calls):
                function()
            with tpcomm.batch():
                gathered = comm.all_gather(pattern(comm.rank, 3, "int32"), np.zeros(3 * comm.size, "int32"))
            assert np.array_equal(b, pattern(comm.rank, 5000, "int64")), "a call of a batch ran before its end"
        assert np.array_equal(a, total(comm.size, 100, "float32")) and np.array_equal(b, total(comm.size, 5000, "int64"))
        assert np.array_equal(gathered, np.concatenate([pattern(r, 3, "int32") for r in range(comm.size)]))
    with tpcomm.batch():  # the batch keeps what nobody else does
        comm.all_reduce(np.ones(100000, np.float32), np.empty(100000, np.float32))
    with pytest.raises(ZeroDivisionError):
        with tpcomm.batch():
            comm.all_reduce(a)
            1 / 0  # pylint: disable=pointless-statement
    assert np.array_equal(a, comm.size * total(comm.size, 100, "float32")), "a batch that raises still runs its calls"
    other.finalize()
    other.close()


def host_messages(comm):
    for length in (0, 1, 4096, 300001):
        for root in range(comm.size):
            message = bytes((length + root + i) % 251 for i in range(min(length, 1000))) * (length // 1000 + 1)
            message = message[:length]
            if comm.rank == root:
                assert comm.host_broadcast(message, root) is message, "root's bytes may be read-only"
                assert comm.host_broadcast_bytes(message, root) == message
            else:
                assert comm.host_broadcast(bytearray(length), root) == message
                assert comm.host_broadcast_bytes(root=root) == message
        mine = bytes([comm.rank]) * length
        assert comm.host_all_gather(mine) == [bytes([r]) * length for r in range(comm.size)]
        out = np.zeros((comm.size, length), np.uint8)
        assert comm.host_all_gather(mine, out) is out
        assert all((out[r] == r).all() for r in range(comm.size))
    comm.host_barrier()
    if comm.rank != 0:
        with pytest.raises(ValueError, match="data is read-only"):
            comm.host_broadcast(b"123")
    else:
        with pytest.raises(TypeError, match="data is None on root"):
            comm.host_broadcast_bytes()
    with pytest.raises(ValueError, match="out has 5 bytes"):
        comm.host_all_gather(b"123", bytearray(5))
    for timeout in (-1, 2**32):
        with pytest.raises(ValueError, match="timeout_ms is"):
            comm.host_barrier(timeout_ms=timeout)
    comm.host_barrier(timeout_ms=20000)


def host_messages_beside_collectives(comm):
    """On another thread, at the same time."""
    wrong = []

    def steps():
        for step in range(300):
            got = comm.host_all_gather(b"%d.%d" % (step, comm.rank))
            if got != [b"%d.%d" % (step, r) for r in range(comm.size)]:
                wrong.append(got)

    thread = threading.Thread(target=steps)
    thread.start()
    for step in range(300):
        x = np.full(17, comm.rank + step)
        if not (comm.all_reduce(x) == sum(range(comm.size)) + step * comm.size).all():
            wrong.append(x)
    thread.join()
    assert not wrong


def facts(comm):
    before = comm.stats()
    for _ in range(3):
        comm.all_reduce(np.zeros(10, np.float32), path="cpu_twoshot")
    after = comm.stats()["cpu_twoshot"]
    assert (after.calls, after.bytes) == (before["cpu_twoshot"].calls + 3, before["cpu_twoshot"].bytes + 120)

    info = comm.info()
    assert (info.rank, info.size, info.device, info.name, info.topology) == (comm.rank, comm.size, "cpu", "world", "cpu")
    assert info.deterministic is False and info.workspace_bytes > 0 and "cpu_oneshot" in info.paths
    assert comm.ranks == list(range(comm.size))
    assert f"rank {comm.rank} of {comm.size}" in repr(comm)
    comm.set_op_timeout(12345)
    assert comm.info().op_timeout_ms == 12345
    comm.note_waits()
    comm.note_waits(False)
    for r in range(comm.size):
        peer = comm.rank_info(r)
        assert peer.rank == r and peer.pid > 0 and peer.host
    for wrong in (-1, comm.size):
        with pytest.raises(tpcomm.InvalidArgument):
            comm.rank_info(wrong)
    with pytest.raises(ValueError, match="timeout_ms"):
        comm.set_op_timeout(0)

    decision = comm.explain("all_reduce", 1000, "bfloat16")
    assert decision.path == "cpu_oneshot" and decision.reason in str(decision)
    assert decision.bytes_min <= 2000 <= decision.bytes_max and decision.source in ("measured", "estimated")
    assert set(decision.rejected) == {"cpu_twoshot", "local"} and "1000 bf16" in decision.text
    assert comm.explain("all_reduce", 1000, path="cpu_twoshot").path == "cpu_twoshot"
    assert comm.explain("barrier").path
    captured = comm.explain("all_reduce", 1000, "bfloat16", capturing=True)
    assert (decision.capturing, captured.capturing) == (False, True) and captured.path == decision.other_path and captured.other_path == decision.path
    assert "captured in a graph" in captured.text and "captured" not in decision.text
    for arguments, why in ((("reduce",), "coll is 'reduce'"), (("all_reduce", 1, "int16"), "dtype is 'int16'"), (("all_reduce", -1), "count is -1")):
        with pytest.raises(ValueError, match=why):
            comm.explain(*arguments)


FUNCTIONS = [all_reduce, operations, movements, shapes_are_kept, wrong_shapes, other_buffers, batches, host_messages,
             host_messages_beside_collectives, facts]

test_on_threads, test_on_processes = ranks.tests_of(FUNCTIONS, [2, 4])


def test_a_group_of_one():
    with tpcomm.init_local(1)[0] as comm:
        x = np.array([1.5, 2.5])
        assert np.array_equal(comm.all_reduce(x.copy()), x)
        assert np.array_equal(comm.all_gather(x, np.zeros(2)), x)
        assert np.array_equal(comm.reduce_scatter(x, np.zeros(2)), x)
        assert comm.host_all_gather(b"me") == [b"me"] and comm.host_broadcast_bytes(b"me") == b"me"
        assert comm.explain("all_reduce", 2).path == "local"
