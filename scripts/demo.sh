#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What AllReduce costs for real decode traffic, on this machine: set up, build, replay a shipped histogram with 2 ranks.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/setup-common.sh"

histogram=bench/histograms/default.json
replay=(--model llama-3.1-70b --ranks 2 --iterations 20)

usage() {
    cat <<END
usage: scripts/demo.sh [--yes] [--build-dir DIR] [REPLAY OPTION ...]
  --yes            install what is missing, with sudo (as root that needs no asking)
  --build-dir DIR  default: build
Everything else goes to \`tpcomm-bench replay\` behind the demo's own options, and wins over them: --ranks 4, --json out.json ...
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --yes) tpc_yes=1 ;;
    --build-dir) tpc_build_dir=$(realpath -m "${2:?--build-dir wants a directory}") && shift ;;
    --help | -h) usage && exit 0 ;;
    *) break ;;
    esac
    shift
done

tpc_setup cc make cmake cjson_header cjson_library
tpc_configure
tpc_build tpcomm-bench
bench=$tpc_build_dir/bench/tpcomm-bench
printf '\n$ %s\n\n' "${bench#"$tpc_root"/} replay --histogram $histogram ${replay[*]}${*:+ $*}"
cd "$tpc_root"
exec "$bench" replay --histogram "$histogram" "${replay[@]}" "$@"
