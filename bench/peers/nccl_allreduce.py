#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL called directly, without torch: ncclAllReduce of bf16 on two or more GPUs of this host, a thread a GPU, in CUDA graphs.

Loads libcuda.so.1 and libnccl.so.2 (or TPCOMM_NCCL_PATH, or --nccl) by ctypes. exit 0, 1 a wrong element, 77 nothing to run here
usage: nccl_allreduce.py [--ranks N] [--nccl FILE] [--min-bytes N] [--max-bytes N] [--calls N] [--replays N] [--json FILE]
"""
import ctypes
import glob
import os
import sys
import threading

from gpu_peer import PRIMERS, Report, nothing, parse, sizes, slowest, value

NCCL_BF16, NCCL_SUM, NON_BLOCKING, THREAD_LOCAL = 9, 0, 1, 1
PERIOD = 4099  # elements after which the data repeats: prime
ONE = 0x3F80  # 1 in bf16
LIMIT_S = 120  # that a rank waits for the others


def load(names, what):
    errors = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            errors.append(str(error))
    nothing(f"no {what}: {errors[-1] if errors else 'no file'}")


class Failed(Exception):
    pass


class Driver:
    """The few driver functions needed, each checked."""

    def __init__(self):
        self.functions = load(["libcuda.so.1"], "CUDA driver")
        self("cuInit", 0)

    def __call__(self, name, *arguments):
        code = getattr(self.functions, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self.functions.cuGetErrorName(code, ctypes.byref(text))
            raise Failed(f"{name}: {(text.value or b'?').decode()}")

    def count(self):
        number = ctypes.c_int()
        self("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def name(self, ordinal):
        device, text = ctypes.c_int(), ctypes.create_string_buffer(96)
        self("cuDeviceGet", ctypes.byref(device), ordinal)
        self("cuDeviceGetName", text, 96, device)
        return text.value.decode()


class Nccl:
    def __init__(self, path):
        folders = [p for base in sys.path for p in glob.glob(os.path.join(base, "nvidia/nccl/lib/libnccl.so.2"))]
        named = [p for p in (path, os.environ.get("TPCOMM_NCCL_PATH")) if p]
        self.functions = load(named[:1] or ["libnccl.so.2", *folders], "NCCL")
        self.functions.ncclGetErrorString.restype = ctypes.c_char_p
        number = ctypes.c_int()
        self("ncclGetVersion", ctypes.byref(number))
        self.version = f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"

    def __call__(self, name, *arguments):
        code = getattr(self.functions, name)(*arguments)
        if code != 0:
            raise Failed(f"{name}: {self.functions.ncclGetErrorString(code).decode()}")


def bits(kind, rank):
    """One period of inputs of a rank, or with rank None the place for sums, as bf16 bits."""
    return (ctypes.c_uint16 * PERIOD)(*[ONE if value(kind, rank, i) else 0 for i in range(PERIOD)])


def sums(ranks):
    """bf16 bits of the sums: whole numbers up to 16 are exact."""
    table = []
    for i in range(PERIOD):
        total = float(sum(value(1, rank, i) for rank in range(ranks)))
        table.append(int.from_bytes(bytes(ctypes.c_float(total)), "little") >> 16)
    return (ctypes.c_uint16 * PERIOD)(*table)


def repeat(table, count):
    whole = bytes(table) * (count // PERIOD + 1)
    return whole[:2 * count]


class Rank(threading.Thread):
    def __init__(self, job, rank):
        super().__init__(daemon=True)
        self.job, self.rank, self.error = job, rank, None
        self.samples, self.wrong = {}, {}

    def run(self):
        try:
            self.work()
        except (Failed, threading.BrokenBarrierError) as error:
            self.error = error
            self.job.together.abort()

    def meet(self):
        self.job.together.wait(LIMIT_S)

    def work(self):
        cuda, job = self.job.cuda, self.job
        device, context, self.stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        cuda("cuDeviceGet", ctypes.byref(device), self.rank)
        cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        cuda("cuCtxSetCurrent", context)
        cuda("cuStreamCreate", ctypes.byref(self.stream), NON_BLOCKING)
        self.buffers = [ctypes.c_uint64(), ctypes.c_uint64()]
        for buffer in self.buffers:
            cuda("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(job.options.max_bytes))
        self.events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self.events:
            cuda("cuEventCreate", ctypes.byref(event), 0)
        self.comm = ctypes.c_void_p()
        job.nccl("ncclCommInitRank", ctypes.byref(self.comm), job.ranks, job.unique_id, self.rank)
        for size in sizes(job.options):
            self.one_size(size)
        self.meet()
        job.nccl("ncclCommDestroy", self.comm)

    def one_size(self, size):
        cuda, job, count = self.job.cuda, self.job, size // 2
        graph, execution, ms = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
        cuda("cuMemcpyHtoD_v2", self.buffers[0], repeat(bits(1, self.rank), count), ctypes.c_size_t(size))
        cuda("cuMemsetD8_v2", self.buffers[1], 0xFF, ctypes.c_size_t(size))
        self.meet()
        self.all_reduce(count)  # NCCL sets up on first use, which a capture must not do
        cuda("cuStreamSynchronize", self.stream)
        self.meet()
        cuda("cuStreamBeginCapture_v2", self.stream, THREAD_LOCAL)
        for _ in range(job.options.calls):
            self.all_reduce(count)
        cuda("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        cuda("cuGraphInstantiateWithFlags", ctypes.byref(execution), graph, ctypes.c_ulonglong(0))
        samples = []
        for replay in range(job.options.replays + PRIMERS):
            self.meet()
            cuda("cuEventRecord", self.events[0], self.stream)
            cuda("cuGraphLaunch", execution, self.stream)
            cuda("cuEventRecord", self.events[1], self.stream)
            cuda("cuStreamSynchronize", self.stream)
            cuda("cuEventElapsedTime", ctypes.byref(ms), self.events[0], self.events[1])
            if replay >= PRIMERS:
                samples.append(ms.value * 1000 / job.options.calls)
        got = ctypes.create_string_buffer(size)
        cuda("cuMemcpyDtoH_v2", got, self.buffers[1], ctypes.c_size_t(size))
        want = repeat(self.job.expected, count)
        self.samples[size] = samples
        self.wrong[size] = 0 if got.raw == want else sum(got.raw[i:i + 2] != want[i:i + 2] for i in range(0, size, 2))
        self.meet()
        cuda("cuGraphExecDestroy", execution)
        cuda("cuGraphDestroy", graph)

    def all_reduce(self, count):
        self.job.nccl("ncclAllReduce", ctypes.c_void_p(self.buffers[0].value), ctypes.c_void_p(self.buffers[1].value), ctypes.c_size_t(count),
                      NCCL_BF16, NCCL_SUM, self.comm, self.stream)


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class Job:
    def __init__(self, options):
        self.options, self.cuda = options, Driver()
        gpus = self.cuda.count()
        self.ranks = options.ranks or gpus
        if gpus < 2 or self.ranks > gpus:
            nothing(f"{self.ranks} ranks want a GPU each and NCCL at least two: this process sees {gpus}")
        self.nccl, self.unique_id = Nccl(options.nccl), UniqueId()
        self.nccl("ncclGetUniqueId", ctypes.byref(self.unique_id))
        self.expected, self.together = sums(self.ranks), threading.Barrier(self.ranks)


def main():
    parser = parse(__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, default=0, help="GPUs; all unless given")
    parser.add_argument("--nccl", metavar="FILE", help="libnccl.so.2")
    options = parser.parse_args()
    try:
        job = Job(options)
    except Failed as error:
        nothing(str(error))
    ranks = [Rank(job, rank) for rank in range(job.ranks)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    for rank in ranks:
        if rank.error and not isinstance(rank.error, threading.BrokenBarrierError):
            sys.exit(f"nccl_allreduce.py: rank {rank.rank}: {rank.error}")
    report = Report(options, "nccl", job.nccl.version, job.ranks, job.cuda.name(0))
    for size in sizes(options):
        report.add(size, "graph", slowest([rank.samples[size] for rank in ranks]), sum(rank.wrong[size] for rank in ranks))
    sys.exit(report.end())


if __name__ == "__main__":
    main()
