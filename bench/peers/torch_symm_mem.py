#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch's symmetric memory, one-shot and two-shot, and NCCL through torch: all_reduce of bf16 in CUDA graphs, one rank a GPU.

exit 0, 1 a wrong element, 77 nothing to run here
usage: torchrun --nproc-per-node N torch_symm_mem.py [--min-bytes N] [--max-bytes N] [--calls N] [--replays N] [--json FILE]
"""
import os
import sys

from gpu_peer import PRIMERS, Report, nothing, parse, sizes, slowest

PERIOD = 4099


def ways(torch, symm_mem, dist, group, buffer, out, count):
    """Name and call of each way to sum the first count elements of buffer; the result is what the call returns."""
    part = buffer[:count]
    name = group.group_name
    yield "nccl", lambda: dist.all_reduce(out[:count]), True
    ops = torch.ops.symm_mem
    if hasattr(ops, "one_shot_all_reduce"):
        yield "one_shot", lambda: ops.one_shot_all_reduce(part, "sum", name), False
    if hasattr(ops, "two_shot_all_reduce_"):
        yield "two_shot", lambda: ops.two_shot_all_reduce_(part, "sum", name), False


def measure(torch, dist, call, options):
    """Samples of this rank in us."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(PRIMERS):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(options.calls):
            call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    samples = []
    for replay in range(options.replays + PRIMERS):
        dist.barrier()
        torch.cuda.synchronize()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if replay >= PRIMERS:
            samples.append(start.elapsed_time(end) * 1000 / options.calls)
    return samples


def fill(torch, rank, count, device):
    """0 or 1 in a fixed pattern of the rank."""
    index = torch.arange(count, device=device) % PERIOD
    return (((index * 7919 + rank * 104729) >> 3) & 1).to(torch.bfloat16)


def check(torch, result, ranks, count, device):
    want = sum(fill(torch, rank, count, device).float() for rank in range(ranks)).to(torch.bfloat16)
    return int((result.view(torch.int16) != want.view(torch.int16)).sum().item())


def main():
    options = parse(__doc__.split("\n", maxsplit=1)[0]).parse_args()
    try:
        import torch  # pylint: disable=import-outside-toplevel
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel
        import torch.distributed._symmetric_memory as symm_mem  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        nothing(f"torch with symmetric memory is not there ({error}); it is optional, nccl_allreduce.py needs no torch")
    if "RANK" not in os.environ:
        nothing("start it by torchrun --nproc-per-node N")
    rank, ranks, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if torch.cuda.device_count() <= local or ranks < 2:
        nothing(f"{ranks} ranks want a GPU each, at least two: rank {rank} sees {torch.cuda.device_count()}")
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl", device_id=device)
    group = dist.group.WORLD
    most = options.max_bytes // 2
    buffer = symm_mem.empty(most, dtype=torch.bfloat16, device=device)
    symm_mem.rendezvous(buffer, group)
    out = torch.empty(most, dtype=torch.bfloat16, device=device)
    version = f"{torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"
    report = Report(options, "torch", version, ranks, torch.cuda.get_device_name(local)) if rank == 0 else None
    for size in sizes(options):
        count = size // 2
        for way, call, in_out in ways(torch, symm_mem, dist, group, buffer, out, count):
            (out if in_out else buffer)[:count].copy_(fill(torch, rank, count, device))
            torch.cuda.synchronize()
            dist.barrier()
            result = call()
            wrong = check(torch, out[:count] if in_out else result[:count], ranks, count, device)
            samples = measure(torch, dist, call, options)
            gathered = [None] * ranks
            dist.all_gather_object(gathered, (samples, wrong))
            if report:
                report.add(size, way, slowest([g[0] for g in gathered]), sum(g[1] for g in gathered))
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(report.end() if report else 0)


if __name__ == "__main__":
    main()
