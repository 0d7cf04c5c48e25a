#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write src/dispatch/builtin_rows.h, the rows that the library ships, from src/dispatch/builtin_rows.json; or take measured rows into that.

usage: builtin_rows.py [--root DIR] [--check] [--take bench/results/FILE.json ...]
  --check   write nothing; exit 1 with the differing lines if the header is not what the JSON says
  --take    first put a tuning file's rows (tpcomm-bench tune; it must lie in bench/results/) in place of those of the same collectives,
            topology and group sizes; the rows of its first dtype then stand for any dtype
exit 0 done or equal, 1 different, 2 a file is not what it should be

A row is a tuning file's (docs/tuning.md), and says where it is from: of a measured one that is a file of bench/results/, of an estimated
one a few words. Order is precedence. explain shows both.
"""
import argparse
import difflib
import json
import os
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS, HEADER, RESULTS = "src/dispatch/builtin_rows.json", "src/dispatch/builtin_rows.h", "bench/results/"
SCHEMA = "tpcomm-builtin/1"
KEYS = ("coll", "topology", "ranks", "dtype", "capturing", "hidden_min", "hidden_max", "bytes_min", "bytes_max", "path", "source", "from", "base_us", "per_mib_us")
NEEDED = ("coll", "topology", "ranks", "path", "source", "from")
FROM_MAX = 79  # with the rest of a reason it must fit into tpcomm_decision_t.reason
HEAD = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* Made from builtin_rows.json by tools/builtin_rows.py; change it there. */
#ifndef TPC_DISPATCH_BUILTIN_ROWS_H
#define TPC_DISPATCH_BUILTIN_ROWS_H

"""


class Wrong(Exception):
    """A file is not what it should be."""


def read(root, name, schema):
    try:
        with open(os.path.join(root, name), encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError) as why:
        raise Wrong(f"{name}: {why}") from why
    if not isinstance(data, dict) or data.get("schema") != schema:
        raise Wrong(f"{name}: its schema is {data.get('schema') if isinstance(data, dict) else None}, want {schema}")
    return data


def check_row(root, place, row):
    unknown, missing = [key for key in row if key not in KEYS], [key for key in NEEDED if key not in row]
    if unknown or missing:
        raise Wrong(f"{place}: " + (f"unknown key {unknown[0]}" if unknown else f"no {missing[0]}"))
    if row["source"] not in ("measured", "estimated"):
        raise Wrong(f"{place}.source: {row['source']}; allowed are measured, estimated")
    if not row["from"] or len(row["from"]) > FROM_MAX or not row["from"].isprintable() or not row["from"].isascii():
        raise Wrong(f"{place}.from: 1 to {FROM_MAX} printable characters")
    if row["source"] == "measured" and not (row["from"].startswith(RESULTS) and os.path.isfile(os.path.join(root, row["from"]))):
        raise Wrong(f"{place}.from: {row['from']}: a measured row names the file in {RESULTS} that it is from")


def read_rows(root):
    rows = read(root, ROWS, SCHEMA)["rows"]
    for number, row in enumerate(rows):
        check_row(root, f"{ROWS}: rows[{number}]", row)
    return rows


def ns(row, key):
    return round(row[key] * 1000) if row.get(key) is not None else None


