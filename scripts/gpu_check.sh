#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with an NVIDIA GPU: builds, runs everything labelled gpu, once more under MPS and compute-sanitizer where they are here,
# measures, and keeps the run as RESULTS/DATE-gpu-check.json (docs/schema/testrun.json), for bench/results/. Asks nothing; needs
# cmake, nvcc and python3. It takes at most GPU_CHECK_SECONDS (default 290), the build with it; what these do not reach is skipped and said
# to be. A test that hangs takes its own time alone.
# usage: scripts/gpu_check.sh [RESULTS (default build-gpu/results) [COMMIT (default: git's)]]
set -uo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/setup-common.sh"
cd "$tpc_root" || exit 2
export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER

# Two processes of one GPU under MPS: kernels of both run at once, in one context of the daemon's.
under_mps() {
    command -v nvidia-cuda-mps-control >/dev/null || { echo "SKIP: nvidia-cuda-mps-control is not here"; exit 77; }
    local place status
    place=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$place/pipe CUDA_MPS_LOG_DIRECTORY=$place/log
    mkdir "$place/pipe" "$place/log"
    if ! timeout 20 nvidia-cuda-mps-control -d; then
        echo "SKIP: the MPS daemon does not start"
        rm -rf "$place"
        exit 77
    fi
    timeout 40 "$@"
    status=$?
    echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null
    [ "$status" = 0 ] || tail -n 5 "$place"/log/* 2>/dev/null
    rm -rf "$place"
    exit "$status"
}

sanitized() { # TOOL COMMAND ...
    local tool=$1 sanitizer
    shift
    sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) || { echo "SKIP: compute-sanitizer is not here"; exit 77; }
    # The kernels are in a forked child; blocking launches would keep ranks that share the GPU from meeting.
    # Under initcheck a fill of cuMem memory faults in processes that were forked, without tpcomm too (docs/gpu.md).
    [ "$tool" != initcheck ] || export TPCOMM_PEER_MEM=cudaipc
    exec "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 "$@"
}

case ${1:-} in
--under-mps) shift && under_mps "$@" ;;
--sanitized) shift && sanitized "$@" ;;
esac

results=$(realpath -m "${1:-build-gpu/results}") commit=${2:-} build=$tpc_root/build-gpu
mkdir -p "$results" || exit 2
begun=$SECONDS
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u | head -n 1 | tr -d .)
generator=()
! command -v ninja >/dev/null || generator=(-G Ninja)
cmake -S . -B "$build" "${generator[@]}" -DTPCOMM_CUDA=ON "-DTPCOMM_CUDA_ARCHITECTURES=${arch:-90}" -DCMAKE_BUILD_TYPE=Release \
    -DTPCOMM_BUILD_TESTS=ON >"$results/build.txt" 2>&1 &&
    cmake --build "$build" --parallel "$tpc_jobs" --target tpc_gpu_tests tpcomm-bench >>"$results/build.txt" 2>&1 || {
    grep -E -A 8 'error|FAILED|Error' "$results/build.txt" | head -n 60
    tpc_fail "the build failed; all of it stands in $results/build.txt"
}
echo "built in $((SECONDS - begun)) s for sm_${arch:-90}"
nvidia-smi --query-gpu=name,driver_version,pci.bus_id,clocks.sm,clocks.max.sm --format=csv | tee "$results/gpus.csv"
seconds=${GPU_CHECK_SECONDS:-290}

# Each checker over one rank alone whose peers' packets lie there already, and over two processes that share the GPU.
self=$tpc_root/scripts/gpu_check.sh
checkers=()
for tool in memcheck initcheck synccheck; do
    checkers+=(--also "gpu_alone under $tool='$self' --sanitized $tool '$build/tests/gpu/gpu_alone' 60")
    checkers+=(--also "gpu_graphs under $tool='$self' --sanitized $tool '$build/tests/gpu/gpu_graphs' short")
done
# Figures last, with what is left; the tests leave them 40 s, or GPU_CHECK_FIGURES.
python3 tools/gpu_testrun.py "$build" "$results" --seconds "$((seconds - ${GPU_CHECK_FIGURES:-40} - (SECONDS - begun)))" --commit "$commit" \
    --also "gpu_memory under MPS='$self' --under-mps '$build/tests/gpu/gpu_memory' processes" \
    --also "soak of 10 s='$build/bench/tpcomm-bench' soak --device cuda --ranks 2 --seconds 10" \
    "${checkers[@]}"
status=$?

measure() { # FILE SECONDS COMMAND ...
    local file=$1 limit=$2
    shift 2
    [ $((SECONDS - begun + 8)) -lt "$seconds" ] || { echo "no time left for: $*" && return; }
    echo "\$ $*" | tee "$results/$file"
    timeout "$limit" "$@" 2>&1 | tee -a "$results/$file"
}
sweep=("$build/bench/tpcomm-bench" sweep --device cuda --place out --row-ms 60)
measure demo.txt 30 "$tpc_root/scripts/demo.sh" --build-dir "$build" --budget-s 5 --json "$results/demo.json"
measure sweep-2-graph.txt 20 "${sweep[@]}" --ranks 2 --mode graph --json "$results/sweep-2-graph.json"
measure sweep-2-eager.txt 20 "${sweep[@]}" --ranks 2 --mode eager --json "$results/sweep-2-eager.json"
measure sweep-8-graph.txt 20 "${sweep[@]}" --ranks 8 --mode graph --json "$results/sweep-8-graph.json"
measure host.txt 15 "$build/bench/tpcomm-bench" host --device cuda --ranks 2 --json "$results/host.json"
measure sweep-2-extras.txt 40 "${sweep[@]}" -b 8K -e 1M -f 8 --ranks 2 --mode graph --cold --chain --footprint --arrivals --json "$results/sweep-2-extras.json"
measure replay.txt 25 "$build/bench/tpcomm-bench" replay --histogram bench/histograms/default.json --model llama-3.1-70b --ranks 2 \
    --phase decode --budget-s 5 --device cuda --mode graph --json "$results/replay.json"
exit "$status"
