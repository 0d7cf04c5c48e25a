#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of the figures in bench/results/, for docs/performance.md.

usage: plot.py [--write PAGE.md | --check PAGE.md] [--plots FOLDER] [FILE.json ...]
Tables of the files go to stdout; without files: of all in bench/results/ that it knows (sweeps, tuning files, peers, paths, shapes, fused,
test runs with times). --write puts tables in the place of what stands in a page between lines

  <!-- plot.py: begin NAME ... -->     tables of these files of bench/results/, without .json
  <!-- plot.py: begin -->              tables of the files given, or of all sweeps and tuning files of bench/results/
  <!-- plot.py: end -->

With --plots each table is drawn too, time over size with the floor dashed, as an SVG in FOLDER that the page shows. --check writes nothing
and exits 1 if page or plots are not what would be written.

The floor of two ranks on H200s over NVLink is 1.9 us (a graph node 0.52, one hop 0.76, loads) and 392 GB/s each way (the copy engine's
rate), measured on two H200 (NV18); for N ranks 2 (N - 1) / N of the bytes. Of ranks that share a GPU it is the graph node alone. Eager calls
and the cpu device have none.
"""
import argparse
import difflib
import glob
import json
import os
import re
import sys

import plot_extras
import svg

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results")
BLOCK = re.compile(r"(<!-- plot\.py: begin(?P<names>[^\n>]*) -->\n).*?(<!-- plot\.py: end -->)", re.DOTALL)
FLOOR_US, FLOOR_GBS, NODE_US = 1.9, 392.0, 0.52
UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


class Figure:
    """One table and one plot: curves over message bytes (or tokens)."""

    def __init__(self, intro, x="bytes", floor=None, last=None):
        self.intro, self.x, self.floor = intro, x, floor
        self.last = last or {}  # {x: text} of a last column
        self.last_name = "path"
        self.curves = {}  # {label: {x: (us, unstable)}}
        self.ratios = []  # (label, label): columns of ratios
        self.after = []  # lines behind the table

    def add(self, label, x, value, unstable=False):
        self.curves.setdefault(label, {})[x] = (value, unstable)

    def sizes(self):
        return sorted({x for curve in self.curves.values() for x in curve})


def size_text(size):
    for unit, factor in UNITS:
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return str(size)


def number(value):
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def link_floor(ranks):
    return lambda size: FLOOR_US + 2 * (ranks - 1) / ranks * size / FLOOR_GBS / 1000


def floor_of(manifest, graph):
    """A function of bytes, or None."""
    ranks = manifest["ranks"]
    if "H200" not in (ranks[0]["gpu"] or {}).get("name", "") or not graph:
        return None
    topology = manifest["library"]["topology"]
    return link_floor(len(ranks)) if topology == "nvlink" else (lambda size: NODE_US) if topology == "same_gpu" else None


# ---------------------------------------------------------------- what the files say


def ranks_text(manifest, count=None):
    gpu = manifest["ranks"][0]["gpu"]
    ranks = manifest["ranks"]
    kind = "threads" if len(ranks) == 1 or ranks[1]["same_process"] else "processes"
    return f"{count or len(ranks)} ranks ({kind}) on {gpu['name'] if gpu else manifest['host']['cpu'] or 'cpu'}, topology {manifest['library']['topology']}"


MEDIAN = "median (mean under 100 samples) of a call in microseconds, the slowest rank's."


def sweeps(data):
    """A label is the path asked for and the place."""
    manifest = data["manifest"]
    graph = manifest["settings"]["mode"] == "graph"
    caveats = "".join(f" {c[0].upper()}{c[1:]}." for c in data["caveats"] if "share one GPU" in c or "cpus" in c)
    cold = ", cold buffers" if manifest["settings"].get("cold") else ""
    figures = {}
    for row in data["rows"]:
        key = row["dtype"], row["redop"]
        if key not in figures:
            intro = f"{manifest['settings']['coll']}, {ranks_text(manifest)}, {manifest['settings']['mode']}{cold}; {MEDIAN}{caveats}"
            figures[key] = Figure(intro + f" {row['dtype'] or ''} {row['redop'] or ''}".rstrip() + ".", floor=floor_of(manifest, graph))
        for place, name in (("out_of_place", ""), ("in_place", ", in place")):
            measured = row[place]
            if not measured:
                continue
            us = measured["us"]["p50_us"] if measured["us"]["p50_us"] is not None else measured["us"]["mean_us"]
            figures[key].add(row["path_asked"] + name, row["bytes"], us, measured["unstable"])
            figures[key].last.setdefault(row["bytes"], row["path"])
    if figures:
        list(figures.values())[-1].after = list(plot_extras.tables(data, number, size_text))
    return list(figures.values())


def tunings(data):
    manifest = data["manifest"]
    found = []
    for curve in manifest.get("curves", []):
        coll = curve.get("coll", "all_reduce")
        rows = f", rows of {curve['hidden']}" if curve.get("hidden") else ""
        figure = Figure(f"tune: {coll}{rows}, {ranks_text(manifest, curve['ranks'])}, {curve['mode']}, {curve['dtype']}; {MEDIAN}",
                        floor=floor_of(manifest, curve["mode"] == "graph") if coll == "all_reduce" else None)
        figure.last_name = "chosen"
        chosen = [row for row in data["rows"] if (row["coll"], row["ranks"], row["dtype"]) == (coll, curve["ranks"], curve["dtype"]) and
                  row.get("capturing", curve["mode"] == "graph") == (curve["mode"] == "graph") and
                  (not curve.get("hidden") or row.get("hidden_min", 0) <= curve["hidden"] <= row.get("hidden_max", curve["hidden"]))]
        for point in curve["points"]:
            size = point["bytes"]
            for path, us in point["p50_us"].items():
                cv = point["cv_percent"].get(path)
                figure.add(path, size, us, cv is not None and cv > 5)
            figure.last[size] = next((row["path"] for row in chosen if row.get("bytes_min", 0) <= size <= row.get("bytes_max", size)), "-")
        found.append(figure)
    return found


def peers(data):
    names = {"tpcomm": "tpcomm", "openmpi": "Open MPI", "mpich": "MPICH"}
    figure = Figure(f"{data['ranks']} ranks, {data['dtype']} sum, p50 of a call in microseconds, the slowest rank's; {data['machine']}, "
                    f"Open MPI {data['openmpi']}, MPICH {data['mpich']}.")
    for key, times in data["p50_us"].items():
        for size, values in times.items():
            figure.add(names.get(key, key), int(size), sorted(values)[len(values) // 2])
    figure.ratios = [("tpcomm", label) for label in figure.curves if label != "tpcomm"]
    return [figure]


def paths(data):
    figure = Figure(f"{data['what']}; {data['machine']}.")
    for size, times in data["p50_us"].items():
        for path, us in times.items():
            figure.add(path, int(size), us)
    return [figure]


def shapes(data):
    """gpu_time: shapes of a launch, or paths by number of ranks."""
    timing = data.get("timing", data)
    rows = timing["rows"]
    figure = Figure(f"{timing['what']}; {' and '.join(data['gpus'])}, driver {data['driver']}, `{data['command']}`.", floor=lambda size: NODE_US)
    if "threads" not in rows[0]:
        for row in rows:
            figure.add(f"{row['ranks']} ranks, {row['path']}", row["bytes"], row["p50_us"])
        return [figure]
    figure.intro += " Columns: threads a block / 16-byte vectors that a thread has in flight, with the number of blocks that was best."
    best = {}
    for row in rows:
        key = f"{row['threads']} / {row['vectors']}" if row["threads"] else "own choice"
        best.setdefault(key, {}).setdefault(row["bytes"], []).append(row["p50_us"])
    for key, times in best.items():
        for size, values in times.items():
            figure.add(key, size, min(values))
    return [figure]


def fused(data):
    found = {}
    for row in data["rows"]:
        ranks = row["ranks"]
        if "vector" in row["what"]:
            continue  # shapes of the kernel that were tried
        if ranks not in found:
            found[ranks] = Figure(f"{data['what']}: {ranks} ranks, H is the elements of a row; {' and '.join(data['gpus'])}, `{data['command']}`.", x="tokens",
                                  floor=lambda size: NODE_US)
        for tokens, us in zip(data["tokens"], row["us"]):
            found[ranks].add(f"{row['what']}, H {row['hidden']}", tokens, us)
    return list(found.values())


def testrun(data):
    """Times that a record of tests keeps; one GPU each have a link between them."""
    timing = data.get("timing")
    if not timing:
        return []
    found = {}
    for row in timing["rows"]:
        linked = "NVLink" in row["placement"]
        key = linked, row["ranks"] if linked else 0
        floor = (link_floor(row["ranks"]) if linked else (lambda size: NODE_US)) if "H200" in data["gpus"][0]["name"] else None
        if key not in found:
            found[key] = Figure(f"{timing['what']}; {len(data['gpus'])} x {data['gpus'][0]['name']}, driver {data['driver']}, commit {data['commit'][:7]}.", floor=floor)
        found[key].add(f"{row['ranks']} ranks, {row['placement']}", row["bytes"], row["graph_p50_us"])
    return list(found.values())


KINDS = {"tpcomm-sweep/1": sweeps, "tpcomm-tuning/1": tunings, "tpcomm-peers/1": peers, "tpcomm-paths/1": paths, "tpcomm-shapes/1": shapes,
         "tpcomm-fused/1": fused, "tpcomm-testrun/1": testrun}
OPEN_KINDS = ("tpcomm-sweep/1", "tpcomm-tuning/1")  # of a block that names no files
COVERAGE = "tpcomm-coverage/1"  # lies beside the sweeps of a matrix, and has no curves


def read(path):
    """(name, schema, figures) of one file."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error.strerror if isinstance(error, OSError) else f'no JSON: {error}'}")
    schema = data.get("schema") if isinstance(data, dict) else None
    kind = KINDS.get(schema)
    try:
        return os.path.splitext(os.path.basename(path))[0], schema, kind(data) if kind else None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        sys.exit(f"{path} is not what {schema} says: {type(error).__name__} {error}")


