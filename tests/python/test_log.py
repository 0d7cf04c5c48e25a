# SPDX-License-Identifier: Apache-2.0
"""Check that log lines reach a Python function from any thread, and never after another took its place or the interpreter began to end."""
import gc

import pytest

import tpcomm

import ranks


@pytest.fixture(name="lines")
def capture_lines():
    """The log at its most detailed; stderr again afterwards."""
    lines = []
    tpcomm.set_log(lambda *line: lines.append(line), "debug")
    yield lines
    tpcomm.set_log(None)


def test_lines(lines):
    gc.collect()
    ranks.on_threads(2, lambda comm: comm.barrier())
    assert [(level, subsystem) for level, subsystem, line in lines if "rank 1 of 2 is up" in line] == [("info", "init")]
    assert all(isinstance(part, str) for line in lines for part in line)
    assert {level for level, _, _ in lines} <= {"error", "warn", "info", "debug"}


def test_level(lines):
    tpcomm.set_log(lambda *line: lines.append(line), "warn")
    ranks.on_threads(2, lambda comm: comm.barrier())
    assert not [line for line in lines if line[0] in ("info", "debug")]


def test_another_takes_its_place(lines):
    later = []
    tpcomm.set_log(lambda *line: later.append(line), "debug")
    before = list(lines)
    ranks.on_threads(2, lambda comm: comm.barrier())
    assert lines == before and later


def test_wrong_level():
    for level in ("verbose", "", "WARN"):
        with pytest.raises(ValueError, match="allowed are none, error, warn, info, debug"):
            tpcomm.set_log(print, level)


def test_not_from_inside(lines):
    told = []

    def again(*_):
        try:
            tpcomm.set_log(None)
        except tpcomm.InvalidState as error:
            told.append(error)

    tpcomm.set_log(again, "debug")
    ranks.on_threads(2, lambda comm: comm.barrier())
    assert told


CODE = """
    import sys, tpcomm
    tpcomm.set_log(lambda *line: {}, "debug")
    comms = tpcomm.init_local(2)
    tpcomm.set_log
"""


def test_end_of_the_interpreter():
    """The watchdog still writes lines while everything is taken down."""
    exit_code, output = ranks.Process(CODE.format("sys.stdout.write(line[2] + chr(10))")).end()
    assert exit_code == 0 and "rank 0 of 2 is up" in output and "Traceback" not in output, output


def test_function_that_raises():
    """Python reports it; the library goes on."""
    exit_code, output = ranks.Process(CODE.format("1 / 0") + "    print('up', len(comms))\n").end()
    assert exit_code == 0 and "ZeroDivisionError" in output and "up 2" in output, output
