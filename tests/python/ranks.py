# SPDX-License-Identifier: Apache-2.0
"""Starts ranks: as threads of this process, as processes of tpcomm-bench run, or one by one. As a program, it is one such process:
python ranks.py MODULE FUNCTION ... runs MODULE.FUNCTION(comm), each in a world of its own."""
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid

import pytest
import tpcomm

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 120  # seconds that nothing here comes near


def on_threads(n, function, **settings):
    """function(comm) on n ranks that are threads; their results in rank order. The first exception of a rank is raised."""
    comms = tpcomm.init_local(n, **settings)
    results, raised = [None] * n, []

    def run(comm):
        try:
            with comm:
                results[comm.rank] = function(comm)
        except BaseException as error:  # pylint: disable=broad-except
            raised.append(error)

    threads = [threading.Thread(target=run, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    if raised:
        raise raised[0]
    assert not any(thread.is_alive() for thread in threads), "a rank did not come to its end"
    return results


def on_processes(n, *functions):
    """Each function(comm) on n ranks that are processes, one after the other; they are of one module in this folder."""
    run(n, os.path.join(HERE, "ranks.py"), functions[0].__module__, *(function.__name__ for function in functions))


def tests_of(functions, sizes):
    """Two tests: each function(comm) on so many ranks that are threads; all of them on so many that are processes."""

    @pytest.mark.parametrize("n", sizes)
    @pytest.mark.parametrize("function", functions, ids=lambda function: function.__name__)
    def threads(n, function):
        on_threads(n, function)

    @pytest.mark.parametrize("n", sizes)
    def processes(n):
        on_processes(n, *functions)

    return threads, processes


def run(n, *arguments, environment=None):
    """python3 with these arguments as n ranks, all of which have to end well; their output, "[rank] " in front of each line."""
    command = [os.environ["TPCOMM_TEST_BENCH"], "run", "-n", str(n), "--timeout-s", str(LIMIT), "--", sys.executable, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT + 10,
                          env={**os.environ, **(environment or {})})
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    return done.stdout


class Process:
    """A Python program as one rank of a job, or as no rank at all."""

    def __init__(self, code, rank=None, size=None, job="", **variables):
        environment = {**os.environ, **variables}
        if rank is not None:
            environment.update(TPCOMM_RANK=str(rank), TPCOMM_SIZE=str(size), TPCOMM_JOB_ID=job)
        # A test run in the background has SIGINT ignored, and children would keep that.
        self.process = subprocess.Popen([sys.executable, "-u", "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=environment,
                                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.output = ""

    def wait_for(self, line):
        """Read up to a line."""
        for got in self.process.stdout:
            self.output += got
            if got.strip() == line:
                return
        raise AssertionError(f"no line {line!r} in\n{self.output}")

    def wait_until_asleep(self):
        """Until the main thread has slept for a while, as only a wait does: whoever computes, or is kept from its processor, does not."""
        looks, limit = 0, time.monotonic() + LIMIT
        while looks < 15:
            with open(f"/proc/{self.process.pid}/stat", encoding="ascii", errors="replace") as file:
                asleep = file.read().rpartition(")")[2].split()[0] == "S"
            looks = looks + 1 if asleep else 0
            assert self.process.poll() is None and time.monotonic() < limit, "it does not wait"
            time.sleep(0.02)

    def say(self, line="go"):
        """Give the program a line to read."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self):
        """Exit code, all output."""
        try:
            self.output += self.process.communicate(timeout=LIMIT)[0]
        finally:
            self.process.kill()
        return self.process.returncode, self.output


class Job:
    """Processes that are the ranks of one world; each has its own program. Killed at the end."""

    def __init__(self, *codes, **variables):
        job = uuid.uuid4().hex
        self.ranks = [Process(code, rank, len(codes), job, **variables) for rank, code in enumerate(codes)]

    def __enter__(self):
        return self.ranks

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.process.kill()
            rank.process.communicate()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        print(name, flush=True)  # what a failure is of
        with tpcomm.init_env(init_timeout_ms=30000, op_timeout_ms=30000) as world:
            getattr(importlib.import_module(sys.argv[1]), name)(world)