# ---------------------------------------------------------------- tables and plots


def table(name, figure):
    """Markdown lines."""
    yield f"`{name}.json`: {figure.intro}"
    yield ""
    floor = figure.floor
    # Over a link the distance to the floor is worth a column; a graph node's is not.
    linked = floor is not None and floor(1 << 20) != floor(0)
    heads = [figure.x, *figure.curves, *(f"{a} / {b}" for a, b in figure.ratios)] + (["floor", "above it"] if linked else [])
    yield "| " + " | ".join(heads) + (f" | {figure.last_name} |" if figure.last else " |")
    yield "|" + " ---: |" * len(heads) + (" --- |" if figure.last else "")
    for size in figure.sizes():
        values = [curve.get(size, (None, False)) for curve in figure.curves.values()]
        cells = [number(us) + (" (unstable)" if unstable else "") for us, unstable in values]
        for a, b in figure.ratios:
            pair = [figure.curves[label].get(size, (None,))[0] for label in (a, b)]
            cells.append(f"{pair[0] / pair[1]:.2f}" if None not in pair else "-")
        if linked:
            best = min((us for us, _ in values if us is not None), default=None)
            cells += [number(floor(size)), number(best - floor(size)) if best is not None else "-"]
        if figure.last:
            cells.append(figure.last.get(size) or "-")
        yield "| " + " | ".join([size_text(size) if figure.x == "bytes" else str(size), *cells]) + " |"
    yield ""
    yield from figure.after


