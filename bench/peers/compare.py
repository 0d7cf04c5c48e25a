#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AllReduce of float32 between 2 ranks on the cpu device: tpcomm, Open MPI and MPICH by turns, trains of calls; medians and ratios.

usage: compare.py BUILD_FOLDER [--rounds 3] [--json FILE]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SIZES = [1 << k for k in range(10, 25, 2)]  # 1 KiB to 16 MiB
HIDDEN = 256  # a token is 1 KiB of float32


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr or done.stdout}")
    return done.stdout


def of_tpcomm(build, folder):
    """Train p50 of each size: replay of a histogram that holds the sizes, one call a layer."""
    result = {}
    for size in SIZES:
        histogram, output = os.path.join(folder, "h.json"), os.path.join(folder, "o.json")
        with open(histogram, "w") as file:
            json.dump({"schema": "tpcomm-histogram/1", "decode_only": {str(size // 1024): 1}, "mixed": {}}, file)
        calls = 100 if size >= 1 << 20 else 1000
        run([f"{build}/bench/tpcomm-bench", "replay", "--histogram", histogram, "--hidden", str(HIDDEN), "--layers", str(calls),
             "--calls-per-layer", "1", "--extra-calls", "0", "--dtype", "f32", "--ranks", "2", "--device", "cpu", "--iterations", "3",
             "--json", output])
        with open(output) as file:
            entry = json.load(file)["sizes"][0]
        result[size] = entry["call_us"]["p50_us"]
    return result


def of_mpi(command):
    result = {}
    for line in run(command + ["--json"]).splitlines():
        entry = json.loads(line)
        if "bytes" in entry and "train_p50_us" in entry:
            result[entry["bytes"]] = entry["train_p50_us"]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    peers = {}
    for name, launch in (("openmpi", ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "core", "-n", "2"]),
                         ("mpich", ["mpiexec.mpich", "-bind-to", "core", "-n", "2"])):
        program = f"{options.build}/bench/peers/allreduce_{name}"
        if os.access(program, os.X_OK):
            peers[name] = launch + [program, "--samples", "1000"]
        else:
            print(f"{name}: not built ({program})", file=sys.stderr)
    figures = {"tpcomm": {size: [] for size in SIZES}, **{name: {size: [] for size in SIZES} for name in peers}}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            for name, measure in [("tpcomm", lambda: of_tpcomm(options.build, folder))] + [
                    (name, lambda command=command: of_mpi(command)) for name, command in peers.items()]:
                for size, value in measure().items():
                    if size in figures[name]:
                        figures[name][size].append(value)
    print("us a call, median of the rounds' p50 (train of calls, the slowest rank), 2 ranks, float32 sum")
    print(f"{'bytes':>10}" + "".join(f"{name:>10}" for name in figures) + "".join(f"{'/ ' + name:>12}" for name in peers))
    for size in SIZES:
        middle = {name: statistics.median(values[size]) for name, values in figures.items() if values[size]}
        print(f"{size:>10}" + "".join(f"{middle[name]:>10.2f}" for name in figures if name in middle) +
              "".join(f"{middle['tpcomm'] / middle[name]:>12.2f}" for name in peers if name in middle))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"schema": "tpcomm-peers/1", "ranks": 2, "dtype": "f32", "rounds": options.rounds,
                       "p50_us": {name: {str(s): v for s, v in values.items()} for name, values in figures.items()}}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
