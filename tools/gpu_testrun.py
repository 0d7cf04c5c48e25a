#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the tests of one label one by one and keep what came of them as tpcomm-testrun/1 (docs/schema/testrun.json).

usage: gpu_testrun.py BUILD RESULTS [--label gpu] [--seconds 200] [--most 60] [--commit HASH] [--also NAME=COMMAND ...]

Each test has a ctest of its own and ends at its own limit, --most seconds, or the run's end, whichever comes first: one that hangs takes
no other's time but its own. Tests that the time does not reach are skipped, with that reason. --also adds a command, run in
the shell in the build folder, that passes by exit 0 and skips by 77 with a line "SKIP: reason".
RESULTS/DATE-gpu-check.json is the record; RESULTS/tests.txt what all tests have written, RESULTS/NAME.txt one that failed.
exit 0 nothing failed, 1 something did, 2 nothing could be run
"""
import argparse
import ctypes
import ctypes.util
import datetime
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time


def output_of(command, cwd=None):
    """What a command prints; None where it is not there or fails."""
    try:
        done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def gpus():
    """Names and bus ids of the GPUs and the driver's version, by nvidia-smi."""
    lines = output_of(["nvidia-smi", "--query-gpu=name,pci.bus_id,driver_version", "--format=csv,noheader"])
    rows = [[field.strip() for field in line.split(",")] for line in (lines or "").splitlines()]
    rows = [row for row in rows if len(row) == 3]
    return [{"name": name, "bus_id": bus_id} for name, bus_id, _ in rows], rows[0][2] if rows else None


def cuda_version(build):
    try:
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
            found = re.search(r"^TPCOMM_NVCC_VERSION:\w+=([0-9.]+)", file.read(), re.M)
    except OSError:
        found = None
    return found.group(1) if found else None


def nccl_version():
    """Of the NCCL that programs on this machine would find: the system's, or the one of an installed torch."""
    places = ["libnccl.so.2"]
    for folder in sys.path:
        places += sorted(glob.glob(os.path.join(folder, "nvidia", "nccl", "lib", "libnccl.so.2")))
    for place in places:
        try:
            number = ctypes.c_int()
            if ctypes.CDLL(place).ncclGetVersion(ctypes.byref(number)) == 0:
                v = number.value
                return f"{v // 10000}.{v // 100 % 100}.{v % 100}" if v >= 10000 else f"{v // 1000}.{v // 100 % 10}.{v % 100}"
        except (OSError, AttributeError):
            continue
    return None


def tests_of(build, label):
    """[(name, limit in seconds)] in ctest's order."""
    text = output_of(["ctest", "--show-only=json-v1", "-L", f"^{label}$"], cwd=build)
    tests = []
    for test in json.loads(text or "{}").get("tests", []):
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        tests.append((test["name"], float(properties.get("TIMEOUT", 60))))
    return tests


