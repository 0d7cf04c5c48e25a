# SPDX-License-Identifier: Apache-2.0
"""Check that torch's own analyser reads what tools/tpcomm_flight.py writes for it, and names what went wrong: nothing of healthy ranks,
whatever they called and however much of it is still kept; a rank that missed a call; another count, dtype, collective, order; the group of
two that it was; a rank that left no dump. docs/health.md says what it cannot tell, which is checked too.
"""
import logging
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch  # pylint: disable=unused-import
from torch.distributed.flight_recorder import fr_trace

import tpcomm

import ranks

TOOL = os.path.join(os.path.dirname(ranks.HERE), os.pardir, "tools", "tpcomm_flight.py")
SIZE = 3


@pytest.fixture(name="verdict")
def verdict_of(tmp_path):
    """verdict(function): what the analyser says of SIZE ranks that each ran function(comm) until it came back or failed."""
    dumps, pickles, said = tmp_path / "dumps", tmp_path / "torch", []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("Flight Recorder").addHandler(handler)

    def verdict(function, without=(), arguments=()):
        dumps.mkdir()
        pickles.mkdir()
        dumped, wrong = threading.Barrier(SIZE), []

        def run(comm):
            try:
                function(comm)
            except tpcomm.GroupError:
                pass
            except BaseException as error:  # pylint: disable=broad-except
                wrong.append(error)
            if comm.rank not in without:
                comm.flight_dump(dumps / f"tpcomm-flight-{comm.rank}.json")
            dumped.wait(60)
            comm.close()

        threads = [threading.Thread(target=run, args=(comm,)) for comm in tpcomm.init_local(SIZE, op_timeout_ms=1500)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(ranks.LIMIT)
        assert not wrong
        command = [sys.executable, TOOL, "--torch", str(pickles / "rank_"), str(dumps)]
        assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False, timeout=60).returncode in (0, 1)
        fr_trace.main([str(pickles), "-p", "rank_", *arguments])
        return "\n".join(said)

    yield verdict
    logging.getLogger("Flight Recorder").removeHandler(handler)


def ones(count, dtype=np.float32):
    return np.ones(count, dtype)


kept = []  # groups, which must be there while their calls are dumped


@pytest.fixture(autouse=True)
def let_go():
    yield
    while kept:
        kept.pop().close()


def everything(comm):
    """Each collective, with counts that do not divide by the ranks."""
    rows, weight = ones((7, 64)), ones(64)
    comm.all_reduce(ones(5))
    comm.all_reduce(ones(0))
    comm.all_reduce(ones(5), op="max")
    comm.broadcast(ones(5), root=1)
    comm.all_gather(ones(5), ones(5 * SIZE))
    comm.reduce_scatter(ones(5 * SIZE), ones(5))
    comm.barrier()
    comm.all_reduce_rms_norm(rows, weight, eps=1e-5)
    part = ones((3 if comm.rank < SIZE - 1 else 1, 64))
    comm.reduce_scatter_rms_norm(rows, weight, part, eps=1e-5)
    comm.all_gather_rows(part, ones((7, 64)), 64)
    comm.host_all_gather(b"abc")
    comm.host_broadcast(ones(3), 1)
    comm.host_barrier()
    pair = comm.group([0, 2], "pair")
    if pair is not None:
        for _ in range(4):
            pair.all_reduce(ones(9, np.int64))
        kept.append(pair)
    comm.all_reduce(ones(6))


def test_healthy(verdict):
    assert verdict(everything) == ""


def test_healthy_printed(verdict):
    with pytest.raises(SystemExit):
        verdict(everything, arguments=["-j"])


def test_what_is_still_kept(verdict, monkeypatch):
    monkeypatch.setenv("TPCOMM_FLIGHT_RECORDS", "16")

    def calls(comm):
        for _ in range(40):
            comm.all_reduce(ones(5))
            comm.host_barrier()

    assert verdict(calls) == ""


def test_missing(verdict):
    def calls(comm):
        comm.all_reduce(ones(5))
        if comm.rank != 2:
            comm.all_reduce(ones(5))

    said = verdict(calls)
    assert "Not all ranks joining collective, sequence number: 2" in said and "missing ranks: {2}" in said
    assert ":world device" in said and "all_reduce count 5 f32 sum by" in said


def test_no_dump(verdict):
    def calls(comm):
        comm.all_reduce(ones(5))
        if comm.rank != 1:
            comm.all_reduce(ones(5))

    assert "missing ranks: {1}" in verdict(calls, without=[1])


def come_last(comm, rank):
    """The others are in their calls when this rank comes: a rank that has not begun when two others differ is missing to torch."""
    comm.host_barrier()
    if comm.rank == rank:
        time.sleep(0.5)


def third(mine, theirs):
    """Two calls alike, then one that is another on rank 1."""
    def calls(comm):
        comm.all_reduce(ones(5))
        comm.all_reduce(ones(5))
        come_last(comm, 1)
        (theirs if comm.rank == 1 else mine)(comm)

    return calls


@pytest.mark.parametrize("theirs, kind, values", [
    (lambda comm: comm.all_reduce(ones(6)), "SIZE_OR_SYNTAX_MISMATCH", ("[[5]]", "[[6]]")),
    (lambda comm: comm.all_reduce(ones(5, np.int32)), "COLLECTIVE_DTYPE_MISMATCH", ("'Float'", "'Int'")),
    (lambda comm: comm.broadcast(ones(5)), "COLLECTIVE_TYPE_MISMATCH", ("'all_reduce'", "'broadcast'")),
], ids=["count", "dtype", "collective"])
def test_other(verdict, theirs, kind, values):
    said = verdict(third(lambda comm: comm.all_reduce(ones(5)), theirs))
    assert "Collective sequence number: 3 has errors" in said and kind in said
    assert all(value in said for value in values), said


def test_order(verdict):
    def calls(comm):
        comm.all_reduce(ones(5))
        come_last(comm, 1)
        for call in (comm.barrier, lambda: comm.all_reduce(ones(5)))[::-1 if comm.rank == 1 else 1]:
            call()

    said = verdict(calls)
    assert "Collective sequence number: 2 has errors" in said and "COLLECTIVE_TYPE_MISMATCH" in said


def test_two_groups(verdict):
    def calls(comm):
        pair = comm.group([0, 2], "pair")
        comm.all_reduce(ones(5))
        if pair is not None:
            kept.append(pair)
            pair.all_reduce(ones(5))
            pair.all_reduce(ones(5 + comm.rank))

    said = verdict(calls)
    assert "Collective sequence number: 2 has errors" in said and ":pair device" in said and "world device" not in said


def test_what_it_cannot_tell(verdict):
    """Another op or root is no difference to it."""
    assert verdict(third(lambda comm: comm.all_reduce(ones(5)), lambda comm: comm.all_reduce(ones(5), op="max"))) == ""
