# SPDX-License-Identifier: Apache-2.0
"""A short run of one fuzz target from its seeds, the same every time; what it finds on the way is thrown away.

usage: run.py FUZZ_TARGET SEEDS
exit 0 nothing found, 1 the input that breaks it stands in the output
"""
import os
import subprocess
import sys
import tempfile

RUNS = 6000

target, seeds = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    os.mkdir(os.path.join(folder, "found"))
    command = [target, f"-runs={RUNS}", "-seed=1", "-max_len=4096", "-rss_limit_mb=1024", "-timeout=20", f"-artifact_prefix={folder}/",
               os.path.join(folder, "found"), seeds]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        print(done.stderr[-8000:])
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    print(f"{name}: {file.read()[:4096]!r}")
        sys.exit(1)
    lines = [line for line in done.stderr.split("\n") if "DONE" in line]
    print(lines[-1] if lines else done.stderr[-500:])
    if not lines:
        sys.exit(1)
