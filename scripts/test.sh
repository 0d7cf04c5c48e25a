#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All tests: set up, build, ctest. A test may skip only with the label gpu, ib or torch, or netns where this machine forbids network
# namespaces, and says why; any other skip fails.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/setup-common.sh"

usage() {
    cat <<END
usage: scripts/test.sh [--yes] [--werror] [--build-dir DIR] [CTEST ARGUMENT ...]
  --yes            install what is missing, with sudo (as root that needs no asking)
  --werror         warnings are errors, as in CI
  --build-dir DIR  default: build
Everything else goes to ctest: -R NAME, -L unit, -V, --repeat until-fail:10 ...
END
}

werror=()
while [ $# -gt 0 ]; do
    case $1 in
    --yes) tpc_yes=1 ;;
    --werror) werror=(-DTPCOMM_WERROR=ON) ;;
    --build-dir) tpc_build_dir=$(realpath -m "${2:?--build-dir wants a directory}") && shift ;;
    --help | -h) usage && exit 0 ;;
    *) break ;;
    esac
    shift
done

tpc_setup cc cxx make cmake cjson_header cjson_library python pypackages pkgconfig
tpc_configure -DTPCOMM_BUILD_TESTS=ON ${werror[@]+"${werror[@]}"}
tpc_build
tpc_ctest "$tpc_build_dir" "$@"