def run(command, cwd, seconds, shell=False):
    """(exit status or None where it ran out of time, output); everything it started is ended with it."""
    process = subprocess.Popen(command, cwd=cwd, shell=shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", start_new_session=True, executable="/bin/bash" if shell else None)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        output, _ = process.communicate()
        return None, output


class Record:
    def __init__(self, results):
        self.results = results
        self.passed, self.failed, self.skipped, self.durations = [], [], [], {}

    def add(self, name, verdict, text, seconds, output=""):
        print(f"{verdict:8} {seconds:6.1f} s  {name}{': ' + text if text else ''}", flush=True)
        self.durations[name] = round(seconds, 2)
        with open(os.path.join(self.results, "tests.txt"), "a", encoding="utf-8") as file:
            file.write(f"=== {name}: {verdict}, {seconds:.1f} s\n{output[-100000:]}\n")
        if verdict == "passed":
            self.passed.append(name)
        elif verdict == "skipped":
            self.skipped.append({"name": name, "reason": text})
        else:
            self.failed.append({"name": name, "text": text})
            with open(os.path.join(self.results, re.sub(r"[^\w.-]+", "-", name) + ".txt"), "w", encoding="utf-8") as file:
                file.write(output[-200000:])
            print("\n".join("    " + line for line in output.strip().splitlines()[-25:]), flush=True)


# A test's own lines in what `ctest -V` shows.
OWN_LINE = r"^\d+: (?!Test command: |Working Directory: |Test timeout computed|Environment variables: | )(.*)"


def skip_reason(output):
    found = re.search(r"^(?:\d+: )?SKIP: (.*)", output, re.M)
    return found.group(1).strip() if found else "no reason was given"


def last_words(output):
    """The line that says most: of a check that failed, else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if re.search(r"\.(c|cc|cu|py):\d+: ", line):
            return line[:500]
    return lines[-1][:500] if lines else "it said nothing"


def run_test(record, build, name, seconds):
    begun = time.monotonic()
    status, output = run(["ctest", "-V", "-R", f"^{re.escape(name)}$", "--timeout", str(max(1, int(seconds)))], build, seconds + 5)
    took = time.monotonic() - begun
    if re.search(r"\*\*\*Skipped", output):
        record.add(name, "skipped", skip_reason(output), took, output)
    elif status == 0 and re.search(r" Passed ", output):
        record.add(name, "passed", "", took, output)
    elif status is None or re.search(r"\*\*\*Timeout", output):
        record.add(name, "failed", f"it did not end within {took:.0f} s", took, output)
    else:
        record.add(name, "failed", last_words("\n".join(re.findall(OWN_LINE, output, re.M)) or output), took, output)


def run_also(record, build, name, command, seconds):
    begun = time.monotonic()
    status, output = run(command, build, seconds, shell=True)
    took = time.monotonic() - begun
    if status == 77:
        record.add(name, "skipped", skip_reason(output), took, output)
    elif status == 0:
        record.add(name, "passed", "", took, output)
    elif status is None:
        record.add(name, "failed", f"it did not end within {took:.0f} s", took, output)
    else:
        record.add(name, "failed", last_words(output), took, output)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("results")
    parser.add_argument("--label", default="gpu")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--most", type=float, default=60)
    parser.add_argument("--commit", default="")
    parser.add_argument("--also", action="append", default=[])
    arguments = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.makedirs(arguments.results, exist_ok=True)
    if shutil.which("ctest") is None:
        print("gpu_testrun: ctest is not here", file=sys.stderr)
        return 2
    tests = tests_of(arguments.build, arguments.label)
    if not tests:
        print(f"gpu_testrun: {arguments.build} has no test labelled {arguments.label}", file=sys.stderr)
        return 2

    end = time.monotonic() + arguments.seconds
    record = Record(arguments.results)
    jobs = [(limit, name, None) for name, limit in tests]
    jobs += [(arguments.most, *also.split("=", 1)) for also in arguments.also]
    for limit, name, command in jobs:
        left = end - time.monotonic()
        if left < 2:
            record.add(name, "skipped", f"the run's {arguments.seconds:.0f} s were over", 0)
        elif command is None:
            run_test(record, arguments.build, name, min(limit, arguments.most, left))
        else:
            run_also(record, arguments.build, name, command, min(arguments.most, left))

    cards, driver = gpus()
    head = output_of(["git", "rev-parse", "HEAD"], cwd=root)
    now = datetime.datetime.now(datetime.timezone.utc)
    several = "one rank a GPU, and several that share one" if len(cards) > 1 else "several that share the one GPU"
    testrun = {"schema": "tpcomm-testrun/1", "commit": arguments.commit or head or "unknown",
               "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "gpus": cards, "driver": driver, "cuda": cuda_version(arguments.build),
               "nccl": nccl_version(), "ranks": several if cards else "none: no GPU was found", "passed": record.passed,
               "failed": record.failed, "skipped": record.skipped, "durations": record.durations}
    place = os.path.join(arguments.results, now.strftime("%Y-%m-%d") + "-gpu-check.json")
    with open(place, "w", encoding="utf-8") as file:
        json.dump(testrun, file, indent=1)
        file.write("\n")
    print(f"{len(record.passed)} passed, {len(record.failed)} failed, {len(record.skipped)} skipped: {place}")
    return 1 if record.failed else 0


if __name__ == "__main__":
    sys.exit(main())
