# SPDX-License-Identifier: Apache-2.0
"""Check that an installed tpcomm serves other projects: by find_package and by pkg-config, shared and static, C11 and C++17, from
a path with a space, moved after installation, with nothing of the build tree left in it."""
import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONSUMER = os.path.join(HERE, "consumer")


def run(*command, **options):
    """Run a command, show it and its output if it fails, return its stdout."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {shlex.join(command)}\n{done.stdout}")
    return done.stdout


def cxx_beside(cc):
    """The C++ compiler that belongs to a C compiler."""
    folder, name = os.path.split(cc)
    for c, cxx in (("clang", "clang++"), ("gcc", "g++"), ("cc", "c++")):
        if c in name:
            found = shutil.which(os.path.join(folder, name.replace(c, cxx, 1))) or shutil.which(cxx)
            if found:
                return found
    sys.exit(f"no C++ compiler found to go with {cc}")


def check_files(prefix, build, source):
    """What is installed names neither where it was built nor where it was first installed."""
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith((".cmake", ".pc", ".h")) or os.path.islink(path):
                continue
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for trace in (build, source, "first place"):
                if trace in text:
                    sys.exit(f"{path} names {trace}")


def check_linked(program, shared):
    """A program loads libtpcomm.so if it is to, and not if it was linked to the archive."""
    if ("libtpcomm.so.0." in run("readelf", "-dW", program)) != shared:
        sys.exit(f"{program} is {'not ' if shared else ''}linked to the shared library")


def by_cmake(args, prefix, folder):
    build = os.path.join(folder, "by cmake")
    configure = [args.cmake, "-S", CONSUMER, "-G", args.generator, f"-DCMAKE_C_COMPILER={args.cc}",
                 f"-DCMAKE_CXX_COMPILER={cxx_beside(args.cc)}", f"-DCMAKE_PREFIX_PATH={prefix}"]
    run(*configure, "-B", build)
    run(args.cmake, "--build", build)
    for name in ("c_tpcomm", "c_tpcomm_static", "cc_tpcomm", "cc_tpcomm_static"):
        check_linked(os.path.join(build, name), not name.endswith("static"))
        print(f"find_package, {name}: {run(os.path.join(build, name)).strip()}")
    # Another minor release has another ABI until 1.0.
    refused = subprocess.run([*configure, "-B", build + " 0.9", "-DWANT_VERSION=0.9"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
    if refused.returncode == 0 or "tpcomm" not in refused.stdout:
        sys.exit(f"find_package(tpcomm 0.9) was not refused:\n{refused.stdout}")


def by_pkg_config(args, prefix, folder):
    libdir = next(os.path.join(f, "pkgconfig") for f, folders, _ in os.walk(prefix) if "pkgconfig" in folders)
    environment = {**os.environ, "PKG_CONFIG_PATH": libdir}

    def ask(*options):
        return run("pkg-config", *options, "tpcomm", env=environment).strip()

    compilers = {"c": ([args.cc, "-std=c11"], "consumer.c"), "c++": ([cxx_beside(args.cc), "-std=c++17"], "consumer.cc")}
    static = [ask("--variable=static_library").replace("\\ ", " ")]
    private = [flag for flag in shlex.split(ask("--static", "--libs")) if flag not in shlex.split(ask("--libs"))]
    ways = {"shared": shlex.split(ask("--libs")) + ["-pthread"], "static": static + private}
    for language, (compiler, source) in compilers.items():
        for way, libraries in ways.items():
            program = os.path.join(folder, f"by pkg-config {language} {way}")
            run(*compiler, "-Wall", "-Werror", *shlex.split(ask("--cflags")), os.path.join(CONSUMER, source), *libraries,
                "-o", program)
            check_linked(program, way == "shared")
            loaded = {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(libdir)} if way == "shared" else os.environ
            print(f"pkg-config, {language} {way}: {run(program, env=loaded).strip()}")
    if ask("--modversion") != args.version:
        sys.exit(f"pkg-config says version {ask('--modversion')}, want {args.version}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cmake", "generator", "build", "source", "cc", "version"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    if not shutil.which("pkg-config"):
        sys.exit("pkg-config not found")
    with tempfile.TemporaryDirectory(prefix="tpcomm package ") as folder:
        run(args.cmake, "--install", args.build, "--prefix", os.path.join(folder, "first place"))
        prefix = os.path.join(folder, "second place")
        os.rename(os.path.join(folder, "first place"), prefix)
        check_files(prefix, args.build, args.source)
        print(f"installed: {run(os.path.join(prefix, 'bin', 'tpcomm-bench'), '--version').strip()}")
        by_cmake(args, prefix, folder)
        by_pkg_config(args, prefix, folder)


if __name__ == "__main__":
    main()