def header(rows):
    sources = sorted({row["from"] for row in rows})
    lines = ["/* X(text): where rows are from; a row has its place in this list, from 1 on. */", "#define TPC_BUILTIN_FROM_LIST(X) \\"]
    lines += ["    X(" + json.dumps(text) + ") \\" for text in sources]
    lines[-1] = lines[-1][:-2]
    lines += ["", "/* X(collective, dtype, topology, ranks, capturing, hidden_min, hidden_max, bytes_min, bytes_max, path, source, from, base_ns, per_mib_ns) */",
              "#define TPC_BUILTIN_ROW_LIST(X) \\"]
    for row in rows:
        dtype = row.get("dtype", "any")
        capturing = row.get("capturing")
        base = ns(row, "base_us")
        cells = ("TPCOMM_" + row["coll"].upper(), "0" if dtype == "any" else "TPCOMM_" + dtype.upper(), "TPC_TOPOLOGY_" + row["topology"].upper(),
                 row["ranks"], {None: "0", True: "TPCOMM_ON", False: "TPCOMM_OFF"}[capturing], row.get("hidden_min", 0),
                 row["hidden_max"] if row.get("hidden_max") is not None else "INT32_MAX", row.get("bytes_min", 0),
                 row["bytes_max"] if row.get("bytes_max") is not None else "UINT64_MAX", "TPCOMM_PATH_" + row["path"].upper(),
                 "TPCOMM_SOURCE_" + row["source"].upper(), sources.index(row["from"]) + 1, -1 if base is None else base,
                 (ns(row, "per_mib_us") or 0) if base is not None else 0)
        lines.append("    X(" + ", ".join(str(cell) for cell in cells) + ") \\")
    lines[-1] = lines[-1][:-2]
    return HEAD + "/* clang-format off */\n" + "\n".join(lines) + "\n/* clang-format on */\n\n#endif\n"


def rows_text(rows):
    """One row a line."""
    ordered = [{key: row[key] for key in KEYS if row.get(key) is not None} for row in rows]
    return '{"schema": "' + SCHEMA + '", "rows": [\n' + ",\n".join(json.dumps(row) for row in ordered) + "\n]}\n"


def key_of(row):
    return row["coll"], row["topology"], row["ranks"]


def take(root, name, rows):
    """The rows with those of a tuning file in place of their like."""
    name = os.path.normpath(name).replace(os.sep, "/")
    if not name.startswith(RESULTS):
        raise Wrong(f"{name}: must lie in {RESULTS}, so that whoever reads the rows finds it")
    data = read(root, name, "tpcomm-tuning/1")
    if not data["rows"]:
        raise Wrong(f"{name}: it has no rows")
    taken = []
    first = data["rows"][0].get("dtype", "any")
    for any_dtype in (False, True):  # rows of one dtype go before those of any
        for row in data["rows"]:
            if (row.get("dtype", "any") == first) != any_dtype:
                continue
            taken.append({**row, "from": name, "dtype": "any" if any_dtype else row["dtype"]})
            if taken[-1]["dtype"] == "any":
                del taken[-1]["dtype"]
    for number, row in enumerate(taken):
        if row.get("source") != "measured":
            raise Wrong(f"{name}: rows[{number}] is not measured")
        check_row(root, f"{name}: rows[{number}]", row)
    modes = {}
    for row in taken:
        modes.setdefault(key_of(row), set()).update((True, False) if row.get("capturing") is None else (row["capturing"],))
    # Measured for captured calls alone, or eager ones alone: the others keep the rows they had.
    def stays(row):
        covered = modes.get(key_of(row), set())
        return len(covered) < 2 and row.get("capturing") not in covered
    return taken + [row for row in rows if stays(row)]


def put(root, name, text):
    """Replaced whole or not at all."""
    path = os.path.join(root, name)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--root", default=HERE)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--take", nargs="+", default=[], metavar="FILE")
    options = parser.parse_args()
    try:
        rows = read_rows(options.root)
        for name in options.take:
            rows = take(options.root, os.path.relpath(name, options.root) if os.path.isabs(name) else name, rows)
        text = header(rows)
        if not options.check:
            put(options.root, ROWS, rows_text(rows))
            put(options.root, HEADER, text)
            return 0
        with open(os.path.join(options.root, HEADER), encoding="utf-8") as file:
            have = file.read()
    except (Wrong, OSError, KeyError, TypeError, AttributeError) as why:
        print(f"builtin_rows: {type(why).__name__ + ': ' if not isinstance(why, (Wrong, OSError)) else ''}{why}")
        return 2
    if have == text:
        return 0
    print(f"{HEADER} is not what {ROWS} says: run tools/builtin_rows.py")
    print("".join(difflib.unified_diff(have.splitlines(True), text.splitlines(True), HEADER, "should be", n=0)))
    return 1


if __name__ == "__main__":
    sys.exit(main())
