# SPDX-License-Identifier: Apache-2.0
"""Run one file of these tests under the first Python that has what it needs: the one that TPCOMM_TEST_PYTHON names, BUILD/venv, this one,
/usr/bin/python3 (scripts/setup-common.sh looks at the same).

usage: run.py --source DIR --build DIR --lib FILE --bench FILE --cc FILE [--torch] TEST.py
exit 0 passed, 1 failed or no such Python, 77 (only with --torch) no Python with torch
"""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def has(python, modules):
    """Whether a Python is new enough and imports these modules, in this order: pip before setuptools breaks the latter."""
    code = f"import sys, {', '.join(modules)}; sys.exit(sys.version_info < (3, 9))"
    try:
        return subprocess.run([python, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("source", "build", "lib", "bench", "cc"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("test")
    args = parser.parse_args()

    wanted = ["setuptools", "ensurepip", "numpy", "pip", "pytest", "venv", "wheel"] + (["torch"] if args.torch else [])
    pythons = [os.environ.get("TPCOMM_TEST_PYTHON"), os.path.join(args.build, "venv", "bin", "python3"), sys.executable, "/usr/bin/python3"]
    python = next((python for python in pythons if python and has(python, wanted)), None)
    if python is None:
        looked = ", ".join(python for python in pythons if python)
        if args.torch:
            print(f"SKIP: torch and pytest are not installed for any of {looked} (TPCOMM_TEST_PYTHON names another Python)")
            return 77
        print(f"none of {looked} has {', '.join(wanted)}: scripts/test.sh installs them; by hand:\n"
              f"  python3 -m venv {args.build}/venv && {args.build}/venv/bin/pip install -r {HERE}/requirements.txt")
        return 1

    environment = {**os.environ, "TPCOMM_LIBRARY": args.lib, "PYTHONPATH": os.path.join(args.source, "python"),
                   "PYTHONDONTWRITEBYTECODE": "1", "TPCOMM_TEST_BENCH": args.bench, "TPCOMM_TEST_CC": args.cc}
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "--rootdir", HERE, os.path.join(HERE, args.test)]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
