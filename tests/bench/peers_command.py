# SPDX-License-Identifier: Apache-2.0
"""Check the sweep's peers by a stand-in for NCCL on host memory: NCCL through the library, called directly and in symmetric windows, by turns in
one run, every element checked; what NCCL's log says of its choices; and the reason where there is no NCCL, or no window.

usage: peers_command.py TPCOMM_BENCH_HOOKED ROOT NCCL_FAKE NCCL_FAKE_SMALL
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

BENCH, ROOT, FAKE, SMALL = (os.path.abspath(argument) for argument in sys.argv[1:5])
sys.path.insert(0, os.path.join(ROOT, "tools"))
import json_schema  # noqa: E402

PATHS = ["nccl", "nccl_direct", "nccl_window"]


class Peers(unittest.TestCase):
    def sweep(self, *more, code=0, ranks=("--threads",), paths=PATHS, library=FAKE, sizes=("1K", "16K"), **variables):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = subprocess.run([BENCH, "sweep", "--device", "cpu", "-n", "20", "-w", "2", "-b", sizes[0], "-e", sizes[1], "-f", "16", "--path",
                                   ",".join(paths), "--json", path, *ranks, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=100, env={**os.environ, "TPCOMM_TEST_HOOKS": "set@nccl_on_cpu:1", "TPCOMM_NCCL_PATH": library,
                                                    "TPCOMM_BENCH_NCCL_ON_HOST": "1", **variables})
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(list(json_schema.check(os.path.join(ROOT, "docs/schema/sweep.json"), [path])), [])
            with open(path, encoding="utf-8") as file:
                return json.load(file), done.stdout, done.stderr

    def test_by_turns(self):
        for ranks in (("--threads", "--ranks", "3"), ("--processes",)):
            data, _, err = self.sweep("--place", "out", ranks=ranks)
            self.assertEqual(err, "")
            self.assertEqual([(row["bytes"], row["path_asked"], row["path"]) for row in data["rows"]],
                             [(size, name, name) for size in (1024, 16384) for name in PATHS])
            for row in data["rows"]:
                measured = row["out_of_place"]
                self.assertEqual((measured["wrong"], measured["as_expected"], row["refused"]), (0, True, None))
                self.assertGreater(measured["checked"], 0)
                # The library's counters know of its own calls alone.
                self.assertEqual(measured["path_calls"], {"nccl": measured["calls"]} if row["path"] == "nccl" else {})
            self.assertIn("NCCL 2.28.9", data["manifest"]["settings"]["nccl_direct"])

    def test_collectives_in_place_in_chains(self):
        for op in ("all_reduce", "broadcast", "all_gather", "reduce_scatter"):
            data, _, _ = self.sweep("--op", op, "--chain", "-d", "f32", sizes=("3000", "3000"))
            self.assertEqual(data["checked"]["wrong"], 0)
            for row in data["rows"]:
                self.assertEqual(row["chain"] is None, row["path"] == "nccl_window")
                self.assertGreater(row["in_place"]["checked"], 0)
        data, _, _ = self.sweep("--op", "barrier")
        self.assertEqual([row["refused"] for row in data["rows"]], [None, "NCCL has no such collective", "NCCL has no such collective"])

    def test_wrong_element(self):
        """A wrong first element, of the third call of rank 1's communicators, is found where it was made."""
        data, _, err = self.sweep("--place", "out", sizes=("16K", "16K"), paths=["nccl_direct"], code=1, NCCL_FAKE_FAULTS="wrong@1:22")
        self.assertEqual(data["checked"]["wrong"], 1)
        self.assertIn("called directly", err)

    def test_evidence(self):
        before = set(glob.glob("/tmp/tpcomm-nccl-*"))
        data, out, _ = self.sweep("--place", "out", "--nccl-evidence")
        ring = [{"algorithm": "RING", "protocol": "LL", "channels": 2}, {"algorithm": "RING", "protocol": "SIMPLE", "channels": 4}]
        window = {"algorithm": "symmetric", "protocol": "AllReduce_AGxLL_R", "channels": 8}
        # One communicator serves direct calls with and without windows; the stand-in says symmetric once it has windows.
        self.assertEqual([row["nccl"] for row in data["rows"]], [ring[0], window, window, ring[1], window, window])
        self.assertEqual(data["manifest"]["settings"]["nccl_transports"], "P2P/CUMEM 4")
        self.assertIn("RING, SIMPLE, 4 channels", out)
        self.assertIn("its eager times are not for comparing", out)
        data, _, _ = self.sweep("--place", "out", "--nccl-evidence", ranks=("--processes",), paths=["nccl_direct"], NCCL_FAKE_LOG="numbers")
        self.assertEqual([row["nccl"]["protocol"] for row in data["rows"]], ["LL", "SIMPLE"])
        end = time.monotonic() + 60  # other tests, which run beside this one, have theirs for a moment
        while set(glob.glob("/tmp/tpcomm-nccl-*")) - before and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(set(glob.glob("/tmp/tpcomm-nccl-*")) - before, set())

    def test_what_is_missing(self):
        for library, variables, reason in ((FAKE, {"NCCL_FAKE_WINDOWS": "missing"}, "ncclCommWindowRegister: invalid usage"),
                                           (FAKE, {"NCCL_FAKE_WINDOWS": "none"}, "no symmetric memory here"),
                                           (SMALL, {}, "has no ncclCommWindowRegister")):
            data, _, _ = self.sweep("--place", "out", sizes=("1K", "1K"), library=library, paths=["nccl_direct", "nccl_window"], **variables)
            self.assertEqual([row["path"] for row in data["rows"]], ["nccl_direct", None])
            self.assertIn(reason, data["rows"][1]["refused"])
        data, _, _ = self.sweep("--place", "out", sizes=("1K", "1K"), paths=["auto", "nccl_direct"], NCCL_FAKE_FAULTS="id@0")
        self.assertIn("ncclGetUniqueId: unhandled system error", data["rows"][1]["refused"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
