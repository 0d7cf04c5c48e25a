# SPDX-License-Identifier: Apache-2.0
"""Check that a trace of a million rows is read and simulated within 200 MB, and right: it is a short trace many times over.

usage: trace_million.py TPCOMM_BENCH [SANITIZER]   (a sanitizer's own memory is not counted)
"""
import json
import os
import resource
import subprocess
import sys
import tempfile

BENCH, SANITIZER = os.path.abspath(sys.argv[1]), sys.argv[2:] not in ([], [""])
ROWS, LIMIT_KIB = 1000000, 200 * 1000 * 1000 // 1024

# 100 s apart, ten requests each: far enough that each ten end before the next begin, so that counts are multiples.
with tempfile.TemporaryDirectory() as folder:
    results = []
    for rows in (10, ROWS):
        trace, output = os.path.join(folder, "trace.csv"), os.path.join(folder, "out.json")
        with open(trace, "w", encoding="ascii") as file:
            file.write("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
            file.writelines("%d.%d,m,%d,%d,1,l\n" % (i // 10 * 100, i % 10, 100 + i % 10 * 300, 2 + i % 10) for i in range(rows))
            file.write("%d,m,1,1,2,l\n" % (rows * 100))  # so that the last ten run to their end too
        subprocess.run([BENCH, "trace", "--input", trace, "--output", output], check=True, stdout=subprocess.DEVNULL)
        with open(output, encoding="utf-8") as file:
            results.append(json.load(file))
peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
few, many = results
if many["source"]["requests"] != ROWS + 1:
    sys.exit(f"{many['source']['requests']} requests, want {ROWS + 1}")
for key in ("decode_only", "mixed", "decode_part"):
    want = {tokens: count * ROWS // 10 for tokens, count in few[key].items()}
    if key == "mixed":  # the one request at the end comes once
        want["1"] = few[key]["1"]
    if many[key] != want:
        sys.exit(f"{key}: {many[key]}, want {want}")
print(f"peak {peak_kib} KiB")
if peak_kib > LIMIT_KIB and not SANITIZER:
    sys.exit(f"peak memory {peak_kib} KiB, allowed are {LIMIT_KIB}")
