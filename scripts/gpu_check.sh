#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures, builds and runs everything labelled gpu on this machine, then measures; results go to the folder given (default build-gpu/results).
# usage: scripts/gpu_check.sh [results folder]
set -euo pipefail
cd "$(dirname "$0")/.."
results=${1:-build-gpu/results}
mkdir -p "$results"
cmake -S . -B build-gpu -G Ninja -DTPCOMM_CUDA=ON -DTPCOMM_CUDA_ARCHITECTURES=90 -DCMAKE_BUILD_TYPE=Release
cmake --build build-gpu --target gpu_oneshot
nvidia-smi --query-gpu=name,driver_version,pci.bus_id,clocks.sm,clocks.max.sm --format=csv | tee "$results/gpus.csv"
set -o pipefail
timeout 200 build-gpu/tests/gpu/gpu_oneshot 2>&1 | tee "$results/gpu_oneshot.txt"
timeout 120 build-gpu/tests/gpu/gpu_oneshot time 2>&1 | tee "$results/gpu_oneshot_time.txt"
