#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that includes go down the layers only (docs/architecture.md), and that what belongs in one file stays there.

usage: check_layers.py [--root DIR]     exit 0 clean, 1 with a line "file:line: why" for each break
"""
import argparse
import os
import re
import sys

BACKENDS = {"custom_ar", "fused", "nccl_backend", "cpu_backend"}
BELOW_BACKEND = {"base", "device", "bootstrap", "peer_mem", "topology", "health"}

# Folder of src/: the folders whose headers it may include beside its own. One row a folder, lower layers first.
MAY_INCLUDE = {
    "base": set(),
    "device": {"base"},
    "bootstrap": {"base"},
    "peer_mem": {"base", "device", "bootstrap"},
    "topology": {"base", "device", "bootstrap"},
    "health": {"base", "device", "bootstrap"},
    "backend": BELOW_BACKEND,
    "custom_ar": BELOW_BACKEND | {"backend"},
    "fused": BELOW_BACKEND | {"backend"},
    "nccl_backend": BELOW_BACKEND | {"backend"},
    "cpu_backend": BELOW_BACKEND | {"backend"},
    "dispatch": {"base", "topology", "backend"},
    "graph_capture": BELOW_BACKEND | {"backend"},
    "coordinator": BELOW_BACKEND | {"backend", "dispatch", "graph_capture"},
}
# Files that may include more than their folder's row.
EXTRA = {
    "src/coordinator/backends.c": BACKENDS,
}
# Single headers open to a folder that may not include the rest of their folder.
EXTRA_HEADERS = {
    "fused": {f"src/custom_ar/{name}" for name in ("signal.cuh", "vec.cuh", "reduce.cuh", "parts.cuh", "ar_abi.h", "launch.cuh", "custom_ar.h", "share.h")},
}
# Outside src/: the project's headers that files of a folder may include, beside headers of that folder itself.
# None: any. Longest match wins.
OUTSIDE = {
    "include": set(),
    "bench": {"include/tpcomm.h", "src/base/json.h", "src/base/status.h", "src/base/clock.h"},
    "tools": {"include/tpcomm.h", "src/base/json.h", "src/base/status.h", "src/base/clock.h"},
    "python": {"include/tpcomm.h"},
    "examples": {"include/tpcomm.h"},
    "tests": None,
    "tests/package": {"include/tpcomm.h", "tests/check.h"},
}
# The public header needs nothing but these.
PUBLIC_SYSTEM = {"stddef.h", "stdint.h"}
# What only some files of src/ may name: pattern, those files, why.
ONLY_IN = [
    (re.compile(r"#\s*include\s*[<\"](cjson/)?cJSON\.h"), re.compile(r"src/base/json\w*\.[ch]"), "cJSON is used by src/base/json*.c alone"),
    (re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b"), re.compile(r"src/base/(env|hook)\.c"),
     "the environment is read by src/base/env.c alone"),
    (re.compile(r"\bdlm?open\s*\("), re.compile(r"src/base/shlib\.c"), "libraries are loaded by src/base/shlib.c alone"),
]
SUFFIXES = (".c", ".h", ".cu", ".cuh", ".cc", ".cpp", ".hpp", ".inc")
INCLUDE = re.compile(r"^\s*#\s*(?:include|include_next|import)\b\s*(.*)$")


def without_comments(text):
    """The text with comments blanked, and the same with string and character constants blanked too; lines stay where they are."""
    plain, bare = [], []
    i, state = 0, ""
    while i < len(text):
        two = text[i:i + 2]
        char = text[i]
        if state == "" and two in ("/*", "//"):
            state = two
            plain.append("  ")
            bare.append("  ")
            i += 2
            continue
        if state == "/*" and two == "*/":
            state = ""
            plain.append("  ")
            bare.append("  ")
            i += 2
            continue
        if state == "//" and char == "\n":
            state = ""
        if state in ("/*", "//"):
            blank = "\n" if char == "\n" else " "
            plain.append(blank)
            bare.append(blank)
        elif state in ('"', "'"):
            if char == "\\" and i + 1 < len(text):
                plain.append(two)
                bare.append(" \n" if two[1] == "\n" else "  ")
                i += 2
                continue
            if char == state or char == "\n":
                state = ""
            plain.append(char)
            bare.append(char if char in "\n\"'" else " ")
        else:
            if char in "\"'":
                state = char
            plain.append(char)
            bare.append(char)
        i += 1
    return "".join(plain).split("\n"), "".join(bare).split("\n")


def source_files(root):
    for top in ("src", "include", "bench", "tools", "python", "examples", "tests"):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(f for f in folders if not f.startswith((".", "build")))
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def resolve(root, path, name, quoted):
    """The project's file that an include means, relative to root, or None."""
    for base in ((os.path.dirname(path), "tests", "bench") if quoted else ()) + ("src", "include"):
        candidate = os.path.normpath(os.path.join(base, name)).replace(os.sep, "/")
        if not candidate.startswith("..") and os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def area(path):
    """("src", folder) of a file of the library, else (longest key of OUTSIDE, "")."""
    parts = path.split("/")
    if parts[0] == "src":
        return "src", parts[1] if len(parts) > 2 else ""
    keys = [k for k in OUTSIDE if path.startswith(k + "/")]
    return max(keys, key=len), ""


