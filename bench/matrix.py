#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run `tpcomm-bench sweep` over ranks, dtypes, modes, paths, places and collectives, one variable at a time from one base.

Every run is a file of its own in FOLDER (tpcomm-sweep/1); a run whose file is there, whole, right, of the same command and of the same version
is not made again, so a matrix that was cut short goes on where it stopped. Without --path the paths are those that the base run's group has. With histograms of serving traffic it says how much of
each the measured sizes cover: of its calls, of its bytes, and of the time that these would take by the base run's medians; as text and as
FOLDER/coverage.json.

usage: matrix.py TPCOMM_BENCH FOLDER [--device cpu|cuda] [--ranks 2,4,8] [--dtype bf16,f16,f32] [--mode eager,graph] [--path auto,oneshot,...]
                 [--op all_reduce,...] [--min 1K] [--max 16M] [--histogram FILE ...] [--hidden 8192] [--limit-s 600] [--again]
                 [-- SWEEP OPTION ...]
The first of each list is the base. exit 0 all runs are there, 1 a run failed, or the program or a histogram cannot be read
"""
import argparse
import bisect
import json
import os
import subprocess
import sys
import tempfile
import time

VARIABLES = ("ranks", "dtype", "mode", "path", "place", "op")
ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "i32": 4, "i64": 8, "u32": 4, "u64": 8, "f64": 8, "f8_e4m3": 1, "f8_e5m2": 1}


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
        first, *others = dict.fromkeys(getattr(options, name).split(","))
        yield from ({**base_point(options), name: value} for value in others if value != first)


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


def version_of(options):
    """As the program tells it."""
    try:
        done = subprocess.run([options.bench, "--version"], stdout=subprocess.PIPE, text=True, timeout=options.limit_s, check=True)
        return done.stdout.split()[-1]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        sys.exit(f"matrix.py: {options.bench} does not tell its version: {error}")


def is_run(data):
    """Whether this is all of a sweep's file that is looked at here, and no element was wrong."""
    try:
        return (data["schema"] == "tpcomm-sweep/1" and data["checked"]["wrong"] == 0 and isinstance(data["manifest"]["command"], list) and
                isinstance(data["manifest"]["library"]["version"], str) and isinstance(data["caveats"], list) and
                len([(row["bytes"], row["count"], row["out_of_place"], row["in_place"]) for row in data["rows"]]) > 0)
    except (KeyError, TypeError):
        return False


def without_file(command):
    at = command.index("--json") if "--json" in command else len(command)
    return command[:at] + command[at + 2:]


def is_done(options, file, command):
    """Whether the file is whole, of this library and of this very command, but for where the program and the file are."""
    try:
        with open(file, encoding="utf-8") as stream:
            data = json.load(stream)
    except (OSError, ValueError):
        return False
    return (is_run(data) and without_file(data["manifest"]["command"]) == without_file(command[1:]) and
            data["manifest"]["library"]["version"] == version_of(options))


def file_of(options, point):
    return os.path.join(options.folder, name_of(options, point) + ".json")


def run(options, point, which):
    """Whether the point's file is there now."""
    file = file_of(options, point)
    command = command_of(options, point, file)
    if not options.again and is_done(options, file, command):
        print(f"{which}: {os.path.basename(file)} is there")
        return True
    start = time.monotonic()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=options.limit_s)
        verdict = "ok" if done.returncode == 0 else f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or ['no text'])[-1]}"
        if verdict == "ok" and not is_done(options, file, command):
            verdict = "exit code 0, but its file is not whole"
    except subprocess.TimeoutExpired:
        verdict = f"ended after {options.limit_s:g} s"
    except OSError as error:
        verdict = f"{options.bench}: {error.strerror}"
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
    """Message bytes and medians of the base run, ascending; and the bytes of an element."""
    with open(file_of(options, base_point(options)), encoding="utf-8") as stream:
        data = json.load(stream)
    curve = {}
    for row in data["rows"]:
        us = (row["out_of_place"] or row["in_place"] or {}).get("us")
        if us and row["bytes"]:
            curve[row["bytes"]] = us["p50_us"] if us["p50_us"] is not None else us["mean_us"]
    return sorted(curve.items()), ELEMENT_BYTES.get(data["rows"][0]["dtype"])


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


def read_histogram(path):
    """[(tokens, calls)]"""
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
        if data["schema"] != "tpcomm-histogram/1":
            raise ValueError(f"its schema is {data['schema']}")
        found = [(int(tokens), count) for kind in ("decode_only", "mixed") for tokens, count in data[kind].items()]
        if any(tokens < 1 or not isinstance(count, int) or count < 0 for tokens, count in found):
            raise ValueError("tokens are 1 or more, counts whole numbers")
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"matrix.py: {path} is no histogram of tpcomm-histogram/1: {error}")


def coverage_of(options, curve, element, histogram):
    """Shares of calls, bytes and time of one histogram."""
    inside, total = [0.0] * 3, [0.0] * 3
    for tokens, count in histogram:
        size = tokens * options.hidden * element
        weights = (count, count * size, count * time_of(curve, size))
        for i, weight in enumerate(weights):
            total[i] += weight
            inside[i] += weight * (curve[0][0] <= size <= curve[-1][0])
    return {name: inside[i] / total[i] if total[i] else None for i, name in enumerate(("calls", "bytes", "time"))}


def coverage(options, histograms):
    curve, element = base_curve(options)
    if not curve or element is None:
        print("coverage: the base has no times of messages")
        return
    found = []
    for histogram, rows in histograms:
        shares = coverage_of(options, curve, element, rows)
        print(f"{histogram}: covered by the measured sizes: " +
              ", ".join(f"{100 * share:.1f} % of the {name}" for name, share in shares.items() if share is not None))
        found.append({"histogram": histogram, **shares})
    with tempfile.NamedTemporaryFile("w", dir=options.folder, suffix=".tmp", delete=False, encoding="utf-8") as stream:
        json.dump({"schema": "tpcomm-coverage/1", "base": name_of(options, base_point(options)), "hidden": options.hidden,
                   "bytes_min": curve[0][0], "bytes_max": curve[-1][0], "histograms": found}, stream, indent=1)
        stream.write("\n")
    os.replace(stream.name, os.path.join(options.folder, "coverage.json"))


def main():
    options = parse(sys.argv[1:])
    histograms = [(path, read_histogram(path)) for path in options.histogram]  # before the runs, which take their time
    base, failed = file_of(options, base_point(options)), run_all(options)
    if histograms and is_done(options, base, command_of(options, base_point(options), base)):
        coverage(options, histograms)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
