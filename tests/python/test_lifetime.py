# SPDX-License-Identifier: Apache-2.0
"""Check that a communicator ends by local work alone, in whatever order and at whatever time: closed twice, collected, left to the end of
the interpreter with its peer gone, with a thread inside, in a forked child; and that Ctrl-C ends every wait."""
import os
import signal
import subprocess
import sys
import threading
import time
import gc
import uuid
import weakref

import pytest

import tpcomm

import ranks

#: Seconds. Each end here takes far less than 2 on a quiet machine; without the local work it would take the 5 minutes of op_timeout_ms.
SOON = 60

UP = """
    import atexit, gc, os, signal, sys, threading, time
    import tpcomm
    comm = tpcomm.init_env(init_timeout_ms=30000)
"""
READY = """
    print("up", flush=True)
    sys.stdin.readline()
"""


def ends(process, code=0):
    """Let a process end; check its exit code, and that it takes no time and prints no complaint."""
    begun = time.monotonic()
    exit_code, output = process.end()
    took = time.monotonic() - begun
    assert exit_code == code, output
    assert took < SOON, f"took {took:.1f} s\n{output}"
    if code == 0:
        assert "Exception" not in output and "Error" not in output and "Traceback" not in output, output
    return output


# ---- the end of the interpreter with the peer gone

HOLDERS = {
    "a variable": "kept = comm",
    "a cycle": "class Holder: pass\n    a = Holder(); a.me = a; a.comm = comm; del a, comm",
    "a default of a function": "def f(c=comm): pass\n    del comm",
    "a module": "sys.modules['os'].kept = comm; del comm",
    "a group and a mesh": "group = comm.split(0); mesh = comm.mesh(tp=2); tp = mesh.tp; del comm, mesh",
    "fifty groups": "groups = [comm.split(0) for _ in range(50)]",
    "an atexit function": "atexit.register(comm.close); atexit.register(lambda: comm.close())",
    "an atexit function that makes a call":
        "atexit.register(lambda: print('told', type(comm.async_error()).__name__))",
}


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda text: text.replace(" ", "-"))
@pytest.mark.parametrize("way", ["killed", "left"])
def test_end_with_the_peer_gone(holder, way):
    code = UP + "    " + HOLDERS[holder] + READY
    with ranks.Job(code, code) as (mine, peer):
        mine.wait_for("up")
        peer.wait_for("up")
        if way == "killed":
            peer.process.kill()
        else:
            peer.say()
        peer.end()
        mine.say()
        ends(mine)


def test_end_with_a_thread_inside():
    """A daemon thread waits in a collective when the interpreter ends."""
    code = UP + """
    def wait():
        try:
            comm.barrier()
        except tpcomm.Aborted:
            pass
    threading.Thread(target=wait, daemon=True).start()
    while comm.rank_info(comm.rank).seq == 0:
        time.sleep(0.001)
    """
    with ranks.Job(code, UP + READY) as (mine, peer):
        ends(mine)
        peer.say()
        ends(peer)


def test_atexit_after_ours():
    """An exit function registered before tpcomm was imported runs when all communicators are closed already."""
    code = """
    import atexit
    kept = []
    @atexit.register
    def last():
        for thing in kept:
            thing.close()
            try:
                thing.barrier()
            except tpcomm.InvalidState as error:
                print(error.text)
    import tpcomm
    kept += tpcomm.init_local(2)
    """
    assert ends(ranks.Process(code)) == "the communicator is closed\n" * 2


# ---- any order


def test_wrong_order_and_twice():
    def body(world):
        mesh = world.mesh(tp=2)
        tp, group = mesh.tp, world.group([0, 1])
        below = group.split(0)
        for thing in (world, mesh, group, below, mesh, world):
            thing.close()
            thing.close()
        with pytest.raises(tpcomm.InvalidState):
            tp.barrier()
    ranks.on_threads(2, body)


