# SPDX-License-Identifier: Apache-2.0
"""What the GPU peer scripts share: options, percentiles, the report. A sample is one replay of a graph of CALLS calls by CALLS, the slowest
rank's, as in `tpcomm-bench sweep --mode graph`; the data is 0 or 1, which every order of additions sums to the same bits."""
import argparse
import json
import math
import sys

CALLS, REPLAYS, PRIMERS = 50, 100, 3


def parse(about):
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--min-bytes", type=int, default=1024)
    parser.add_argument("--max-bytes", type=int, default=16 << 20)
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of a graph")
    parser.add_argument("--replays", type=int, default=REPLAYS, help="samples of a size; 100 or more for p50 and p95")
    parser.add_argument("--json", metavar="FILE")
    return parser


def nothing(text):
    """Nothing to run here: say why, as exit code 77."""
    print(f"{sys.argv[0].rsplit('/', 1)[-1]}: {text}", file=sys.stderr)
    sys.exit(77)


def sizes(options):
    size = options.min_bytes
    while size <= options.max_bytes:
        yield size
        size *= 2


def percentile(sorted_samples, permille):
    """Nearest rank."""
    return sorted_samples[max(math.ceil(len(sorted_samples) * permille / 1000) - 1, 0)]


def slowest(per_rank):
    """Sample by sample the greatest of the ranks', sorted."""
    return sorted(max(samples) for samples in zip(*per_rank))


def value(seed, rank, index):
    """0 or 1 from a few multiplications; the same in every library's script."""
    x = (seed * 0x9E3779B1 + rank * 0x85EBCA77 + index * 0xC2B2AE3D) & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x2C1B3C6D & 0xFFFFFFFF
    return (x >> 17) & 1


class Report:
    """Rows as they come, and a JSON file (tpcomm-peers/1) at the end."""

    def __init__(self, options, peer, version, ranks, where):
        self.options, self.wrong = options, 0
        self.data = {"schema": "tpcomm-peers/1", "peer": peer, "version": version, "ranks": ranks, "where": where, "dtype": "bf16",
                     "calls": options.calls, "rows": []}
        print(f"{peer} {version}, {ranks} ranks on {where}: bf16 sum, graph of {options.calls} calls, {options.replays} replays, us a call")
        print(f"{'bytes':>12} {'way':<18} {'p50':>9} {'p95':>9} {'wrong':>7}")

    def add(self, size, way, samples, wrong):
        row = {"bytes": size, "way": way, "n": len(samples), "wrong": wrong,
               "p50_us": percentile(samples, 500) if len(samples) >= 100 else None,
               "p95_us": percentile(samples, 950) if len(samples) >= 100 else None, "mean_us": sum(samples) / len(samples)}
        self.wrong += wrong
        self.data["rows"].append(row)
        shown = [f"{row[key]:9.2f}" if row[key] is not None else f"{'-':>9}" for key in ("p50_us", "p95_us")]
        print(f"{size:12d} {way:<18} {shown[0]} {shown[1]} {wrong:7d}", flush=True)

    def end(self):
        if self.options.json:
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump(self.data, file, indent=1)
                file.write("\n")
        return 1 if self.wrong else 0
