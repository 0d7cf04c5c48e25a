#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check what the built libraries export, import and need: names of tpcomm.h only, glibc only, nothing that ends the process.

usage: check_symbols.py --shared libtpcomm.so --static libtpcomm.a --header tpcomm.h [--foreign libcudart_static.a --own FOLDER]
--foreign names an archive that is linked into both: what it imports is not our doing, unless it ends the process. Then --own names the
folder of our own objects, which are checked one by one; those that nvcc made (*.cu.o) have its registration of kernels, at exit.
exit 0 clean, 1 with a line for each fault
"""
import argparse
import glob
import os
import re
import subprocess
import sys

# A library in somebody's server does not end it, take its signals, change its locale (a thread's own it may, for a moment) or write to
# its stdout.
FORBIDDEN = {
    "ends the process": "exit _exit _Exit quick_exit abort __assert_fail __assert_perror_fail __assert error error_at_line "
                        "err errx verr verrx raise",
    "handles signals": "signal sigaction sigset bsd_signal sysv_signal __sysv_signal sigvec sigaltstack",
    "runs at exit": "atexit on_exit",
    "changes the process's locale": "setlocale",
    "writes to stdout": "stdout printf vprintf puts putchar __printf_chk __vprintf_chk putchar_unlocked puts_unlocked",
    "leaves names behind": "shm_open shm_unlink shmget mq_open sem_open",
}
NEEDED = re.compile(r"^(libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|librt\.so\.1|ld-linux[-a-z0-9_.]*\.so\.\d+)$")


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def names(*command):
    """name (without its version) -> version, of what nm lists."""
    found = {}
    for line in run("nm", "-P", *command).split("\n"):
        fields = line.split(" ")
        if len(fields) < 2 or len(fields[1]) != 1:
            continue
        name, _, version = fields[0].partition("@")
        found[name] = version.lstrip("@")
    return found


def declared(header):
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.DOTALL)
    return set(re.findall(r"\bTPCOMM_API\b[^;{]*?\b(tpcomm_\w+)\s*\(", text)), \
        ".".join(re.search(rf"#define TPCOMM_VERSION_{part}\s+(\d+)", text).group(1) for part in ("MAJOR", "MINOR"))


def compare(what, exported, api):
    for name in sorted(exported - api):
        yield f"{what}: exports {name}, which tpcomm.h does not declare"
    for name in sorted(api - exported):
        yield f"{what}: does not export {name}, which tpcomm.h declares"


def imports(what, undefined, excused=frozenset()):
    for why, forbidden in FORBIDDEN.items():
        for name in sorted(undefined & set(forbidden.split())):
            if name not in excused or why == "ends the process":
                yield f"{what}: imports {name}: {why}"


def check_own(folder):
    """Our own objects, each by itself."""
    objects = sorted(glob.glob(os.path.join(folder, "**", "*.o"), recursive=True))
    objects = [place for place in objects if os.path.basename(place) != "tpcomm_whole.o"]  # all of them and the archive, as one
    if not objects:
        yield f"{folder}: has no objects"
    undefined = {}
    for line in run("nm", "-A", "-P", "-g", "--undefined-only", *objects).splitlines() if objects else []:
        place, _, rest = line.partition(": ")
        undefined.setdefault(place, set()).add(rest.split(" ")[0].partition("@")[0])
    for place in objects:
        excused = {"atexit"} if place.endswith(".cu.o") else frozenset()
        yield from imports(place, undefined.get(place, set()), excused)


def check_shared(path, api, version, excused):
    exported = names("-D", "--defined-only", path)
    node = f"TPCOMM_{version}"
    yield from compare(path, exported.keys() - {node}, api)
    for name, symbol_version in sorted(exported.items()):
        if name != node and symbol_version != node:
            yield f"{path}: {name} has version \"{symbol_version}\", want {node}"
    yield from imports(path, names("-D", "--undefined-only", path).keys(), excused)

    dynamic = run("readelf", "-dW", path)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    for library in needed:
        if not NEEDED.match(library):
            yield f"{path}: needs {library}, which is not glibc's"
    if not needed:
        yield f"{path}: needs no library at all: is it a shared library?"
    soname = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
    if soname != [f"libtpcomm.so.{version}"]:
        yield f"{path}: soname {soname}, want libtpcomm.so.{version}"
    if not re.search(r"\(FLAGS_1\).*\bNODELETE\b", dynamic):
        yield f"{path}: not linked with -z nodelete"
    for tag in ("TEXTREL", "RPATH", "RUNPATH"):
        if f"({tag})" in dynamic:
            yield f"{path}: has {tag}"
    if re.search(r"GNU_STACK.*\bRWE\b", run("readelf", "-lW", path)):
        yield f"{path}: wants an executable stack"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", required=True)
    parser.add_argument("--static", required=True)
    parser.add_argument("--header", required=True)
    parser.add_argument("--foreign")
    parser.add_argument("--own")
    args = parser.parse_args()
    if bool(args.foreign) != bool(args.own):
        parser.error("--foreign and --own go together")
    excused = names("-g", "--undefined-only", args.foreign).keys() | {"atexit"} if args.foreign else frozenset()
    api, version = declared(args.header)
    faults = [] if api else [f"{args.header}: declares no function"]
    faults += check_shared(args.shared, api, version, excused)
    faults += compare(args.static, names("-g", "--defined-only", args.static).keys(), api)
    faults += imports(args.static, names("-g", "--undefined-only", args.static).keys(), excused)
    faults += check_own(args.own) if args.own else []
    print("\n".join(faults) if faults else f"symbols: {len(api)} exported functions, glibc only")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