def test_collected():
    """Without close, the garbage collector does it; the peer is told."""
    mine, peer = tpcomm.init_local(2)
    gone = weakref.ref(mine._handle)
    del mine
    gc.collect()
    assert gone() is None
    with pytest.raises(tpcomm.Aborted, match="rank 0 destroyed its communicator without finalizing"):
        peer.barrier()


def test_a_group_of_a_mesh_keeps_the_mesh():
    def body(world):
        mesh = world.mesh(tp=2)
        tp, gone = mesh.tp, weakref.ref(mesh._handle)
        del mesh
        gc.collect()
        assert gone() is not None
        tp.barrier()
        tp.finalize()
        del tp
        gc.collect()
        assert gone() is None
    ranks.on_threads(2, body)


def test_close_wakes_a_thread_inside():
    mine, peer = tpcomm.init_local(2)
    woken = []

    def wait():
        try:
            mine.barrier()
        except tpcomm.Error as error:
            woken.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while mine.rank_info(0).seq == 0:
        time.sleep(0.001)
    mine.close()
    thread.join(ranks.LIMIT)
    assert isinstance(woken[0], tpcomm.Aborted) and "closed by another thread" in woken[0].text
    peer.close()


def test_closed_by_many_threads():
    for _ in range(50):
        comms = tpcomm.init_local(2)
        raised = []

        def close():
            try:
                comms[0].close()
            except BaseException as error:  # pylint: disable=broad-except
                raised.append(error)

        threads = [threading.Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not raised
        comms[1].close()


def test_close_while_another_thread_calls():
    """Whatever the moment, the other thread gets an exception and nothing else happens."""
    for delay in range(20):
        mine, peer = tpcomm.init_local(2)

        def use():
            with pytest.raises(tpcomm.Error):
                while True:
                    mine.info()
                    mine.stats()

        thread = threading.Thread(target=use)
        thread.start()
        time.sleep(delay / 10000)
        mine.close()
        thread.join(ranks.LIMIT)
        assert not thread.is_alive()
        peer.close()


def test_close_inside_a_batch():
    """The batch still has a call on it: refused, and nothing else happens."""
    comm = tpcomm.init_local(1)[0]
    x = bytearray(b"data")
    with tpcomm.batch():
        comm.all_reduce(x, out := bytearray(4))
        with pytest.raises(tpcomm.Busy, match="batch"):
            comm.close()
    assert out == x
    comm.close()


# ---- fork


def test_fork():
    code = UP + """
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                comm.barrier()
            except tpcomm.InvalidState as error:
                comm.close()
                own = tpcomm.init_local(1)[0]
                own.barrier()
                sys.exit(7 if "fork" in error.text else 8)
        pid, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
    comm.barrier()
    child = os.fork()
    if child == 0:
        sys.exit(6)  # with everything left to the end
    pid, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 6, status
    comm.barrier()
    comm.finalize()
    """
    with ranks.Job(code, code) as job:
        for rank in job:
            ends(rank)


# ---- Ctrl-C

ALONE = """
    import signal, sys, threading, time
    import tpcomm
    print("up", flush=True)
"""
WAITS = {
    "init_env": "tpcomm.init_env()",
    "init_rank": "tpcomm.init_rank(tpcomm.unique_id(), 0, 2)",
    "init_from_store": """
    class Store(dict):
        set, check = dict.__setitem__, lambda self, keys: all(key in self for key in keys)
    tpcomm.init_from_store(Store(), 0, 2)
    """,
    "init_exchange": "tpcomm.init_exchange(0, 2, lambda mine, timeout_ms: time.sleep(1000))",
    "all_reduce": "comms = tpcomm.init_local(2); comms[0].all_reduce(bytearray(4))",
    "host_barrier": "comms = tpcomm.init_local(2); comms[0].host_barrier()",
    "group": "comms = tpcomm.init_local(2); comms[0].group([0, 1])",
    "finalize": "comms = tpcomm.init_local(2); comms[0].finalize()",
    "with": """
    comms = tpcomm.init_local(2)
    with comms[0] as comm:
        comm.barrier()
    """,
    "batch": """
    comms = tpcomm.init_local(2)
    with tpcomm.batch():
        comms[0].barrier()
    """,
}


def interrupted(code, number=signal.SIGINT, **keywords):
    """A process that waits in code and gets a signal."""
    process = ranks.Process(ALONE + "    " + code.strip() + "\n", **keywords)
    process.wait_for("up")
    process.wait_until_asleep()  # earlier would be Python's own business
    process.process.send_signal(number)
    return process


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c(wait):
    """Python ends by the signal itself, which a shell shows as 130."""
    rank = {"rank": 0, "size": 2, "job": uuid.uuid4().hex} if wait == "init_env" else {}
    output = ends(interrupted(WAITS[wait], **rank), -signal.SIGINT)
    assert output.strip().split("\n")[-1] == "KeyboardInterrupt", output


def test_ctrl_c_under_the_launcher():
    """One rank waits in init for the other; the launcher passes the signal on, and says 130."""
    command = [os.environ["TPCOMM_TEST_BENCH"], "run", "-n", "2", "--", sys.executable, "-uc",
               "import os, sys, time, tpcomm\nif os.environ['TPCOMM_RANK'] == '1': time.sleep(1000)\nprint('up')\ntpcomm.init_env()"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert process.stdout.readline() == "[0] up\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=ranks.LIMIT)[0]
    assert process.returncode == 130 and "KeyboardInterrupt" in output, output


def test_what_a_handler_raises_comes_out():
    code = """
    def stop(number, frame):
        raise SystemExit(3)
    signal.signal(signal.SIGTERM, stop)
    """ + WAITS["init_rank"]
    ends(interrupted(code, signal.SIGTERM), 3)


def test_a_handler_that_raises_nothing_lets_the_wait_go_on():
    code = """
    signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
    name = tpcomm.unique_id()
    def come():
        sys.stdin.readline()
        tpcomm.init_rank(name, 1, 2)
    threading.Thread(target=come).start()
    tpcomm.init_rank(name, 0, 2)
    print("met")
    """
    process = interrupted(code, signal.SIGUSR1)
    process.wait_for("handled")
    process.say()
    assert ends(process) == "up\nhandled\nmet\n"


def test_a_handler_may_abort():
    code = """
    comms = tpcomm.init_local(2)
    signal.signal(signal.SIGUSR1, lambda *_: comms[0].abort("told to stop"))
    try:
        comms[0].barrier()
    except tpcomm.Aborted as error:
        print(error.text)
    """
    assert "told to stop" in ends(interrupted(code, signal.SIGUSR1))


def test_the_process_goes_on_after_ctrl_c():
    code = """
    for _ in range(2):
        try:
            tpcomm.init_rank(tpcomm.unique_id(), 0, 2)
        except KeyboardInterrupt:
            print("caught", flush=True)
        comms = tpcomm.init_local(2)
        try:
            comms[0].barrier()
        except KeyboardInterrupt:
            print("caught", flush=True)
            assert comms[1].async_error().name == "TPCOMM_ERR_INTERRUPTED", comms[1].async_error()
    comms = tpcomm.init_local(1)
    comms[0].barrier()
    print("fine")
    """
    process = interrupted(code)
    for _ in range(3):
        process.wait_for("caught")
        process.wait_until_asleep()
        process.process.send_signal(signal.SIGINT)
    assert ends(process).endswith("caught\nfine\n")


def test_ctrl_c_while_another_thread_waits():
    """The main thread gets it; the thread's wait goes on until its communicator is closed."""
    code = """
    comms = tpcomm.init_local(2)
    done = threading.Event()
    def wait():
        try:
            comms[0].barrier()
        except tpcomm.Aborted:
            print("aborted")
        done.set()
    threading.Thread(target=wait).start()
    try:
        done.wait()
    except KeyboardInterrupt:
        print("caught")
        comms[1].abort()
        done.wait()
    """
    assert ends(interrupted(code)) == "up\ncaught\naborted\n"
