# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What scripts/demo.sh, scripts/test.sh and .ci/run share: find what is missing, configure, build, run ctest. Sourced, not run.

tpc_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tpc_yes=0                   # --yes: install with sudo what is missing
tpc_build_dir=$tpc_root/build
tpc_jobs=$(nproc 2>/dev/null || echo 2)

tpc_say() { printf '%s\n' "$*"; }
tpc_fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 2
}

# ---- what is missing

tpc_version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
tpc_compiles() { # LANGUAGE COMPILER HEADER
    command -v "$2" >/dev/null && printf '#include <%s>\nint main(void) { return 0; }\n' "$3" | "$2" -x "$1" -fsyntax-only - 2>/dev/null
}
tpc_has_cc() { tpc_compiles c "${CC:-cc}" stdio.h; }
tpc_has_cxx() { tpc_compiles c++ "${CXX:-c++}" cstdio; }
tpc_has_make() { command -v ninja >/dev/null || command -v make >/dev/null; }
tpc_has_cmake() { command -v cmake >/dev/null && tpc_version_at_least "$(cmake --version | sed -n '1s/[^0-9]*//p')" 3.22; }
tpc_has_python() { command -v python3 >/dev/null && python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'; }
# What tests/python needs, in one of the Pythons that its run.py looks at.
tpc_has_pypackages() {
    local python
    for python in "${TPCOMM_TEST_PYTHON:-}" "$tpc_build_dir/venv/bin/python3" python3 /usr/bin/python3; do
        [ -z "$python" ] || ! "$python" -c 'import setuptools, ensurepip, numpy, pip, pytest, venv, wheel' 2>/dev/null || return 0
    done
    return 1
}
tpc_has_pkgconfig() { command -v pkg-config >/dev/null; }
tpc_any_exists() {
    local file
    for file in "$@"; do [ ! -e "$file" ] || return 0; done
    return 1
}
tpc_has_cjson_header() {
    tpc_any_exists {/usr,/usr/local,"${CONDA_PREFIX:-/nowhere}"}/include/cjson/cJSON.h || tpc_compiles c "${CC:-cc}" cjson/cJSON.h
}
tpc_has_cjson_library() {
    [ -n "${TPCOMM_CJSON_PATH:-}" ] ||
        tpc_any_exists {/usr,/usr/local,"${CONDA_PREFIX:-/nowhere}"}/lib{,64}/libcjson.so.1 /usr/lib/*/libcjson.so.1 ||
        { PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q 'libcjson\.so\.1 '; }
}

# One row a need: name, what it is, packages of apt, dnf, conda. tpc_has_NAME says whether it is here.
tpc_needs='
cc|a C compiler|build-essential|gcc|c-compiler
cxx|a C++ compiler|build-essential|gcc-c++|cxx-compiler
make|ninja or make|build-essential|make|make
cmake|cmake 3.22 or newer|cmake|cmake|cmake
cjson_header|the header of cJSON|libcjson-dev|cjson-devel|cjson
cjson_library|the library of cJSON|libcjson1|cjson|cjson
python|python3 3.9 or newer|python3|python3|python
pypackages|pytest and numpy for Python|python3-numpy python3-pip python3-pytest python3-setuptools python3-venv python3-wheel|python3-numpy python3-pip python3-pytest python3-setuptools python3-wheel|numpy pip pytest setuptools wheel
pkgconfig|pkg-config|pkg-config|pkgconf-pkg-config|pkg-config
'

# apt, dnf, conda or none. An active conda environment is what a user without root can install into.
tpc_package_manager() {
    if [ "$(id -u)" != 0 ] && [ -n "${CONDA_PREFIX:-}" ] && command -v conda >/dev/null; then
        echo conda
    elif command -v apt-get >/dev/null; then
        echo apt
    elif command -v dnf >/dev/null; then
        echo dnf
    elif command -v conda >/dev/null; then
        echo conda
    else
        echo none
    fi
}

# tpc_patiently COMMAND ...: up to four times, with a pause between: what asks a mirror may fail once.
tpc_patiently() {
    local pause
    for pause in 5 15 30; do
        "$@" && return
        tpc_say "failed (exit $?): $*; once more in $pause s" >&2
        sleep "$pause"
    done
    "$@"
}

# tpc_install_line MANAGER PACKAGE ...: the one line that installs them.
tpc_install_line() {
    local manager=$1 sudo=
    shift
    [ "$(id -u)" = 0 ] || sudo='sudo '
    case $manager in
    apt) echo "${sudo}apt-get update && ${sudo}apt-get install -y --no-install-recommends $*" ;;
    dnf) echo "${sudo}dnf install -y $*" ;;
    conda) echo "conda install -y -c conda-forge $*" ;;
    esac
}

# tpc_setup NEED ...: return where all is here; else install it as root or with --yes, or print the one line and exit 2.
tpc_setup() {
    local manager again=() missing=() packages=() name what apt dnf conda package line
    manager=$(tpc_package_manager)
    while IFS='|' read -r name what apt dnf conda; do
        [[ " $* " == *" $name "* ]] || continue
        "tpc_has_$name" && continue
        missing+=("$what")
        case $manager in apt) package=$apt ;; dnf) package=$dnf ;; *) package=$conda ;; esac
        [[ " ${packages[*]-} " == *" $package "* ]] || packages+=("$package")
    done <<<"$tpc_needs"
    [ ${#missing[@]} -gt 0 ] || return 0

    what=$(printf ', %s' "${missing[@]}")
    tpc_say "tpcomm needs what this machine lacks: ${what#, }" >&2
    [ "$manager" != none ] || tpc_fail "found none of apt-get, dnf and conda: install it by hand, then run this again"
    line=$(tpc_install_line "$manager" "${packages[@]}")
    if [ "$(id -u)" != 0 ] && [ "$tpc_yes" = 0 ]; then
        tpc_say "Install it by this line (scripts/${0##*/} --yes runs it for you):" >&2
        tpc_say "    $line" >&2
        exit 2
    fi
    tpc_say "installing: $line"
    # Where sudo asks for a password, once is enough.
    [ "$(id -u)" != 0 ] || again=(tpc_patiently)
    DEBIAN_FRONTEND=noninteractive ${again[@]+"${again[@]}"} bash -c "$line" >"${TMPDIR:-/tmp}/tpcomm-install.$$" 2>&1 </dev/null || {
        tail -n 15 "${TMPDIR:-/tmp}/tpcomm-install.$$" >&2
        rm -f "${TMPDIR:-/tmp}/tpcomm-install.$$"
        tpc_fail "could not install it; the line was: $line"
    }
    rm -f "${TMPDIR:-/tmp}/tpcomm-install.$$"
    hash -r
    for name in "$@"; do
        "tpc_has_$name" || tpc_fail "$name is still missing after: $line"
    done
}

