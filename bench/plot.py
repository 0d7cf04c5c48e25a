#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of sweeps (tpcomm-sweep/1), for docs/performance.md.

usage: plot.py [--write docs/performance.md] [--plots FOLDER] [FILE.json ...]
Without files: those of bench/results/ that are sweeps. Tables go to stdout, or with --write in place of what stands between the lines
"<!-- plot.py: begin -->" and "<!-- plot.py: end -->". Plots are SVG, time over size with the floor drawn in; they want matplotlib, and
without it only the tables are made.

The floor is that of two ranks on H200s over NVLink: 1.9 us (a graph node 0.52, one hop 0.76, loads) and 392 GB/s each way (the copy engine's rate),
measured on two H200 (NV18); for N ranks 2 (N - 1) / N of the bytes. Other topologies have none.
"""
import argparse
import glob
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN, END = "<!-- plot.py: begin -->", "<!-- plot.py: end -->"
FLOOR_US, FLOOR_GBS = 1.9, 392.0
UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def read(paths):
    """The sweeps among the files, by name."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        if data.get("schema") == "tpcomm-sweep/1":
            yield os.path.splitext(os.path.basename(path))[0], data
        elif len(paths) == 1:
            sys.exit(f"{path} is no sweep: its schema is {data.get('schema')}")


def size_text(size):
    for unit, factor in UNITS:
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return str(size)


def number(value):
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def floor(data, size):
    """Microseconds, or None."""
    ranks = data["manifest"]["ranks"]
    if data["manifest"]["library"]["topology"] != "nvlink" or "H200" not in (ranks[0]["gpu"] or {}).get("name", ""):
        return None
    n = len(ranks)
    return FLOOR_US + 2 * (n - 1) / n * size / FLOOR_GBS / 1000


def curves(data):
    """{(dtype, redop, label): {bytes: (us, unstable)}}; a label is the path asked for and the place."""
    result = {}
    for row in data["rows"]:
        for place, name in (("out_of_place", ""), ("in_place", ", in place")):
            measured = row[place]
            if not measured:
                continue
            us = measured["us"]["p50_us"] if measured["us"]["p50_us"] is not None else measured["us"]["mean_us"]
            key = (row["dtype"], row["redop"], row["path_asked"] + name)
            result.setdefault(key, {})[row["bytes"]] = (us, measured["unstable"], row["path"])
    return result


def describe(name, data):
    manifest = data["manifest"]
    gpu = manifest["ranks"][0]["gpu"]
    where = gpu["name"] if gpu else manifest["host"]["cpu"] or "cpu"
    ranks = manifest["ranks"]
    kind = "threads" if len(ranks) == 1 or ranks[1]["same_process"] else "processes"
    text = (f"`{name}.json`: {manifest['settings']['coll']}, {len(ranks)} ranks ({kind}) on {where}, topology {manifest['library']['topology']}, "
            f"{manifest['settings']['mode']}; median (mean under 100 samples) of a call in microseconds, the slowest rank's.")
    caveats = [c for c in data["caveats"] if "share one GPU" in c or "cpus" in c]
    return text + "".join(f" {c[0].upper()}{c[1:]}." for c in caveats)


def table(name, data):
    """Markdown lines of one sweep."""
    found = curves(data)
    for dtype, redop in dict.fromkeys((key[0], key[1]) for key in found):
        labels = [key[2] for key in found if key[:2] == (dtype, redop)]
        sizes = sorted({size for label in labels for size in found[dtype, redop, label]})
        has_floor = any(floor(data, size) is not None for size in sizes)
        yield describe(name, data) + f" {dtype or ''} {redop or ''}".rstrip() + "."
        yield ""
        yield "| bytes | " + " | ".join(labels) + (" | floor" if has_floor else "") + " | path |"
        yield "| ---: |" + " ---: |" * (len(labels) + has_floor) + " --- |"
        for size in sizes:
            cells = []
            for label in labels:
                us, unstable, _ = found[dtype, redop, label].get(size, (None, False, None))
                cells.append(number(us) + (" (unstable)" if unstable else ""))
            if has_floor:
                cells.append(number(floor(data, size)))
            taken = found[dtype, redop, labels[0]].get(size, (None, None, None))[2]
            yield f"| {size_text(size)} | " + " | ".join(cells) + f" | {taken or '-'} |"
        yield ""


def plot(name, data, folder, pyplot):
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for (dtype, redop, label), curve in curves(data).items():
        sizes = sorted(curve)
        axes.plot(sizes, [curve[size][0] for size in sizes], marker="o", markersize=3, label=f"{label} {dtype or ''} {redop or ''}".strip())
    sizes = sorted({row["bytes"] for row in data["rows"]})
    if sizes and floor(data, sizes[0]) is not None:
        axes.plot(sizes, [floor(data, size) for size in sizes], linestyle="--", color="black", label="floor")
    axes.set(xscale="log", yscale="log", xlabel="message bytes", ylabel="us a call", title=name)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(os.path.join(folder, name + ".svg"))
    pyplot.close(figure)


def make_plots(sweeps, folder):
    try:
        import matplotlib  # pylint: disable=import-outside-toplevel
    except ImportError:
        print("plot.py: matplotlib is not there (pip install matplotlib): tables only, no plots", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    os.makedirs(folder, exist_ok=True)
    for name, data in sweeps:
        plot(name, data, folder, pyplot)


def write(path, lines):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if BEGIN not in text or END not in text.split(BEGIN, 1)[1]:
        sys.exit(f"{path} has no lines {BEGIN} and {END}")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n\n" + "\n".join(lines).rstrip() + "\n\n" + END + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--write", metavar="FILE.md")
    parser.add_argument("--plots", metavar="FOLDER")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    sweeps = list(read(options.files or sorted(glob.glob(os.path.join(HERE, "results", "*.json")))))
    lines = [line for name, data in sweeps for line in table(name, data)]
    if not lines:
        print("plot.py: no sweep (tpcomm-sweep/1) among the files", file=sys.stderr)
    if options.write:
        write(options.write, lines)
    else:
        print("\n".join(lines))
    if options.plots:
        make_plots(sweeps, options.plots)


if __name__ == "__main__":
    main()
