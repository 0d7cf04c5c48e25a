# SPDX-License-Identifier: Apache-2.0
"""Check the histograms of real traces against ones that an independent simulation made: TRACE_DIR/*.csv and TRACE_DIR/hist/*.json.

usage: trace_expected.py TPCOMM_BENCH TRACE_DIR
Each file of hist names its trace, params and scale. Demanded are 0.5 % in iterations and mean, 2 % in the histograms; told is how
many are equal to the last count. Files tagged batchN are also searched for by --target-batch N.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

BENCH, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
NAMES = {"max_num_seqs": "--max-num-seqs", "budget": "--token-budget", "a_ms": "--iteration-ms", "b_ms": "--token-ms"}
BINS = ("decode_only", "mixed", "decode_part")


def run(want, output, *load):
    options = [text for key, option in NAMES.items() for text in (option, repr(want["params"][key]))]
    options += ["--prefill-elsewhere"] if want["params"]["prefill_elsewhere"] else []
    trace = os.path.join(FOLDER, want["trace"])
    subprocess.run([BENCH, "trace", "--input", trace, "--output", output, *options, *load], check=True, stdout=subprocess.DEVNULL)
    with open(output, encoding="utf-8") as file:
        return json.load(file)


def apart(got, want):
    keys = set(got) | set(want)
    return sum(abs(got.get(key, 0) - want.get(key, 0)) for key in keys) / max(1, sum(want.values()))


def main():
    files = sorted(glob.glob(os.path.join(FOLDER, "hist", "*.json")))
    equal = faults = 0
    with tempfile.TemporaryDirectory() as work:
        output = os.path.join(work, "out.json")
        for path in files:
            with open(path, encoding="utf-8") as file:
                want = json.load(file)
            got = run(want, output, "--time-scale", repr(want["scale"]))
            equal += all(got[key] == want[key] for key in ("iterations", "mean_decode_batch") + BINS)
            off = [f"{key} {got[key]}, want {want[key]}" for key in ("iterations", "mean_decode_batch")
                   if abs(got[key] - want[key]) > 0.005 * want[key]]
            off += [f"{key} {apart(got[key], want[key]):.4f} apart" for key in BINS if apart(got[key], want[key]) > 0.02]
            if "batch" in want["tag"]:
                target = float(want["tag"].split("batch")[1])
                found = run(want, output, "--target-batch", repr(target))
                if not found["reached"] or abs(found["mean_decode_batch"] - target) > 0.01 * target:
                    off.append(f"a target of {target}: mean {found['mean_decode_batch']}, reached {found['reached']}")
            for text in off:
                print(f"{path}: {text}", file=sys.stderr)
            faults += bool(off)
    print(f"{len(files)} histograms, {equal} of them equal to the last count, {faults} wrong")
    return 0 if files and not faults else 1


if __name__ == "__main__":
    sys.exit(main())