def tables(files, plots, page_folder):
    """(lines, {file name: SVG text}) of figures by file."""
    lines, drawn = [], {}
    for name, figures in files:
        for number_, figure in enumerate(figures, 1):
            lines += table(name, figure)
            if plots is None:
                continue
            file = name + (f"-{number_}" if len(figures) > 1 else "") + ".svg"
            drawn[file] = svg.draw(f"{name}", figure.x, {label: {x: us for x, (us, _) in curve.items()} for label, curve in figure.curves.items()},
                                   figure.floor, size_text)
            lines += [f"![{name}]({os.path.relpath(os.path.join(plots, file), page_folder)})", ""]
    return lines, drawn


def all_results(kinds):
    found = [read(path) for path in sorted(glob.glob(os.path.join(RESULTS, "*.json")))]
    return [(name, figures) for name, schema, figures in found if figures and schema in kinds]


def fill(text, given, plots, page_folder):
    """The page's text with every block made anew, and its plots."""
    drawn = {}

    def block(match):
        names = match.group("names").split()
        files = [(name, read(os.path.join(RESULTS, name + ".json"))[2] or []) for name in names] if names else given
        lines, more = tables(files, plots, page_folder)
        drawn.update(more)
        return match.group(1) + "\n" + "\n".join(lines).rstrip() + "\n\n" + match.group(3)

    return BLOCK.sub(block, text), drawn


def write(options, given):
    page = options.write or options.check
    with open(page, encoding="utf-8") as file:
        have = file.read()
    if not BLOCK.search(have):
        sys.exit(f"{page} has no lines <!-- plot.py: begin --> and <!-- plot.py: end -->")
    text, drawn = fill(have, given, options.plots, os.path.dirname(os.path.abspath(page)))
    if options.check:
        return check(page, have, text, options.plots, drawn)
    put(page, text)
    if options.plots:
        os.makedirs(options.plots, exist_ok=True)
        for name, drawing in drawn.items():
            put(os.path.join(options.plots, name), drawing)
    return 0


def put(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def check(page, have, want, plots, drawn):
    wrong = [page] if have != want else []
    sys.stdout.writelines(line + "\n" for line in difflib.unified_diff(have.split("\n"), want.split("\n"), page, "should be", n=0, lineterm=""))
    for name, drawing in drawn.items():
        path = os.path.join(plots, name)
        if not os.path.exists(path) or open(path, encoding="utf-8").read() != drawing:
            wrong.append(path)
    for path in sorted(glob.glob(os.path.join(plots, "*.svg"))) if plots else []:
        if os.path.basename(path) not in drawn:
            wrong.append(path)
    for path in wrong:
        print(f"plot.py: {path} is not what bench/results/ says: run bench/plot.py --write {page}" + (f" --plots {plots}" if plots else ""))
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    pages = parser.add_mutually_exclusive_group()
    pages.add_argument("--write", metavar="FILE.md")
    pages.add_argument("--check", metavar="FILE.md")
    parser.add_argument("--plots", metavar="FOLDER")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    given = []
    for path in options.files:
        name, schema, figures = read(path)
        if schema == COVERAGE:
            continue
        if figures is None:
            sys.exit(f"{path} is none of {', '.join(sorted(KINDS))}: its schema is {schema}")
        given.append((name, figures))
    if options.write or options.check:
        return write(options, given or all_results(OPEN_KINDS))
    lines, drawn = tables(given or all_results(KINDS), options.plots, os.getcwd())
    print("\n".join(lines))
    if options.plots:
        os.makedirs(options.plots, exist_ok=True)
        for name, drawing in drawn.items():
            put(os.path.join(options.plots, name), drawing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
