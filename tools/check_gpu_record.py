#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Warn where device code has changed since the last run on a GPU that bench/results keeps (scripts/gpu_check.sh).

usage: check_gpu_record.py [--root DIR]
Always exits 0, with one line: CI has no GPU, so this cannot be a fault there.
"""
import argparse
import glob
import json
import os
import subprocess
import sys

CODE = ("src/custom_ar/*.cu*", "src/fused/*.cu*")


def git(root, *arguments):
    """What git prints; None where it fails."""
    try:
        done = subprocess.run(["git", "-C", root, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def records(root):
    """(commit, file) of every kept run in which something passed."""
    for place in sorted(glob.glob(os.path.join(root, "bench", "results", "*.json"))):
        try:
            with open(place, encoding="utf-8") as file:
                run = json.load(file)
        except (OSError, ValueError):
            continue
        if isinstance(run, dict) and run.get("schema") == "tpcomm-testrun/1" and run.get("passed"):
            yield str(run.get("commit", "")), os.path.relpath(place, root)


def verdict(root):
    if git(root, "rev-parse", "HEAD") is None:
        return "no git history here: cannot tell whether device code was run on a GPU since it changed"
    newest = None  # (commits since, changes of device code since, file)
    for commit, place in records(root):
        since = git(root, "rev-list", "--count", f"{commit}..HEAD") if commit else None
        if since is None or git(root, "merge-base", "--is-ancestor", commit, "HEAD") is None:
            continue
        changes = git(root, "log", "--format=%h %s", f"{commit}..HEAD", "--", *CODE) or ""
        if newest is None or int(since) < newest[0]:
            newest = int(since), changes.splitlines(), place
    if newest is None:
        return "WARNING: no run on a GPU of a commit of this history is kept in bench/results (scripts/gpu_check.sh makes one)"
    _, changes, place = newest
    if not changes:
        return f"device code is as it was run on a GPU ({place})"
    return (f"WARNING: device code has changed in {len(changes)} commit(s) since the last run on a GPU ({place}), the latest: {changes[0]}; "
            "run scripts/gpu_check.sh")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    print(f"check_gpu_record: {verdict(parser.parse_args().root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
