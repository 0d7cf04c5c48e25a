#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run `tpcomm-bench sweep` over ranks, dtypes, modes, paths, places and collectives, one variable at a time from one base.

Every run is a file of its own in FOLDER (tpcomm-sweep/1); a run whose file is there is not made again, so a matrix that was cut short goes
on where it stopped. With a histogram it says how much of that traffic the measured sizes cover: of its calls, of its bytes, and of the
time that these would take by the base run's medians.

usage: matrix.py TPCOMM_BENCH FOLDER [--device cpu|cuda] [--ranks 2,4,8] [--dtype bf16,f16,f32] [--mode eager,graph] [--path auto,oneshot,...]
                 [--op all_reduce,...] [--min 1K] [--max 16M] [--histogram FILE --hidden 8192] [--again] [-- SWEEP OPTION ...]
The first of each list is the base. exit 0 all runs are there, 1 a run failed
"""
import argparse
import bisect
import json
import os
import subprocess
import sys
import time

VARIABLES = ("ranks", "dtype", "mode", "path", "place", "op")


def parse(argv):
    extra = []
    if "--" in argv:
        at = argv.index("--")
        argv, extra = argv[:at], argv[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("bench")
    parser.add_argument("folder")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for name, value in (("ranks", "2,4"), ("dtype", "bf16,f16,f32"), ("mode", ""), ("path", ""), ("place", "both"), ("op", "all_reduce")):
        parser.add_argument("--" + name, default=value)
    parser.add_argument("--min", default="1K")
    parser.add_argument("--max", default="16M")
    parser.add_argument("--histogram")
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--again", action="store_true", help="make runs again whose files are there")
    options = parser.parse_args(argv)
    options.mode = options.mode or ("graph,eager" if options.device == "cuda" else "eager")
    options.path = options.path or ("auto,oneshot,twoshot" if options.device == "cuda" else "auto,cpu_oneshot,cpu_twoshot")
    options.extra = extra
    return options


def points(options):
    """The base, then every other value of each variable with the rest as in the base."""
    values = {name: getattr(options, name).split(",") for name in VARIABLES}
    base = {name: choices[0] for name, choices in values.items()}
    yield base
    for name in VARIABLES:
        for value in values[name][1:]:
            yield {**base, name: value}


def name_of(options, point):
    return "-".join([options.device, point["op"], point["ranks"] + "r", point["dtype"], point["mode"], point["path"], point["place"]])


def command_of(options, point, file):
    return [options.bench, "sweep", "--device", options.device, "--ranks", point["ranks"], "--dtype", point["dtype"], "--mode", point["mode"],
            "--path", point["path"], "--place", point["place"], "--op", point["op"], "-b", options.min, "-e", options.max, "--json", file,
            *options.extra]


def is_done(file, command):
    """Whether the file is whole and of this very command, but for where the program and the file are."""
    try:
        with open(file, encoding="utf-8") as stream:
            data = json.load(stream)
    except (OSError, ValueError):
        return False
    return data.get("schema") == "tpcomm-sweep/1" and data["manifest"]["command"] == command[1:] and data["checked"]["wrong"] == 0


def run(options):
    failed = 0
    os.makedirs(options.folder, exist_ok=True)
    todo = list(points(options))
    for number, point in enumerate(todo, 1):
        file = os.path.join(options.folder, name_of(options, point) + ".json")
        command = command_of(options, point, file)
        if not options.again and is_done(file, command):
            print(f"{number} of {len(todo)}: {os.path.basename(file)} is there")
            continue
        start = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        verdict = "ok" if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip().splitlines()[-1:] or ['no text']}"
        print(f"{number} of {len(todo)}: {os.path.basename(file)}: {verdict}, {time.monotonic() - start:.1f} s", flush=True)
        failed += done.returncode != 0
    return failed


def base_curve(options):
    """Message bytes and medians of the base run, ascending."""
    with open(os.path.join(options.folder, name_of(options, next(points(options))) + ".json"), encoding="utf-8") as stream:
        rows = json.load(stream)["rows"]
    curve = {}
    for row in rows:
        us = (row["out_of_place"] or row["in_place"] or {}).get("us")
        if us:
            curve[row["bytes"]] = us["p50_us"] if us["p50_us"] is not None else us["mean_us"]
    return sorted(curve.items())


def time_of(curve, size):
    """By straight lines between the sizes; flat below, in proportion above."""
    sizes = [point[0] for point in curve]
    at = bisect.bisect_left(sizes, size)
    if at == 0:
        return curve[0][1]
    if at == len(curve):
        return curve[-1][1] * size / curve[-1][0]
    (x0, y0), (x1, y1) = curve[at - 1], curve[at]
    return y0 + (y1 - y0) * (size - x0) / (x1 - x0)


def coverage(options):
    curve = base_curve(options)
    with open(options.histogram, encoding="utf-8") as stream:
        histogram = json.load(stream)
    element = 4 if options.dtype.split(",")[0] == "f32" else 2
    inside, total = [0.0] * 3, [0.0] * 3
    for tokens, count in [*histogram["decode_only"].items(), *histogram["mixed"].items()]:
        size = int(tokens) * options.hidden * element
        weights = (count, count * size, count * time_of(curve, size))
        for i, weight in enumerate(weights):
            total[i] += weight
            inside[i] += weight * (curve[0][0] <= size <= curve[-1][0])
    shares = {name: inside[i] / total[i] if total[i] else None for i, name in enumerate(("calls", "bytes", "time"))}
    print("covered by the measured sizes: " + ", ".join(f"{100 * share:.1f} % of the {name}" for name, share in shares.items() if share is not None))
    with open(os.path.join(options.folder, "coverage.json"), "w", encoding="utf-8") as stream:
        json.dump({"schema": "tpcomm-coverage/1", "histogram": options.histogram, "hidden": options.hidden, **shares}, stream, indent=1)
        stream.write("\n")


def main():
    options = parse(sys.argv[1:])
    failed = run(options)
    if options.histogram and not failed:
        coverage(options)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
