# SPDX-License-Identifier: Apache-2.0
"""Check groups, splits and meshes from Python: members and order, sums over the right ranks, wrong sizes refused on every rank at once."""
import json
import os
import pathlib
import tempfile

import numpy as np
import pytest

import tpcomm

import ranks


def total(comm):
    """Sum over a group of 2^world rank, which tells whose values came in."""
    return int(comm.all_reduce(np.array([1 << comm.ranks[comm.rank]]))[0])


def members_of(number):
    return [rank for rank in range(16) if number >> rank & 1]


def groups(world):
    pair = world.group([world.size - 1, 0], "pair")
    if world.rank not in (0, world.size - 1):
        assert pair is None
    else:
        assert (pair.name, pair.size, pair.ranks) == ("pair", 2, [world.size - 1, 0])
        assert pair.rank == (1 if world.rank == 0 else 0)
        assert members_of(total(pair)) == [0, world.size - 1]
        with pair:  # finalized and closed
            pass
    alone = world.group((world.rank,))
    assert (alone.rank, alone.size, alone.name) == (0, 1, "group")
    assert total(alone) == 1 << world.rank

    parity = world.split(world.rank % 2, key=-world.rank, name="parity")
    wanted = [rank for rank in reversed(range(world.size)) if rank % 2 == world.rank % 2]
    assert parity.ranks == wanted and members_of(total(parity)) == sorted(wanted)
    assert (world.split(None if world.rank else 0) is None) == (world.rank != 0)
    many = [world.split(0) for _ in range(20)]
    for group in many:
        assert members_of(total(group)) == list(range(world.size))
    # The parent may go first.
    world.finalize()
    world.close()
    assert members_of(total(parity)) == sorted(wanted)
    parity.finalize()


def shrunk(world):
    """Without rank 1, which knows; it stays in the world."""
    with pytest.raises(tpcomm.InvalidArgument, match="this rank itself"):
        world.shrink([world.rank])
    if world.rank != 1:
        smaller = world.shrink([1])
        assert smaller.name == "world" and 1 not in smaller.ranks
        assert members_of(total(smaller)) == [rank for rank in range(world.size) if rank != 1]
        smaller.finalize()
        smaller.close()
    path = pathlib.Path(tempfile.gettempdir()) / f"tpcomm-test-{os.getpid()}-{world.rank}.json"
    world.flight_dump(path)
    dump = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    assert dump["schema"] == "tpcomm-flight/1" and dump["rank"] == world.rank
    again = world.shrink()  # nobody is lost
    assert members_of(total(again)) == list(range(world.size))
    again.finalize()


def wrong_arguments(world):
    for members in ([0, 0], [0, world.size], [-1, 0], []):
        if world.rank in members or not members:
            with pytest.raises(tpcomm.InvalidArgument):
                world.group(members)
    for members, why in (([2**32], "rank is 4294967296"), ([0.0], "no integer"), (["0"], "no integer")):
        with pytest.raises((TypeError, ValueError), match=why):
            world.group(members)
    with pytest.raises(ValueError, match="NUL"):
        world.group([0], "a\0b")
    with pytest.raises(ValueError, match="color is"):
        world.split(2**31)
    with pytest.raises(tpcomm.ConfigError, match="dp is -1"):
        world.mesh(dp=-1)
    world.barrier()


def mesh(world):
    """Tensor parallel ranks are neighbours."""
    half = world.size // 2
    with world.mesh(tp=2, dp=half) as made:
        base = world.rank - world.rank % 2
        assert made.tp.ranks == [base, base + 1]
        assert made.dp.ranks == list(range(world.rank % 2, world.size, 2))
        assert made.pp.ranks == made.cp.ranks == [world.rank]
        assert made.ep.ranks == list(range(world.size))
        for kind in made.KINDS:
            group = made.group(kind)
            assert group.name == kind and group.rank == group.ranks.index(world.rank)
            assert members_of(total(group)) == sorted(group.ranks)
        assert "tp: " + " ".join("{%d,%d}" % (r, r + 1) for r in range(0, world.size, 2)) in str(made).split("\n")
        with pytest.raises(ValueError, match="tp, cp, pp, dp, ep"):
            made.group("xp")
        with pytest.raises(tpcomm.InvalidState, match="belongs to a mesh"):
            made.tp.close()
    with pytest.raises(tpcomm.InvalidState, match="the mesh is closed"):
        made.tp.barrier()
    made.close()

    # A group keeps the mesh, whose variable is gone.
    tp = world.mesh(tp=2, dp=half).tp
    assert members_of(total(tp)) == tp.ranks
    tp.finalize()


FUNCTIONS = [groups, shrunk, wrong_arguments, mesh]

test_on_threads, test_on_processes = ranks.tests_of(FUNCTIONS, [2, 4])


def overlapping_reductions(world):
    """A value that is summed over TP and then over EP is the sum over both, and each of the two is its own."""
    tp = world.group([0, 1] if world.rank < 2 else [2, 3], "tp")
    ep = world.group([0, 2] if world.rank % 2 == 0 else [1, 3], "ep")
    mine = np.array([2.0 ** world.rank], np.float32)
    assert tp.all_reduce(mine.copy())[0] == [3, 3, 12, 12][world.rank]
    assert ep.all_reduce(mine.copy())[0] == [5, 10, 5, 10][world.rank]
    assert ep.all_reduce(tp.all_reduce(mine))[0] == 15
    tp.finalize()
    ep.finalize()


def written_table(world):
    made = world.mesh(tp=2, pp=2)
    assert str(made) == "tp: {0,1} {2,3}\ncp: {0} {1} {2} {3}\npp: {0,2} {1,3}\ndp: {0} {1} {2} {3}\nep: {0,1} {2,3}\n"
    made.finalize()


SIZES = [({"tp": 2}, "= 2 but world = 4"), ({"tp": 2, "pp": 2, "dp": 2}, "= 8 but world = 4"), ({"tp": -1}, "tp is -1"),
         ({"tp": 3}, "= 3 but world = 4"), ({"tp": 4, "ep": 3}, "ep = 3 does not divide"), ({}, "= 1 but world = 4")]


def wrong_sizes(world):
    for sizes, why in SIZES:
        with pytest.raises(tpcomm.ConfigError, match=why):
            world.mesh(**sizes)
    for sizes in ({"tp": 2**32 + 4}, {"tp": -2**31 - 1}):
        with pytest.raises(ValueError, match="allowed are"):
            world.mesh(**sizes)
    with pytest.raises(tpcomm.Mismatch, match="rank 0 asks for"):
        world.mesh(**({"tp": 4} if world.rank == 0 else {"dp": 4}))
    world.barrier()
    assert world.mesh(tp=4, pp=0, dp=0).tp.size == 4, "0 is the default"
    world.barrier()


OF_FOUR = [overlapping_reductions, written_table, wrong_sizes]


test_of_four_threads, test_of_four_processes = ranks.tests_of(OF_FOUR, [4])
