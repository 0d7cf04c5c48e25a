#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run `tpcomm-bench sweep` over ranks, dtypes, modes, paths, places and collectives, one variable at a time from one base.

Every run is a file of its own in FOLDER (tpcomm-sweep/1); a run whose file is there is not made again, so a matrix that was cut short goes
on where it stopped. Without --path the paths are those that the base run's group has. With histograms of serving traffic it says how much of
each the measured sizes cover: of its calls, of its bytes, and of the time that these would take by the base run's medians; as text and as
FOLDER/coverage.json.

usage: matrix.py TPCOMM_BENCH FOLDER [--device cpu|cuda] [--ranks 2,4,8] [--dtype bf16,f16,f32] [--mode eager,graph] [--path auto,oneshot,...]
                 [--op all_reduce,...] [--min 1K] [--max 16M] [--histogram FILE ...] [--hidden 8192] [--limit-s 600] [--again]
                 [-- SWEEP OPTION ...]
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
    parser.add_argument("--histogram", nargs="+", default=[])
    parser.add_argument("--hidden", type=int, default=8192, help="elements of a token's row: of the histogram's messages, and of calls with a norm")
    parser.add_argument("--limit-s", type=float, default=600, help="of one run, which is ended then and counts as failed")
    parser.add_argument("--again", action="store_true", help="make runs again whose files are there")
    options = parser.parse_args(argv)
    options.mode = options.mode or ("graph,eager" if options.device == "cuda" else "eager")
    options.extra = extra
    return options


def base_point(options):
    return {name: (getattr(options, name) or "auto").split(",")[0] for name in VARIABLES}


def points(options):
    """Every other value of each variable, with the rest as in the base."""
    for name in VARIABLES:
        for value in getattr(options, name).split(",")[1:]:
            yield {**base_point(options), name: value}


def paths_of(data):
    """auto and the paths that such calls can take in the group of a run, as the library lists them: "a, b; not c (why)"."""
    names = data["manifest"]["library"]["paths"].split("; not ")[0].split(", ")
    norm = "norm" in data["manifest"]["settings"]["coll"]
    return ",".join(["auto", *(name for name in names if ("fused" in name) == norm)])


def name_of(options, point):
    return "-".join([options.device, point["op"], point["ranks"] + "r", point["dtype"], point["mode"], point["path"], point["place"]])


def command_of(options, point, file):
    return [options.bench, "sweep", "--device", options.device, "--ranks", point["ranks"], "--dtype", point["dtype"], "--mode", point["mode"],
            "--path", point["path"], "--place", point["place"], "--op", point["op"], "-b", options.min, "-e", options.max, "--json", file,
            *(["--hidden", str(options.hidden)] if "norm" in point["op"] else []), *options.extra]


def is_done(file, command):
    """Whether the file is whole and of this very command, but for where the program and the file are."""
    try:
        with open(file, encoding="utf-8") as stream:
            data = json.load(stream)
    except (OSError, ValueError):
        return False
    return data.get("schema") == "tpcomm-sweep/1" and data["manifest"]["command"] == command[1:] and data["checked"]["wrong"] == 0


def file_of(options, point):
    return os.path.join(options.folder, name_of(options, point) + ".json")


def run(options, point, which):
    """Whether the point's file is there now."""
    file = file_of(options, point)
    command = command_of(options, point, file)
    if not options.again and is_done(file, command):
        print(f"{which}: {os.path.basename(file)} is there")
        return True
    start = time.monotonic()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=options.limit_s)
        verdict = "ok" if done.returncode == 0 else f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or ['no text'])[-1]}"
    except subprocess.TimeoutExpired:
        verdict = f"ended after {options.limit_s:g} s"
    print(f"{which}: {os.path.basename(file)}: {verdict}, {time.monotonic() - start:.1f} s", flush=True)
    return verdict == "ok"


def run_all(options):
    """How many of the runs failed."""
    os.makedirs(options.folder, exist_ok=True)
    base = base_point(options)
    if not run(options, base, "base"):
        return 1  # the others are compared with it
    if not options.path:
        with open(file_of(options, base), encoding="utf-8") as stream:
            options.path = paths_of(json.load(stream))
    todo = list(points(options))
    failed = sum(not run(options, point, f"{number} of {len(todo)}") for number, point in enumerate(todo, 1))
    print(f"{1 + len(todo) - failed} of {1 + len(todo)} runs are there")
    return failed


def base_curve(options):
    """Message bytes and medians of the base run, ascending."""
    with open(file_of(options, base_point(options)), encoding="utf-8") as stream:
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


def coverage_of(options, curve, histogram):
    """Shares of calls, bytes and time of one histogram."""
    with open(histogram, encoding="utf-8") as stream:
        data = json.load(stream)
    element = 4 if options.dtype.split(",")[0] == "f32" else 2
    inside, total = [0.0] * 3, [0.0] * 3
    for tokens, count in [*data["decode_only"].items(), *data["mixed"].items()]:
        size = int(tokens) * options.hidden * element
        weights = (count, count * size, count * time_of(curve, size))
        for i, weight in enumerate(weights):
            total[i] += weight
            inside[i] += weight * (curve[0][0] <= size <= curve[-1][0])
    return {name: inside[i] / total[i] if total[i] else None for i, name in enumerate(("calls", "bytes", "time"))}


def coverage(options):
    curve = base_curve(options)
    found = []
    for histogram in options.histogram:
        shares = coverage_of(options, curve, histogram)
        print(f"{histogram}: covered by the measured sizes: " +
              ", ".join(f"{100 * share:.1f} % of the {name}" for name, share in shares.items() if share is not None))
        found.append({"histogram": histogram, **shares})
    with open(os.path.join(options.folder, "coverage.json"), "w", encoding="utf-8") as stream:
        json.dump({"schema": "tpcomm-coverage/1", "base": name_of(options, base_point(options)), "hidden": options.hidden,
                   "bytes_min": curve[0][0], "bytes_max": curve[-1][0], "histograms": found}, stream, indent=1)
        stream.write("\n")


def main():
    options = parse(sys.argv[1:])
    failed = run_all(options)
    if options.histogram and os.path.exists(file_of(options, base_point(options))):
        coverage(options)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
