#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the kernels' machine code: no stack and no spills, few registers, packets as 128-bit strong system accesses, no fence but where
a failure is reported and before the ring's flags, no load through the read-only cache, no multicast (I10); nor does the library ask the driver for
any. A block's threads meet all together in one place of the code, and once more where the next kernel is released: synccheck wants one place.

usage: check_code.py --nvcc NVCC --root DIR [--built FOLDER]
  --built   the folder of the build's own objects, with what nvcc kept and said of them; else the kernels are compiled anew, which takes as long
            as the build
The instructions are looked at with cuobjdump or nvdisasm where there is one, else in PTX.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

ARCHITECTURE = "sm_90"
KERNELS = {"src/custom_ar/oneshot.cu": 24, "src/custom_ar/twoshot.cu": 15, "src/custom_ar/raw.cu": 4, "src/custom_ar/ring.cu": 12,
           "src/fused/oneshot_f32.cu": 6, "src/fused/oneshot_f16.cu": 14, "src/fused/oneshot_bf16.cu": 14, "src/fused/twoshot_f32.cu": 4,
           "src/fused/twoshot_f16.cu": 10, "src/fused/twoshot_bf16.cu": 10, "src/fused/norm_rows.cu": 18}  # how many are in each


def registers_allowed(kernel):
    """64 leave half an SM to other kernels, in blocks of 544 threads; two-shot, and eight ranks, need a few more."""
    if "norm_rows" in kernel:
        return 64
    if "fused_" in kernel:  # a block a row: three blocks of 288 threads an SM, where they do not hold eight ranks' packets or wide rows
        return 72 if re.search(r"(__half|bfloat16)Li[24]ELi[12]E", kernel) else 96
    if "ring_" in kernel:  # a block of 576 threads an SM
        return 96
    return 72 if re.search(r"twoshot_fast|oneshot_fast.*Li8E", kernel) else 64


def may_spill(kernel):
    """A few words, of rows wider than 8192 elements that are f32, or not aligned: nobody's hot path."""
    return re.search(r"fused_(one|two)shotI(f|6__half)Li0ELi4E", kernel)


def meetings_allowed(kernel):
    return 2 if re.search(r"(oneshot|twoshot).*Lb1EEv", kernel) else 1  # EARLY


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout}")
    return done.stdout


def check_resources(listing, want):
    """What ptxas -v says of each kernel."""
    wrong, kernels, kernel, function = [], 0, "?", "?"
    for line in listing.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            kernel = found[1]
            kernels += 1
        elif found := re.search(r"Function properties for (\S+)", line):
            function = found[1]
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if any(int(found[i]) for i in (1, 2, 3)) and not (may_spill(function) and int(found[2]) <= 64):
                wrong.append(f"{function} (in {kernel}): {line.strip()}")
        elif found := re.search(r"Used (\d+) registers", line):
            if int(found[1]) > registers_allowed(kernel):
                wrong.append(f"{kernel}: {found[1]} registers, allowed are {registers_allowed(kernel)}")
    if kernels != want:
        wrong.append(f"{kernels} kernels, want {want}")
    return wrong


def check_sass(listing):
    wrong, kernel, packets, fences, meetings = [], None, {}, {}, {}
    for line in listing.splitlines():
        if found := re.search(r"^\s*(?:\.section\s+\.text\.|Function : )(\w+)", line):
            kernel = found[1]
            packets[kernel], fences[kernel], meetings[kernel] = set(), 0, 0
        elif kernel is not None:
            fences[kernel] += "MEMBAR" in line
            meetings[kernel] += re.search(r"\bBAR\.SYNC\S* 0x0 ;", line) is not None
            packets[kernel].update(re.findall(r"\b((?:LDG|STG)\.E\.128\.STRONG\.SYS)", line))
            if re.search(r"\bLDG\S*\.CONSTANT", line):
                wrong.append(f"{kernel}: a load through the read-only cache: {line.strip()}")
    for kernel, kinds in packets.items():
        if len(kinds) != 2 and "norm_rows" not in kernel:  # the norm alone has no peers
            wrong.append(f"{kernel}: packets are not 128-bit strong system accesses; there is {', '.join(kinds) or 'none'}")
        allowed = 3 if "ring_" in kernel else 1  # the ring's two, before flags; the PTX says that the other is where a failure is reported
        if fences[kernel] > allowed:
            wrong.append(f"{kernel}: {fences[kernel]} fences, allowed are {allowed}")
        if meetings[kernel] > meetings_allowed(kernel):
            wrong.append(f"{kernel}: the block meets in {meetings[kernel]} places, allowed are {meetings_allowed(kernel)}")
    return wrong if packets else ["no kernel in the listing"]


