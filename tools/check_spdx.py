#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that every file says its licence: an SPDX line first, or second below a #! line.

usage: check_spdx.py [--root DIR]     exit 0 clean, 1 with a line for each file that does not
"""
import argparse
import os
import subprocess
import sys

LINE = "SPDX-License-Identifier: Apache-2.0"
# Formats without comments, the licence itself, and inputs that tests read byte by byte.
EXEMPT_SUFFIXES = (".json", ".csv", ".png", ".svg", ".bin")
EXEMPT_NAMES = {"LICENSE", "py.typed"}
EXEMPT_FOLDERS = ("tests/data/", "tests/fuzz/seeds/")


def git(root, *arguments):
    """What git prints, or None without git or outside a repository."""
    try:
        done = subprocess.run(["git", "-C", root, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def project_files(root):
    """Files of the working tree that git tracks or would; without git, all but build directories and hidden folders."""
    top = git(root, "rev-parse", "--show-toplevel")
    if top and os.path.realpath(top.strip()) == os.path.realpath(root):
        listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        return sorted(name for name in listed.split("\0") if name and os.path.isfile(os.path.join(root, name)))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in (".git", "__pycache__", "out", ".deb") and
                      not (folder == root and f.startswith("build"))]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names if not name.endswith(".pyc")]
    return sorted(found)


def says_licence(path):
    with open(path, "rb") as file:
        head = [file.readline(400).decode("utf-8", "replace") for _ in range(2)]
    return LINE in head[0] or (head[0].startswith("#!") and LINE in head[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    root = parser.parse_args().root
    files = [name for name in project_files(root)
             if not name.endswith(EXEMPT_SUFFIXES) and os.path.basename(name) not in EXEMPT_NAMES and
             not name.startswith(EXEMPT_FOLDERS)]
    without = [name for name in files if not says_licence(os.path.join(root, name))]
    for name in without:
        print(f"{name}:1: no line \"{LINE}\" at the top")
    if not without:
        print(f"spdx: {len(files)} files say their licence")
    return 1 if without or not files else 0


if __name__ == "__main__":
    sys.exit(main())
