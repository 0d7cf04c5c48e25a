# SPDX-License-Identifier: Apache-2.0
"""Check that the examples build against an installed tpcomm by the very lines of README, and print what they say: hello and mesh as processes,
two_ranks as threads, fused with a norm, hello.py with the installed library."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

os.environ.pop("PYTHONUNBUFFERED", None)  # a line and its end would be two writes, between which another rank's may come

SUM = "rank {} of {}: the sum is {}"
# Name: ranks (0: it makes them itself), lines that come out.
EXPECTED = {
    "two_ranks.c": (0, ["rank 0 of 2: 3 6 9", "rank 1 of 2: 3 6 9"]),
    "hello.c": (3, [SUM.format(rank, 3, 6) for rank in range(3)]),
    "hello.py": (2, [SUM.format(rank, 2, 3) for rank in range(2)]),
    "fused.c": (2, [f"rank {rank} of 2: residual 3 -3, out 0.5 -0.5" for rank in range(2)]),
    "mesh.c": (4, ["tp: {0,1} {2,3}", "cp: {0} {1} {2} {3}", "pp: {0} {1} {2} {3}", "dp: {0,2} {1,3}", "ep: {0,1,2,3}",
                   "rank 0: tp sum 3, dp sum 202", "rank 1: tp sum 3, dp sum 204", "rank 2: tp sum 12, dp sum 202",
                   "rank 3: tp sum 12, dp sum 204"]),
}


def run(command, **keywords):
    """What it prints; ends this test if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **keywords)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {command}\n{done.stdout}")
    return done.stdout


def check(args, name, command, environment):
    """Run an example on its ranks; compare what it prints."""
    ranks, wanted = EXPECTED[name]
    if ranks:
        command = [args.bench, "run", "-n", str(ranks), "--timeout-s", "60", "--no-prefix", "--", *command]
    printed = run(command, env={**os.environ, **environment}).strip().split("\n")
    if sorted(printed) != sorted(wanted):
        sys.exit(f"{name} printed {printed}, wanted are {wanted}")
    print(f"{name}: {' '.join(command)}")


def readme_block(args, language, pattern):
    """The lines of README's first block of a language under "Embed it" that hold a pattern."""
    with open(os.path.join(args.source, "README.md"), encoding="utf-8") as file:
        text = file.read().split("## Embed it", 1)[1]
    for block in re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        lines = [line for line in block.strip().split("\n") if re.search(pattern, line)]
        if lines:
            return lines
    sys.exit(f"README has no {language} block with {pattern}")


def by_pkg_config(args, prefix, folder):
    """README's lines, one for each library, with an example in place of server.c."""
    libdir = next(place for place, folders, _ in os.walk(prefix) if "pkgconfig" in folders)
    found = {"PKG_CONFIG_PATH": os.path.join(libdir, "pkgconfig"), "LD_LIBRARY_PATH": libdir}
    for line in readme_block(args, "sh", r"^cc server\.c"):
        for name in EXPECTED:
            if name.endswith(".c"):
                program = os.path.join(folder, name[:-2])
                # README's line is for a path without blanks, as users have them.
                command = line.replace("server.c", f'"{args.source}/examples/{name}"', 1).split("#")[0] + f' -o "{program}"'
                run(["bash", "-c", re.sub(r"^cc\b", f'"{args.cc}" -Wall -Wextra -Werror', command)], env={**os.environ, **found})
                check(args, name, [program], found)


def by_cmake(args, prefix, folder):
    """README's find_package and target_link_libraries in a project of our own."""
    project = os.path.join(folder, "project")
    os.mkdir(project)
    shutil.copy(os.path.join(args.source, "examples", "hello.c"), os.path.join(project, "server.c"))
    with open(os.path.join(project, "CMakeLists.txt"), "w", encoding="utf-8") as file:
        lines = readme_block(args, "cmake", r"find_package|target_link_libraries")
        file.write("\n".join(["cmake_minimum_required(VERSION 3.22)", "project(server C)", "add_executable(server server.c)", *lines, ""]))
    run([args.cmake, "-S", project, "-B", os.path.join(project, "build"), "-G", args.generator, f"-DCMAKE_C_COMPILER={args.cc}",
         f"-DCMAKE_PREFIX_PATH={prefix}"])
    run([args.cmake, "--build", os.path.join(project, "build")])
    check(args, "hello.c", [os.path.join(project, "build", "server")], {})


def from_python(args, prefix, folder):
    """The module alone, away from the source tree, with the library where the dynamic loader finds it."""
    shutil.copytree(os.path.join(args.source, "python", "tpcomm"), os.path.join(folder, "tpcomm"))
    libdir = next(place for place, _, names in os.walk(prefix) if "libtpcomm.so" in names)
    environment = {"PYTHONPATH": folder, "LD_LIBRARY_PATH": libdir}
    used = run([sys.executable, "-c", "from tpcomm import library_path; print(library_path)"], env={**os.environ, **environment}).strip()
    if not used.startswith("libtpcomm.so.0."):
        sys.exit(f"Python took {used} instead of the installed library")
    check(args, "hello.py", [sys.executable, os.path.join(args.source, "examples", "hello.py")], environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cmake", "generator", "build", "source", "cc", "bench"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    untold = {name for name in os.listdir(os.path.join(args.source, "examples")) if name.endswith((".c", ".py"))} - EXPECTED.keys()
    if untold:
        sys.exit(f"examples that this test does not run: {', '.join(sorted(untold))}")
    with tempfile.TemporaryDirectory(prefix="tpcomm-examples-") as folder:
        prefix = os.path.join(folder, "prefix")
        run([args.cmake, "--install", args.build, "--prefix", prefix])
        by_pkg_config(args, prefix, folder)
        by_cmake(args, prefix, folder)
        from_python(args, prefix, folder)


if __name__ == "__main__":
    main()
