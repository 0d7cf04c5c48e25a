#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make bench/histograms again from the traces of the Azure Public Dataset, which are not shipped.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
    cat <<END
usage: scripts/make_histograms.sh [--bench FILE] [--check] TRACE_DIR
  TRACE_DIR     holds AzureLLMInferenceTrace_code.csv and AzureLLMInferenceTrace_conv.csv as published at
                https://github.com/Azure/AzurePublicDataset (data/), or azure_llm_2023_code.csv and
                azure_llm_2023_conv_head.csv (the first 10,771 rows of conv)
  --bench FILE  the tpcomm-bench to use; default: build/bench/tpcomm-bench
  --check       write nothing; fail if a shipped histogram differs from what comes out now
END
}
fail() {
    printf 'make_histograms.sh: %s\n' "$*" >&2
    exit 2
}

bench=$root/build/bench/tpcomm-bench
check=0
traces=
while [ $# -gt 0 ]; do
    case $1 in
    --bench) bench=${2:?--bench wants a file} && shift ;;
    --check) check=1 ;;
    --help | -h) usage && exit 0 ;;
    -*) fail "unknown option $1; --help lists all" ;;
    *) [ -z "$traces" ] || fail "more than one folder: $traces, $1" && traces=$1 ;;
    esac
    shift
done
[ -n "$traces" ] || { usage >&2 && exit 2; }
[ -x "$bench" ] || fail "no $bench: build it, or name it with --bench"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shipped=$root/bench/histograms

# Put a trace at $work/NAME: as it is, or cut from what is published; then it must be the very file.
take() { # NAME PUBLISHED LINES SHA256
    if [ -f "$traces/$1" ]; then
        cp "$traces/$1" "$work/$1"
    elif [ -f "$traces/$2" ]; then
        head -n "$3" "$traces/$2" >"$work/$1"
    else
        fail "neither $1 nor $2 in $traces"
    fi
    printf '%s  %s\n' "$4" "$work/$1" | sha256sum --check --quiet - || fail "$1 is not the file the histograms were made from"
}
take azure_llm_2023_code.csv AzureLLMInferenceTrace_code.csv 8820 54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6
take azure_llm_2023_conv_head.csv AzureLLMInferenceTrace_conv.csv 10772 00a6deed7e76da3217946fbcc57b27a982f08ef27d7a9dae41fc29243014a27e

credit() { # PART
    echo "Azure Public Dataset, AzureLLMInferenceTrace_$1, Microsoft, https://github.com/Azure/AzurePublicDataset, CC BY 4.0" \
        "(https://creativecommons.org/licenses/by/4.0/). Cite: Patel et al., Splitwise: Efficient generative LLM inference using" \
        "phase splitting, ISCA 2024. Changed: a histogram simulated from its arrival times and token counts."
}
make() { # TRACE PART LOAD [OPTION ...]
    local name=$1.$3.json
    "$bench" trace --input "$work/$1.csv" --output "$work/$name" --credit "$(credit "$2")" "${@:4}" >/dev/null
    ! grep -q '"reached":[[:space:]]*false' "$work/$name" || fail "$name: the target was not reached"
    if [ $check = 1 ]; then
        cmp "$work/$name" "$shipped/$name" || exit 1
    else
        cp "$work/$name" "$shipped/$name"
    fi
}

# All loads but those that no time scale reaches (code with its prompts on the same engine is saturated at 26).
code=azure_llm_2023_code
conv=azure_llm_2023_conv_head
make $code code published
make $code code batch8 --target-batch 8
make $code code pd_published --prefill-elsewhere
make $conv "conv (its first 10,771 rows)" published
make $conv "conv (its first 10,771 rows)" pd_published --prefill-elsewhere
for batch in 8 32 128; do
    make $code code pd_batch$batch --prefill-elsewhere --target-batch $batch
    make $conv "conv (its first 10,771 rows)" batch$batch --target-batch $batch
    make $conv "conv (its first 10,771 rows)" pd_batch$batch --prefill-elsewhere --target-batch $batch
done
[ $check = 1 ] || ln -sf $conv.batch32.json "$shipped/default.json"
[ "$(readlink "$shipped/default.json")" = $conv.batch32.json ] || fail "default.json is not $conv.batch32.json"
