# SPDX-License-Identifier: Apache-2.0
"""Check that a failed call is an exception with status, name and the library's text, of a class of its own where one wants to tell it
apart; and what a refused or wrong call of one rank does to its peers."""
import pickle
import threading

import numpy as np
import pytest

import tpcomm
from tpcomm import _abi, _errors

import ranks

PUBLIC = [value for value in vars(tpcomm).values() if isinstance(value, type) and issubclass(value, tpcomm.Error)]


def test_every_status_has_its_exception():
    for name, status in vars(_abi).items():
        if not name.startswith("ERR_"):
            continue
        error = _errors.error_of(status, "a text")
        assert (error.status, error.name, error.text) == (status, "TPCOMM_" + name, "a text")
        assert str(error) == f"TPCOMM_{name}: a text"
        assert isinstance(error, tpcomm.GroupError) == (-80 < status <= -40 and name != "ERR_NO_TRANSPORT"), name
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.status, str(again)) == (type(error), status, str(error))
        with pytest.raises(tpcomm.Error):
            _errors.check(status)
    _errors.check(0)


def test_classes():
    shown = {type(_errors.error_of(status, "")) for name, status in vars(_abi).items() if name.startswith("ERR_")}
    assert shown == set(PUBLIC), "a class that no status has"
    for kind, builtin in ((tpcomm.InvalidArgument, ValueError), (tpcomm.ConfigError, ValueError), (tpcomm.Timeout, TimeoutError),
                          (tpcomm.OutOfMemory, MemoryError)):
        assert issubclass(kind, builtin)
    assert repr(tpcomm.Timeout) == "<class 'tpcomm.Timeout'>"


def test_text_is_the_librarys():
    with pytest.raises(tpcomm.InvalidArgument) as caught:
        tpcomm.init_local(33)
    assert caught.value.text == "size is 33; allowed are 1 to 32"
    assert caught.value.text == _errors.lib.last_error().decode()


@pytest.mark.parametrize("settings, kind, why", [
    ({"device": "gpu"}, ValueError, "device is 'gpu'; allowed are auto, cuda, cpu"),
    ({"device": "cpu:0"}, ValueError, "device is 'cpu:0'; allowed are auto, cpu, cuda and cuda:N"),
    ({"device": "cuda:"}, ValueError, "device is 'cuda:'"),
    ({"device": "cuda:-1"}, ValueError, "device is 'cuda:-1'"),
    ({"device": "cuda:99999"}, ValueError, "device is 'cuda:99999'"),
    ({"share_device": 1}, TypeError, "share_device is 1"),
    ({"devices": [0]}, ValueError, "devices has 1 entries; 2 ranks need 2"),
    ({"devices": [0, 2**32]}, ValueError, "device is 4294967296"),
    ({"deterministic": 1}, TypeError, "deterministic is 1"),
    ({"path": "tree"}, ValueError, "path is 'tree'"),
    ({"check": "on"}, ValueError, "check is 'on'; allowed are off, async, sync"),
    ({"op_timeout_ms": -1}, ValueError, "op_timeout_ms is -1"),
    ({"init_timeout_ms": 2**32 + 1}, ValueError, "init_timeout_ms is 4294967297"),
    ({"op_timeout_ms": 1.5}, TypeError, "op_timeout_ms is 1.5, which is no integer"),
    ({"workspace_bytes": 2**64}, ValueError, "workspace_bytes"),
    ({"tuning_file": "a\0b"}, ValueError, "NUL"),
    ({"timeout": 5}, TypeError, "there is no setting 'timeout'; there are device, share_device"),
    ({"workspace_bytes": 1}, tpcomm.Error, "workspace_bytes"),
    ({"tuning_file": "/nonexistent/tuning.json"}, tpcomm.Error, "/nonexistent/tuning.json"),
])
def test_settings(settings, kind, why):
    with pytest.raises(kind, match=why):
        tpcomm.init_local(2, **settings)


def test_settings_arrive():
    comms = tpcomm.init_local(2, device="cpu", deterministic=True, path="cpu_twoshot", op_timeout_ms=5000, workspace_bytes=1 << 20,
                              check="sync")
    info = comms[1].info()
    assert info.check == "sync" and "check sync: " in str(comms[0].explain("all_reduce", 4))
    assert (info.deterministic, info.op_timeout_ms) == (True, 5000) and info.workspace_bytes <= 1 << 20
    assert comms[0].explain("all_reduce", 4).path == "cpu_twoshot"


def test_check_sync():
    """Every call is compared before it begins, and so is the memory of threads of one process."""
    shared = np.ones(4, np.float32)

    def body(comm):
        with pytest.raises(tpcomm.InvalidArgument, match="rank 0's (in|out) .* and rank 1's (in|out) .* overlap"):
            comm.all_reduce(shared)
        comm.all_reduce(np.ones(4, np.float32))
        with pytest.raises(tpcomm.Mismatch, match="rank 0 called all_reduce seq 3 count 4 f32 sum by .* rank 1 called all_reduce seq 3 "
                                                  "count 5 f32 sum"):
            comm.all_reduce(np.ones(4 + comm.rank, np.float32))
        comm.close()
    ranks.on_threads(2, body, check="sync")


