# SPDX-License-Identifier: Apache-2.0
"""Check that tpcomm builds within another project, by add_subdirectory and by FetchContent, and adds nothing to it but the
libraries: no tests, no bench, no build type, no install rules."""
import argparse
import os
import sys
import tempfile

from install import HERE, run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cmake", "generator", "source", "cc"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    for way in ("add_subdirectory", "FetchContent"):
        with tempfile.TemporaryDirectory(prefix="tpcomm subproject ") as folder:
            build = os.path.join(folder, "build")
            run(args.cmake, "-S", os.path.join(HERE, "subproject"), "-B", build, "-G", args.generator, f"-DWAY={way}",
                f"-DTPCOMM_SOURCE={args.source}", f"-DCMAKE_C_COMPILER={args.cc}", "-DTPCOMM_CUDA=OFF")
            # The second way differs in configuration alone.
            if way == "add_subdirectory":
                run(args.cmake, "--build", build, "--parallel", "2")
                for program in ("outer", "outer_shared"):
                    print(f"{way}, {program}: {run(os.path.join(build, program)).strip()}")
                run(args.cmake, "--install", build, "--prefix", os.path.join(folder, "installed"))
                installed = sorted(name for _, _, names in os.walk(os.path.join(folder, "installed")) for name in names)
                if installed != ["outer"]:
                    sys.exit(f"installed with the outer project: {installed}")
            else:
                print(f"{way}: configured")


if __name__ == "__main__":
    main()