def why_not(path, target):
    """Why path must not include target; None if it may."""
    if path == target:
        return None
    top, folder = area(path)
    if top == "src":
        if folder not in MAY_INCLUDE:
            return f"src/{folder} is not in the table of layers (tools/check_layers.py)"
        if target == "include/tpcomm.h":
            return None
        if not target.startswith("src/"):
            return f"the library includes nothing of {target.split('/')[0]}/"
        target_folder = area(target)[1]
        if target_folder not in MAY_INCLUDE:
            return f"src/{target_folder} is not in the table of layers (tools/check_layers.py)"
        allowed = {folder} | MAY_INCLUDE[folder] | EXTRA.get(path, set())
        if target_folder in allowed or target in EXTRA_HEADERS.get(folder, set()):
            return None
        if target_folder in BACKENDS and folder == "coordinator":
            return "coordinator/backends.c is the only file that names backends"
        if target_folder in BACKENDS and folder in ("dispatch", "graph_capture"):
            return f"{folder} never includes a backend's folder ({target_folder})"
        rows = list(MAY_INCLUDE)
        way = "up to" if rows.index(target_folder) > rows.index(folder) else "across to"
        return f"goes {way} {target_folder}; {folder} may include {', '.join(sorted(MAY_INCLUDE[folder])) or 'nothing'} only"
    allowed = OUTSIDE[top]
    if allowed is None or target in allowed or target.startswith(top + "/"):
        return None
    return f"{top}/ may include {', '.join(sorted(allowed)) or 'no header of the project'} only, not {target}"


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        plain, bare = without_comments(file.read())
    for number, (line, code) in enumerate(zip(plain, bare), 1):
        match = INCLUDE.match(line)
        if match:
            what = match.group(1).strip()
            name = what[1:].split(">" if what.startswith("<") else '"')[0] if what[:1] in ("<", '"') else None
            if name is None:
                yield number, f"include of a macro ({what}) cannot be checked: name the file"
                continue
            target = resolve(root, path, name, what[0] == '"')
            if target is None and what[0] == '"':
                yield number, f'"{name}" is nowhere in the project: a header of the system goes in <>'
            elif target is None and area(path)[0] == "include" and name not in PUBLIC_SYSTEM:
                yield number, f"the public header includes {', '.join(sorted(PUBLIC_SYSTEM))} only, not {name}"
            elif target is not None:
                why = why_not(path, target)
                if why:
                    yield number, f'"{name}": {why}'
        if path.startswith("src/"):
            for pattern, files, why in ONLY_IN:
                if not files.fullmatch(path) and pattern.search(line if match else code):
                    yield number, why


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    args = parser.parse_args()
    files = list(source_files(args.root))
    breaks = [f"{path}:{number}: {why}" for path in files for number, why in check_file(args.root, path)]
    if not files:
        breaks.append(f"{args.root}: no source files found")
    print("\n".join(breaks) if breaks else f"layers: {len(files)} files, includes go down only")
    return 1 if breaks else 0


if __name__ == "__main__":
    sys.exit(main())