def test_closed():
    comms = tpcomm.init_local(2)
    comms[0].close()
    comms[0].close()
    for use in (comms[0].barrier, comms[0].info, comms[0].stats, comms[0].async_error, comms[0].finalize, lambda: comms[0].group([0]),
                lambda: comms[0].mesh(tp=2), lambda: comms[0].ranks, lambda: comms[0].abort("x"), lambda: comms[0].host_barrier()):
        with pytest.raises(tpcomm.InvalidState, match="is closed"):
            use()
    assert "closed" in repr(comms[0])
    with pytest.raises(tpcomm.Aborted, match="rank 0 destroyed its communicator without finalizing"):
        comms[1].barrier()


def test_finalized():
    def body(comm):
        comm.finalize()
        with pytest.raises(tpcomm.InvalidState, match="is finalized"):
            comm.barrier()
        assert comm.info().size == 2
    ranks.on_threads(2, body)


def test_busy():
    """A second thread in one communicator is told at once."""
    comms = tpcomm.init_local(2)
    first = threading.Thread(target=lambda: pytest.raises(tpcomm.Aborted, comms[0].barrier))
    first.start()
    while comms[0].rank_info(0).seq == 0:
        pass
    with pytest.raises(tpcomm.Busy, match="another thread"):
        comms[0].barrier()
    assert comms[0].async_error() is None
    comms[1].abort("enough")
    first.join()
    failure = comms[0].async_error()
    assert failure.name == "TPCOMM_ERR_ABORTED" and "enough" in failure.text and failure.rank == 1


# ---- what the peers get. Each rank is a process of its own; a rank tells what it got in a line.

START = """
    import sys, numpy as np, tpcomm
    comm = tpcomm.init_env(op_timeout_ms=1500, init_timeout_ms=30000)
    def got(function, *arguments, **keywords):
        try:
            function(*arguments, **keywords)
            print("fine", flush=True)
        except (tpcomm.Error, ValueError, TypeError) as error:
            print(type(error).__name__, getattr(error, "name", ""), error, flush=True)
"""
STRIDED = START + """
    got(comm.all_reduce, np.arange(16).reshape(4, 4)[:, ::2])
"""


def test_strided_on_one_rank_does_not_hang_its_peer():
    """The rank that was refused does nothing more: its peer's wait ends by the limit of the operation."""
    wait = STRIDED + """
    sys.stdin.readline()
    """
    reduce = START + """
    got(comm.all_reduce, np.arange(8))
    """
    with ranks.Job(wait, reduce) as (refused, peer):
        code, output = peer.end()
        assert code == 0 and output.startswith("Timeout TPCOMM_ERR_TIMEOUT"), output
        assert "rank 0" in output
        refused.say()
        code, output = refused.end()
        assert code == 0 and output.startswith("ValueError  x is not contiguous: shape (4, 2), strides (32, 16)"), output


def test_strided_then_exit_ends_the_peers_wait():
    """The process of the refused rank ends: the peer learns it at once, long before a limit of 5 minutes."""
    leave = STRIDED.replace("op_timeout_ms=1500", "op_timeout_ms=300000")
    reduce = START.replace("op_timeout_ms=1500", "op_timeout_ms=300000") + """
    got(comm.all_reduce, np.arange(8))
    """
    with ranks.Job(leave, reduce) as (refused, peer):
        assert refused.end()[0] == 0
        code, output = peer.end()
        assert code == 0 and output.startswith(("Aborted", "PeerDied")) and "rank 0" in output, output


def test_exception_in_a_with_block_tells_the_peers_why():
    body = """
    import numpy as np, tpcomm
    with tpcomm.init_env() as comm:
        comm.all_reduce(np.arange(16).reshape(4, 4)[:, ::2] if comm.rank == 0 else np.arange(8))
    """
    with ranks.Job(body, body, body) as (refused, *peers):
        code, output = refused.end()
        assert code == 1 and "ValueError: x is not contiguous" in output.strip().split("\n")[-1]
        for peer in peers:
            code, output = peer.end()
            assert code == 1
            last = output.strip().split("\n")[-1]
            assert last.startswith("tpcomm.Aborted: TPCOMM_ERR_ABORTED") and "by rank 0: ValueError: x is not contiguous" in last, output


def test_mismatch():
    """Both sides name both calls, and so does every later call."""
    code = START.replace("op_timeout_ms=1500", "op_timeout_ms=60000") + """
    got(comm.all_reduce, np.zeros(8 + comm.rank, np.float32))
    got(comm.barrier)
    print(comm.async_error().name)
    """
    with ranks.Job(code, code) as job:
        for rank in job:
            code, output = rank.end()
            lines = output.strip().split("\n")
            assert code == 0 and len(lines) == 3, output
            for line in lines[:2]:
                assert line.startswith("Mismatch TPCOMM_ERR_MISMATCH") and "count 8" in line and "count 9" in line, output
            assert lines[2] == "TPCOMM_ERR_MISMATCH"


def test_killed_peer():
    wait = START + """
    print("up", flush=True)
    sys.stdin.readline()
    """
    reduce = START.replace("op_timeout_ms=1500", "op_timeout_ms=60000") + """
    got(comm.all_reduce, np.arange(8))
    """
    with ranks.Job(wait.replace("op_timeout_ms=1500", "op_timeout_ms=60000"), reduce) as (killed, peer):
        killed.wait_for("up")
        killed.process.kill()
        code, output = peer.end()
        assert code == 0 and output.startswith("PeerDied TPCOMM_ERR_PEER_DIED"), output


def test_new_world_after_a_failure():
    def body(comm):
        with pytest.raises(tpcomm.GroupError):
            comm.all_reduce(np.zeros(4 + comm.rank))
        comm.close()
    ranks.on_threads(2, body)
    ranks.on_threads(2, lambda comm: comm.barrier())
