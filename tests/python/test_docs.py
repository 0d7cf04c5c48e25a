# SPDX-License-Identifier: Apache-2.0
"""Check that every Python program in docs/python.md and README, and every Python example, runs on two ranks and prints what is said there."""
import os
import re
import subprocess
import sys

import pytest

import tpcomm

import ranks

ROOT = os.path.dirname(os.path.dirname(ranks.HERE))


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def programs():
    """(where, program, the lines that it prints; None where nothing is said) of every block of Python."""
    for page in ("docs/python.md", "README.md"):
        # What a program prints stands in the next block, if that is a text.
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)
        for (language, text), following in zip(blocks, blocks[1:] + [("", "")]):
            if language == "python":
                yield page, text, following[1] if following[0] == "text" else None


PROGRAMS = list(programs())


def test_there_are_some():
    assert len(PROGRAMS) >= 5


@pytest.mark.parametrize("page, text, said", PROGRAMS, ids=[f"{page}-{number}" for number, (page, _, _) in enumerate(PROGRAMS)])
def test_program(page, text, said):
    if "init_env" in text:
        printed = re.sub(r"^\[\d+\] ", "", ranks.run(2, "-c", text), flags=re.MULTILINE)
    else:
        printed = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, check=True).stdout
    if said is not None:
        assert sorted(printed.split("\n")) == sorted(said.split("\n")), page


def test_hello():
    output = ranks.run(4, os.path.join(ROOT, "examples", "hello.py"))
    assert sorted(output.strip().split("\n")) == [f"[{rank}] rank {rank} of 4: the sum is 10" for rank in range(4)]


def test_every_public_name_is_told():
    page = read("docs", "python.md")
    untold = {name for name in tpcomm.__all__ if not re.search(rf"\b{name}\b", page)}
    # Returned, never made by a caller; their docstrings tell.
    assert untold <= {"Comm", "Mesh", "Decision", "Failure", "Info", "RankInfo", "Stats", "MAX_RANKS"}


def test_every_public_thing_has_a_docstring():
    for name in tpcomm.__all__:
        thing = getattr(tpcomm, name)
        if callable(thing):
            assert thing.__doc__, name
    for kind in (tpcomm.Comm, tpcomm.Mesh):
        for name, member in vars(kind).items():
            if not name.startswith("_") and callable(member):
                assert member.__doc__, f"{kind.__name__}.{name}"