def check_ptx(listing, has_packets):
    wrong, function, meetings = [], "", {}
    for line in listing.splitlines():
        if found := re.match(r"\s*(?:\.visible |\.weak )?\.(?:entry|func)\b.*?(\w+)\($", line.rstrip()):
            function = found[1]
        if re.search(r"\b(fence|membar)\.", line) and not re.search("report_failure|ring_", function):
            wrong.append(f"{function}: a fence outside the report of a failure: {line.strip()}")
        if re.search(r"\b(bar|barrier)(\.cta)?\.sync(\.aligned)?\s+0;", line):
            meetings[function] = meetings.get(function, 0) + 1
        if "multimem" in line:  # no kernel needs multicast, so that a machine which refuses it loses nothing
            wrong.append(f"{function}: multicast: {line.strip()}")
        if re.search(r"\bld\.global\S*\.nc\b", line):
            wrong.append(f"{function}: a load through the read-only cache: {line.strip()}")
    for kernel, places in meetings.items():
        if places > meetings_allowed(kernel):
            wrong.append(f"{kernel}: the block meets in {places} places, allowed are {meetings_allowed(kernel)}")
    if has_packets and not meetings:
        wrong.append("no kernel's block meets")
    for access in ("ld.relaxed.sys.global.v2.b64", "st.relaxed.sys.global.v2.b64"):
        if has_packets and access not in listing:
            wrong.append(f"no {access}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--built")
    options = parser.parse_args()
    tools = [os.path.dirname(os.path.realpath(options.nvcc)), os.environ.get("PATH", "")]
    cuobjdump = shutil.which("cuobjdump", path=os.pathsep.join(tools))
    nvdisasm = shutil.which("nvdisasm", path=os.pathsep.join(tools))
    compiler = [options.nvcc, "-std=c++17", "-O3", "-fmad=false", f"-arch={ARCHITECTURE}"]
    if os.environ.get("CUDAHOSTCXX"):
        compiler += ["-ccbin", os.environ["CUDAHOSTCXX"]]
    compiler += [f"-I{os.path.join(options.root, folder)}" for folder in ("include", "src")]
    if not cuobjdump and not nvdisasm:
        print("neither cuobjdump nor nvdisasm: the instructions are looked at in PTX")

    def compiled(source, folder):
        """(what ptxas -v says, cubin, PTX) of a source."""
        if options.built:
            name = os.path.join(options.built, "kept", os.path.basename(source)[:-3])
            with open(os.path.join(options.built, os.path.basename(source) + ".o.log"), encoding="utf-8") as file:
                return file.read(), f"{name}.{ARCHITECTURE}.cubin", f"{name}.ptx"
        path = os.path.join(options.root, source)
        cubin, ptx = (os.path.join(folder, source.replace("/", "_") + end) for end in (".cubin", ".ptx"))
        run(*compiler, "-ptx", "-o", ptx, path)
        return run(*compiler, "-Xptxas", "-v", "-cubin", "-o", cubin, path), cubin, ptx

    def check(source, want, folder):
        said, cubin, ptx = compiled(source, folder)
        wrong = check_resources(said, want)
        if cuobjdump:
            wrong += check_sass(run(cuobjdump, "--dump-sass", cubin))
        elif nvdisasm:
            wrong += check_sass(run(nvdisasm, "-c", cubin))
        with open(ptx, encoding="utf-8") as file:
            return wrong + check_ptx(file.read(), "norm_rows" not in source)

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = sum(pool.map(lambda item: check(*item, folder), KERNELS.items()), [])
    for folder, _, names in os.walk(os.path.join(options.root, "src")):
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                if "Multicast" in file.read():
                    wrong.append(f"{os.path.join(folder, name)}: asks the driver for multicast")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
