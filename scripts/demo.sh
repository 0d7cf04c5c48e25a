#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What AllReduce costs for real decode traffic, on this machine: set up, build, replay a shipped histogram. Without a GPU, or a CUDA
# compiler, with 2 ranks on the cpu device; with one GPU 2 ranks share it; with more each rank has one of its own, up to 8.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/setup-common.sh"

# As many decode iterations as fit 8 seconds. One iteration that also works on a prompt would take most of that.
defaults=(--histogram bench/histograms/default.json --model llama-3.1-70b --ranks 2 --phase decode --budget-s 8)

# In a container /dev has the GPUs that were handed in. The driver is not asked: it takes seconds, and cmake and the bench say more.
count_gpus() {
    local devices=(/dev/nvidia[0-9]*)
    [ -e "${devices[0]}" ] && echo ${#devices[@]} || echo 0
}
has_nvcc() { tpc_any_exists "${CUDACXX:-/nowhere}" /usr/local/cuda*/bin/nvcc || command -v "${CUDACXX:-nvcc}" >/dev/null; }

usage() {
    cat <<END
usage: scripts/demo.sh [--yes] [--build-dir DIR] [REPLAY OPTION ...]
  --yes            install what is missing, with sudo (as root that needs no asking)
  --build-dir DIR  default: build
Everything else goes to \`tpcomm-bench replay\`, in place of the demo's own option of that name or beside them: --ranks 4,
--phase all --budget-s 60, --json out.json ...
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
gpus=$(count_gpus)
if [ "$gpus" -gt 0 ] && has_nvcc && ! grep -qs '^TPCOMM_CUDA:STRING=OFF$' "$tpc_build_dir/CMakeCache.txt"; then
    tpc_configure -DTPCOMM_CUDA=ON
else
    tpc_configure
fi
tpc_build tpcomm-bench
cd "$tpc_root"
if [ "$gpus" -gt 0 ] && grep -q '^-- tpcomm: CUDA build' "$tpc_build_dir/configure.log" && [[ " $* " != *" --device"[\ =]"cpu "* ]]; then
    ranks=$((gpus < 2 ? 2 : gpus < 8 ? gpus : 8))
    defaults=("${defaults[@]/#2/$ranks}" --mode graph)
    [ "$gpus" -ge 2 ] || tpc_say 'one GPU: 2 ranks share it'
fi
replay=("${tpc_build_dir#"$tpc_root"/}/bench/tpcomm-bench" replay)
for ((i = 0; i < ${#defaults[@]}; i += 2)); do
    case ${defaults[i]} in --model) names='--model|--hidden' ;; --ranks) names='--ranks|-n' ;; *) names=${defaults[i]} ;; esac
    [[ " $* " =~ \ ($names)[\ =] ]] || replay+=("${defaults[@]:i:2}")
done
replay+=("$@")
printf '\n$ %s\n\n' "${replay[*]}"
exec "${replay[@]}"
