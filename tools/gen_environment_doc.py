#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write docs/environment.md from the one table of variables, TPC_ENV_LIST in src/base/env.h.

usage: gen_environment_doc.py [--root DIR] [--check]
  --check   write nothing; exit 1 with the differing lines if the page is not what the table says
exit 0 done or equal, 1 different, 2 the table cannot be read
"""
import argparse
import difflib
import os
import re
import sys

COLUMNS = ("id", "name", "kind", "scope", "default", "minimum", "maximum", "unit", "allowed", "help")
KINDS = ("BOOL", "U64", "WORD", "TEXT")
SCOPES = (
    ("RANK", "Who a process is and how ranks meet",
     "Each process has its own. Usually the launcher says all this and none is set by hand ([launch.md](launch.md))."),
    ("SHARED", "Settings of the group",
     "Must agree on all ranks: a rank where one is unset takes rank 0's value; a rank where it is set to something else makes init "
     "fail with `TPCOMM_ERR_CONFIG_MISMATCH`, naming both values."),
    ("LOCAL", "Settings of one process", "May differ between ranks."),
)
HEAD = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made from src/base/env.h by tools/gen_environment_doc.py; change it there. -->
# Environment variables

Read by each way in (`tpcomm_init_env` and its like), never by a collective; those of the log and of cJSON once per process. They win over the fields of `tpcomm_config_t`, which win over
the tuning file, which wins over what is built in; only a call's own flag wins over them.

- A variable that is set to nothing counts as unset.
- A value that is not allowed makes init fail with `TPCOMM_ERR_CONFIG`; the text names the variable, the value and what is allowed.
- A name that begins with `TPCOMM_` and is none of these is told once in a warning, with the nearest name there is. (Names that begin
  with `TPCOMM_TEST_` and `TPCOMM_BENCH_` belong to the project's tests and bench.)
- Switches take `1`, `true`, `on`, `yes` and `0`, `false`, `off`, `no`. Numbers are decimal digits alone: no sign, point, exponent or
  unit. The case of switches and words, and blanks around them and around numbers, do not matter.
"""


def unquote(cell):
    """The text of one or more adjacent C string literals; other cells as they are."""
    pieces = re.findall(r'"((?:[^"\\]|\\.)*)"', cell)
    return "".join(pieces).replace('\\"', '"').replace("\\\\", "\\") if cell.startswith('"') else cell


def read_table(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    block = re.search(r"#define TPC_ENV_LIST\(X\)[^\n]*\\\n((?:[^\n]*\\\n)*[^\n]*)\n", text)
    if not block:
        raise ValueError(f"{path}: no TPC_ENV_LIST")
    rows = []
    for line in block.group(1).split("\n"):
        line = line.rstrip("\\").strip()
        found = re.fullmatch(r"X\((.*)\)", line)
        cells = [unquote(cell.strip()) for cell in re.findall(r'\s*((?:"(?:[^"\\]|\\.)*"|[^",]+)+)\s*(?:,|$)', found.group(1))] if found else []
        if len(cells) != len(COLUMNS):
            raise ValueError(f"{path}: {len(cells)} columns, want {len(COLUMNS)}: {line}")
        row = dict(zip(COLUMNS, cells))
        if row["kind"] not in KINDS or row["scope"] not in [scope[0] for scope in SCOPES]:
            raise ValueError(f"{path}: kind or scope not known: {line}")
        rows.append(row)
    return rows


def values(row):
    if row["kind"] == "BOOL":
        return "switch"
    if row["kind"] == "U64":
        return f"{row['minimum']} to {row['maximum']}" + (f" {row['unit']}" if row["unit"] else "")
    if row["kind"] == "WORD":
        return ", ".join(f"`{word}`" for word in row["allowed"].split("|"))
    return "text"


def page(rows):
    text = HEAD
    for scope, title, about in SCOPES:
        text += f"\n## {title}\n\n{about}\n\n| variable | values | default | meaning |\n| --- | --- | --- | --- |\n"
        for row in rows:
            if row["scope"] != scope:
                continue
            default = f"`{row['default']}`" if row["default"] else "unset"
            text += f"| `TPCOMM_{row['name']}` | {values(row)} | {default} | {row['help'].replace('|', chr(92) + '|')} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    place = os.path.join(options.root, "docs", "environment.md")
    try:
        wanted = page(read_table(os.path.join(options.root, "src", "base", "env.h")))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if not options.check:
        with open(place, "w", encoding="utf-8") as file:
            file.write(wanted)
        return 0
    present = ""
    if os.path.exists(place):
        with open(place, encoding="utf-8") as file:
            present = file.read()
    differences = list(difflib.unified_diff(present.splitlines(), wanted.splitlines(), "docs/environment.md", "src/base/env.h", lineterm="", n=0))
    for line in differences:
        print(line)
    if differences:
        print("docs/environment.md is not what src/base/env.h says: run tools/gen_environment_doc.py")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
