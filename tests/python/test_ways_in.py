# SPDX-License-Identifier: Apache-2.0
"""Check every way in: launcher, unique id, the caller's exchange, a store as torch.distributed has it; and what wrong input does."""
import array
import datetime
import re
import threading
import time

import pytest

import tpcomm

import ranks


def on_rank_threads(n, join):
    """join(rank), which makes a communicator, on n threads; then a sum over them. What each rank returned or raised."""
    results = [None] * n

    def run(rank):
        try:
            with join(rank) as comm:
                x = array.array("i", [1 << comm.rank])
                comm.all_reduce(x)
                results[rank] = (comm.rank, comm.size, x[0], comm.info().launcher)
        except BaseException as error:  # pylint: disable=broad-except
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ranks.LIMIT)
        assert not thread.is_alive()
    return results


def met(results):
    for rank, result in enumerate(results):
        assert not isinstance(result, BaseException), result
        assert result[:3] == (rank, len(results), (1 << len(results)) - 1)
    return results


# ---- a launcher


def test_launcher():
    code = "import tpcomm; comm = tpcomm.init_env(); print(comm.rank, comm.size, comm.info().launcher); comm.finalize()"
    lines = sorted(ranks.run(3, "-c", code).strip().split("\n"))
    assert len(lines) == 3
    for rank, line in enumerate(lines):
        assert re.match(rf"\[{rank}\] {rank} 3 .*TPCOMM_RANK", line), line


def test_torchrun_variables():
    code = "import tpcomm; comm = tpcomm.init_env(init_timeout_ms=30000); print(comm.info().launcher, flush=True); comm.finalize()"
    job = f"python-{time.monotonic_ns()}"
    processes = [ranks.Process(code, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                               MASTER_PORT="29511", TORCHELASTIC_RUN_ID=job) for rank in range(2)]
    for process in processes:
        exit_code, output = process.end()
        assert exit_code == 0 and "WORLD_SIZE" in output, output


def test_without_a_launcher():
    with pytest.raises(tpcomm.ConfigError, match="tpcomm-bench run -n 2 --"):
        tpcomm.init_env()


def test_missing_rank_is_named():
    code = """
    import tpcomm
    try:
        tpcomm.init_env(init_timeout_ms=1000)
    except tpcomm.Timeout as error:
        print(error)
    """
    process = ranks.Process(code, rank=0, size=2, job=f"missing-{time.monotonic_ns()}")
    exit_code, output = process.end()
    assert exit_code == 0 and output.startswith("TPCOMM_ERR_TIMEOUT") and re.search(r"missing ranks?: 1", output), output


# ---- a unique id


@pytest.mark.parametrize("n", [1, 2, 4])
def test_unique_id(n):
    name = tpcomm.unique_id()
    assert isinstance(name, bytes) and len(name) == 128
    met(on_rank_threads(n, lambda rank: tpcomm.init_rank(name, rank, n, init_timeout_ms=30000)))


def test_unique_ids_differ():
    assert len({tpcomm.unique_id() for _ in range(20)}) == 20


@pytest.mark.parametrize("name, rank, size, kind, why", [
    (b"short", 0, 2, ValueError, "id has 5 bytes; unique_id"),
    ("x" * 128, 0, 2, TypeError, "id is a str"),
    (bytes(128), 0, 2, tpcomm.InvalidArgument, "id"),
    (None, -1, 2, tpcomm.InvalidArgument, "rank is -1"),
    (None, 2, 2, tpcomm.InvalidArgument, "rank is 2"),
    (None, 0, 33, tpcomm.InvalidArgument, "size is 33"),
    (None, 2**32, 2, ValueError, "rank is 4294967296"),
    (None, 0, 2**32 + 1, ValueError, "size is"),
    (None, 0, "2", TypeError, "no integer"),
])
def test_wrong_ids(name, rank, size, kind, why):
    with pytest.raises(kind, match=why):
        tpcomm.init_rank(tpcomm.unique_id() if name is None else name, rank, size, init_timeout_ms=2000)


@pytest.mark.parametrize("n", [0, -1, 33])
def test_wrong_numbers_of_threads(n):
    with pytest.raises(tpcomm.InvalidArgument, match=f"size is {n}"):
        tpcomm.init_local(n)
    with pytest.raises(ValueError, match="n is"):
        tpcomm.init_local(2**32 + 2)


