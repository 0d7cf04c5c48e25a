# SPDX-License-Identifier: Apache-2.0
"""Check the brackets around graph captures: equal ones pass, a difference is Mismatch on all ranks, misuse is InvalidState, and a block that
raises aborts the group with its reason."""
import numpy as np
import pytest

import tpcomm

import ranks


def brackets(comm):
    with comm.graph_capture():
        for _ in range(3):
            comm.barrier()
        with pytest.raises(tpcomm.InvalidState, match="do not nest"):
            comm.graph_capture_begin()
    with pytest.raises(tpcomm.InvalidState, match="without tpcomm_graph_capture_begin"):
        comm.graph_capture_end()
    comm.graph_capture_begin()
    x = comm.all_reduce(np.ones(5, np.float32))
    comm.graph_capture_end()
    assert np.array_equal(x, np.full(5, comm.size, np.float32))


def test_threads():
    ranks.on_threads(3, brackets)


def test_processes():
    ranks.on_processes(2, brackets)


def test_unequal():
    def body(comm):
        with pytest.raises(tpcomm.Mismatch, match="all_reduce"):
            with comm.graph_capture():
                if comm.rank == 0:
                    comm.all_reduce(np.ones(5, np.float32))
        comm.close()
    ranks.on_threads(2, body)


def test_block_that_raises():
    def body(comm):
        if comm.rank == 0:
            with pytest.raises(KeyError):
                with comm.graph_capture():
                    raise KeyError("no such layer")
        else:
            with pytest.raises(tpcomm.Aborted, match="in a graph capture: KeyError: 'no such layer'"):
                with comm.graph_capture():
                    comm.barrier()
        comm.close()
    ranks.on_threads(2, body)
