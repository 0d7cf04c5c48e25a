# SPDX-License-Identifier: Apache-2.0
"""Check that tpcomm.h alone compiles without a warning as C11 and as C++17, whatever flags change in the caller's ABI, with
every compiler that is here, and that types have the same sizes under all of them."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
# -fshort-enums changes the size of an enum, so no enum may cross the API; -Wpadded: no struct of it has holes or a padded tail.
FLAGS = [[], ["-fshort-enums"], ["-funsigned-char"], ["-O2", "-Wundef"], ["-Wpadded"]]
LANGUAGES = {"c": ["-std=c11", "-Wstrict-prototypes"], "c++": ["-std=c++17", "-Wold-style-cast"]}
COMPILERS = {"c": ["gcc", "clang", "cc"], "c++": ["g++", "clang++", "c++"]}
TYPES = ["tpcomm_status_t", "tpcomm_dtype_t", "tpcomm_op_t", "tpcomm_coll_t", "tpcomm_path_t", "tpcomm_device_kind_t"]
STRUCTS = ["tpcomm_config_t", "tpcomm_error_t", "tpcomm_call_t", "tpcomm_decision_t", "tpcomm_info_t", "tpcomm_rank_info_t",
           "tpcomm_stats_t"]


def program():
    lines = ["#include <tpcomm.h>", "#include <tpcomm.h>"]
    lines += ["#ifdef __cplusplus", "#define TPC_CHECK(c) static_assert(c, #c)", "#else",
              "#define TPC_CHECK(c) _Static_assert(c, #c)", "#endif"]
    lines += [f"TPC_CHECK(sizeof({name}) == 4);" for name in TYPES]
    lines += [f"TPC_CHECK(offsetof({name}, struct_size) == 0);" for name in STRUCTS]
    lines += ["int32_t version_of_header(void);", "int32_t version_of_header(void) { return TPCOMM_VERSION_NUMBER; }", ""]
    return "\n".join(lines)


def sizes_program():
    calls = "".join(f'printf("{name} %zu\\n", sizeof({name}));' for name in STRUCTS)
    return "#include <stdio.h>\n#include <tpcomm.h>\nint main(void) { " + calls + " return 0; }\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", required=True)
    parser.add_argument("--need", default=os.environ.get("TPCOMM_TEST_COMPILERS", ""), help="compilers that must be here")
    args = parser.parse_args()
    missing = [name for name in args.need.split() if not shutil.which(name)]
    if missing:
        sys.exit(f"compilers not found: {' '.join(missing)}")
    done, sizes = [], set()
    with tempfile.TemporaryDirectory() as folder:
        for language, flags in LANGUAGES.items():
            found = [name for name in COMPILERS[language] if shutil.which(name)]
            if not found:
                sys.exit(f"no {language} compiler found")
            for compiler in found:
                for more in FLAGS:
                    command = [compiler, "-x", language, *flags, *WARNINGS, *more, "-I", args.include]
                    subprocess.run([*command, "-fsyntax-only", "-"], input=program(), text=True, check=True)
                    out = os.path.join(folder, "sizes")
                    subprocess.run([*command, "-o", out, "-"], input=sizes_program(), text=True, check=True)
                    sizes.add(subprocess.run([out], stdout=subprocess.PIPE, text=True, check=True).stdout)
                done.append(compiler)
    if len(sizes) != 1:
        sys.exit("sizes differ between compilers or flags:\n" + "\n".join(sorted(sizes)))
    print(f"tpcomm.h compiles alone with {', '.join(done)}")


if __name__ == "__main__":
    main()