# ---- the caller's exchange


class Gather:
    """An all-gather between threads."""

    def __init__(self, n):
        self.parts = [b""] * n
        self.barrier = threading.Barrier(n, timeout=ranks.LIMIT)

    def __call__(self, rank, mine):
        self.parts[rank] = mine
        self.barrier.wait()
        parts = list(self.parts)
        self.barrier.wait()
        return parts


@pytest.mark.parametrize("form", [list, b"".join, lambda parts: bytearray(b"".join(parts)), tuple])
def test_exchange(form):
    gather = Gather(3)

    def join(rank):
        def exchange(mine, timeout_ms):
            assert isinstance(mine, bytes) and 0 < timeout_ms <= 30000
            return form(gather(rank, mine))
        return tpcomm.init_exchange(rank, 3, exchange, init_timeout_ms=30000)

    met(on_rank_threads(3, join))


def test_exchange_that_raises():
    def exchange(mine, timeout_ms):
        raise OSError("the wire is cut")
    with pytest.raises(tpcomm.Error, match="exchange returned 0") as caught:
        tpcomm.init_exchange(0, 2, exchange)
    assert caught.value.name == "TPCOMM_ERR_BACKEND"
    assert isinstance(caught.value.__cause__, OSError) and "the wire is cut" in str(caught.value.__cause__)


def test_exchange_that_is_interrupted():
    def exchange(mine, timeout_ms):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        tpcomm.init_exchange(0, 2, exchange)


@pytest.mark.parametrize("answer", [None, b"", [b"x", b"y"], lambda mine: [mine], lambda mine: mine * 3, lambda mine: ["a" * len(mine)] * 2])
def test_exchange_that_returns_something_else(answer):
    with pytest.raises(tpcomm.Error, match="exchange returned 0") as caught:
        tpcomm.init_exchange(0, 2, lambda mine, timeout_ms: answer(mine) if callable(answer) else answer)
    assert isinstance(caught.value.__cause__, (TypeError, ValueError))


def test_exchange_that_brings_something_else():
    with pytest.raises(tpcomm.Error, match="rank 1"):
        tpcomm.init_exchange(0, 2, lambda mine, timeout_ms: [mine, bytes(len(mine))])


# ---- a store


class Store:
    """What torch.distributed's stores have, in this process."""

    def __init__(self):
        self.values = {}
        self.changed = threading.Condition()
        self.waits = 0

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key):
        self.wait([key], datetime.timedelta(seconds=ranks.LIMIT))
        return self.values[key]

    def wait(self, keys, timeout):
        with self.changed:
            self.waits += 1
            if not self.changed.wait_for(lambda: all(key in self.values for key in keys), timeout.total_seconds()):
                raise RuntimeError(f"wait timeout after {timeout}, keys: {keys}")


class CheckedStore(Store):
    def check(self, keys):
        with self.changed:
            return all(key in self.values for key in keys)


@pytest.mark.parametrize("kind", [Store, CheckedStore])
def test_store(kind):
    store = kind()
    for _ in range(3):  # worlds of one store, one after another
        met(on_rank_threads(3, lambda rank: tpcomm.init_from_store(store, rank, 3, init_timeout_ms=30000)))
    met(on_rank_threads(2, lambda rank: tpcomm.init_from_store(store, rank, 2, name="other", init_timeout_ms=30000)))
    assert {key.split("/")[0] for key in store.values} == {"tpcomm", "other"}


@pytest.mark.parametrize("kind, why", [(Store, "wait timeout"), (CheckedStore, "after [0-9]+ ms the store has nothing from rank 1, 2")])
def test_store_with_a_rank_missing(kind, why):
    begun = time.monotonic()
    with pytest.raises(tpcomm.Error) as caught:
        tpcomm.init_from_store(kind(), 0, 3, init_timeout_ms=300)
    assert re.search(why, str(caught.value.__cause__))
    assert time.monotonic() - begun < 30


def test_store_that_fails():
    class Broken(Store):
        def set(self, key, value):
            raise ConnectionError("the store is gone")
    with pytest.raises(tpcomm.Error) as caught:
        tpcomm.init_from_store(Broken(), 0, 2)
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_threads_of_one_process():
    comms = tpcomm.init_local(4)
    assert [comm.rank for comm in comms] == [0, 1, 2, 3]
    assert all(comms[0].rank_info(r).same_process for r in range(4))
