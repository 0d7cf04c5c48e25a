# SPDX-License-Identifier: Apache-2.0
"""Tables of what a sweep (tpcomm-sweep/1) tells beside the times: chains, kernels, arrivals, NCCL's choices. For plot.py."""


def chain_cells(row, number):
    chain, bare = row.get("chain"), (row["out_of_place"] or {}).get("us")
    if not chain or not bare:
        return None
    typical = [us["p50_us"] if us["p50_us"] is not None else us["mean_us"] for us in (chain["us"], chain["without_call_us"], bare)]
    return [number(typical[0]), number(typical[1]), number(chain["extra_us"]), number(typical[2])]


def footprint_cells(row, number):
    kernel, beside = row.get("footprint"), row.get("gemm_beside")
    if not kernel:
        return None
    full = -(-kernel["blocks"] // kernel["blocks_per_sm"]) if kernel["blocks_per_sm"] else None
    cells = [str(kernel["blocks"]), str(kernel["threads"]), str(kernel["registers"]), str(full) if full is not None else "-"]
    slower = 100 * (beside["beside_us"] / beside["alone_us"] - 1) if beside and beside["alone_us"] else None
    return cells + ["-" if slower is None else f"{slower:.1f} %" + ("" if beside["covered"] else " (in part)"), number(beside and beside["call_us"])]


def arrival_cells(row, number):
    arrivals = row.get("arrivals")
    if not arrivals:
        return None
    return [number(arrivals[key]) for key in ("skew_us", "skew_p95_us", "from_last_us")] + [number(max(arrivals["wait_us"]))]


def nccl_cells(row, _):
    nccl = row.get("nccl")
    return nccl and [nccl["algorithm"], nccl["protocol"], str(nccl["channels"] or "-")]


EXTRAS = (
    ("In a chain (a kernel that writes the input, the call, one that reads the output), microseconds", chain_cells,
     ("chain", "without the call", "extra", "call alone")),
    ("Kernels of a call, and a matrix product beside it", footprint_cells,
     ("blocks", "threads", "registers", "SMs full", "product slower by", "call meanwhile, us")),
    ("Arrivals at a call by the GPUs' clocks, microseconds", arrival_cells, ("skew", "skew p95", "from the last arrival", "longest wait")),
    ("What NCCL chose", nccl_cells, ("algorithm", "protocol", "channels")),
)


def tables(data, number, size_text):
    """Markdown lines of what a sweep tells beside the times; number, size_text: how figures are written."""
    for title, cells_of, heads in EXTRAS:
        rows = [(row, cells_of(row, number)) for row in data["rows"]]
        if not any(cells for _, cells in rows):
            continue
        yield title + ":"
        yield ""
        yield "| bytes | path | " + " | ".join(heads) + " |"
        yield "| ---: | --- |" + " ---: |" * len(heads)
        for row, cells in rows:
            if cells:
                yield f"| {size_text(row['bytes'])} | {row['path_asked']} | " + " | ".join(cells) + " |"
        yield ""
