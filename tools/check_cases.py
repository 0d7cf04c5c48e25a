#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check tests/cases.txt: every fault case from the field is shown by a test that exists, or owed by a named area of work.

usage: check_cases.py [--build DIR] [--cases FILE] [--ctest-names FILE] [--strict]
  --build        a configured build directory, to ask ctest for the names of the tests (default: build)
  --ctest-names  names from a file instead, one a line
  --strict       "owed: this release" is an error too
exit 0 clean, 1 with a line "file:line: why" for each fault
"""
import argparse
import json
import os
import re
import subprocess
import sys

# Every case, by kind: wrong result, hang, crash, init, graph capture, speed, leak, ABI, input, usability, sentinel values.
CASES = {
    "W": "1 2 4 6 7 8 10 12 13 14 16 17",
    "H": "1 3 4 5 7 8 9 10 11 14 16 17 19 21 22 23",
    "C": "1 4 5 6 7 8",
    "I": "1 3 5 6 7 10 11 13",
    "G": "1 2 3 4 7 9",
    "P": "1 3 4 6",
    "M": "1 4",
    "A": "1 2 3 6",
    "J": "2 3 5 6 8",
    "U": "1 2 4 6 7",
    "S": "1",
}
AREAS = {"this release", "groups", "python", "gpu", "kernels", "nccl", "graph", "fused", "failure", "ib"}
LINE = re.compile(r"^([A-Z][0-9]+)\s*\|\s*(F[0-9]+(?:,F[0-9]+)*)\s*\|\s*([^|]+?)\s*\|\s*(\S.*)$")
WHERE = re.compile(r"^(?:test:\s*([^;:]+))?(?:(?:^|;\s*)owed:\s*([^;:]+))?$")


def ctest_names(build):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, text=True, check=True)
    return {test["name"] for test in json.loads(shown.stdout)["tests"]} | gpu_tests()


def gpu_tests():
    """Those of tests/gpu, and the one of machine code, which only a build with CUDA has."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "gpu")
    return {name[5:-2] for name in os.listdir(folder) if re.fullmatch(r"test_gpu_\w+\.c", name)} | {"kernels_code"}


def read(path):
    """(line number, case, tests, areas) of each line of the file; case None where the line has not the form."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = LINE.match(line)
            where = match and WHERE.match(match.group(3))
            if not where:
                yield number, None, [], []
            else:
                yield number, match.group(1), *([v.strip() for v in (values or "").split(",") if v.strip()] for values in where.groups())


def faults(path, names, strict):
    """Yields (line number, why)."""
    wanted = {kind + number for kind, numbers in CASES.items() for number in numbers.split()}
    first_line = {}
    number = 0
    for number, case, tests, areas in read(path):
        if case is None or not tests + areas:
            yield number, "not of the form ID | FAMILY,... | test: NAME, ... ; owed: AREA, ... | words"
            continue
        if case not in wanted:
            yield number, f"{case} is no case (tools/check_cases.py lists them)"
        if case in first_line:
            yield number, f"{case} stands in line {first_line[case]} already"
        first_line.setdefault(case, number)
        for test in tests:
            if test not in names:
                yield number, f"{case}: there is no test {test}"
        for area in areas:
            if area not in AREAS:
                yield number, f"{case}: owed by {area}, which is none of {', '.join(sorted(AREAS))}"
            if area == "this release" and strict:
                yield number, f"{case} is owed by this release"
    for case in sorted(wanted - first_line.keys(), key=lambda c: (c[0], int(c[1:]))):
        yield number, f"{case} is missing"


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(root, "build"))
    parser.add_argument("--cases", default=os.path.join(root, "tests", "cases.txt"))
    parser.add_argument("--ctest-names")
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    if args.ctest_names:
        with open(args.ctest_names, encoding="utf-8") as file:
            names = set(file.read().split())
    else:
        names = ctest_names(args.build)
    found = [f"{args.cases}:{number}: {why}" for number, why in faults(args.cases, names, args.strict)]
    if found:
        print("\n".join(found))
        return 1
    rows = list(read(args.cases))
    shown = sum(bool(tests) for _, _, tests, _ in rows)
    pending = sum("this release" in areas for _, _, _, areas in rows)
    print(f"cases: {len(rows)}, shown by tests {shown}, owed {sum(bool(areas) for _, _, _, areas in rows)} (by this release {pending})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