# ---- build

# A step whose output matters only if it fails: tpc_quietly LOG WHAT COMMAND ...
tpc_quietly() {
    local log=$1 what=$2 start=$SECONDS
    shift 2
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 60 "$log" >&2
        tpc_fail "$what failed; the whole output is in $log"
    fi
    tpc_say "$what: $((SECONDS - start)) s"
}

# tpc_configure [CMAKE ARGUMENT ...]: make or refresh the build directory; its last line says what the build can do.
tpc_configure() {
    local home generator=()
    mkdir -p "$tpc_build_dir" 2>/dev/null || tpc_fail "cannot make $tpc_build_dir: name another place by --build-dir"
    [ -w "$tpc_build_dir" ] || tpc_fail "$tpc_build_dir belongs to another user: remove it, or name another place by --build-dir"
    if [ -f "$tpc_build_dir/CMakeCache.txt" ]; then
        home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$tpc_build_dir/CMakeCache.txt")
        # A moved or copied checkout brings a cache that names the old place.
        [ "$home" = "$tpc_root" ] || rm -rf "$tpc_build_dir/CMakeCache.txt" "$tpc_build_dir/CMakeFiles"
    fi
    if [ ! -f "$tpc_build_dir/CMakeCache.txt" ] && command -v ninja >/dev/null; then
        generator=(-G Ninja)
    fi
    if [ -n "${CONDA_PREFIX:-}" ] && [ -f "$CONDA_PREFIX/include/cjson/cJSON.h" ]; then
        generator+=("-DCMAKE_PREFIX_PATH=$CONDA_PREFIX")
        export TPCOMM_CJSON_PATH=${TPCOMM_CJSON_PATH:-$CONDA_PREFIX/lib/libcjson.so.1}
    fi
    tpc_quietly "$tpc_build_dir/configure.log" "configure" \
        cmake -S "$tpc_root" -B "$tpc_build_dir" ${generator[@]+"${generator[@]}"} "$@"
    grep '^-- tpcomm: ' "$tpc_build_dir/configure.log" | tail -n 1 | cut -c 4-
}

# tpc_build [TARGET ...]
tpc_build() {
    local target=()
    [ $# = 0 ] || target=(--target "$@")
    tpc_quietly "$tpc_build_dir/build.log" "build" \
        cmake --build "$tpc_build_dir" --parallel "$tpc_jobs" ${target[@]+"${target[@]}"}
}

# ---- tests

# tpc_ctest BUILD [CTEST ARGUMENT ...]: run tests, then judge the skips. ctest's own closing lines stand last.
tpc_ctest() {
    local build log junit status=0 skips=0
    build=$(cd "$1" && pwd) log=$build/test.log junit=$build/test-junit.xml
    shift
    rm -f "$junit" "$build/test.status"
    # A test takes a core, but for those that mostly wait (tests/CMakeLists.txt, WAITS): as many of these run beside.
    printf '{"version": {"major": 1, "minor": 0}, "local": [{"cores": [{"id": "0", "slots": %d}]}]}\n' "$tpc_jobs" >"$build/cores.json"
    {
        ctest --test-dir "$build" --output-on-failure --no-tests=error --output-junit "$junit" -j $((2 * tpc_jobs)) \
            --resource-spec-file "$build/cores.json" "$@" 2>&1 </dev/null ||
            echo $? >"$build/test.status"
    } | tee "$log"
    [ ! -f "$build/test.status" ] || status=$(cat "$build/test.status")
    if [ ! -f "$junit" ]; then
        [[ " $* " =~ " -N "|" --show-only" ]] || skips=1
    else
        ctest --test-dir "$build" --show-only=json-v1 >"$build/tests.json" 2>/dev/null
        python3 "$tpc_root/tools/check_skips.py" --junit "$junit" --tests "$build/tests.json" >"$build/skips.txt" || skips=$?
        if [ -s "$build/skips.txt" ]; then
            printf '\n%s\n' "$(cat "$build/skips.txt")"
            printf '\n%s\n' "$(sed -n '/tests passed, /,$p' "$log")"
        fi
    fi
    if [ "$skips" != 0 ] && [ "$status" = 0 ]; then
        printf '%s: failed: a test skipped that may not (see above), or there is no $junit\n' "${0##*/}" >&2
        status=1
    fi
    return "$status"
}
