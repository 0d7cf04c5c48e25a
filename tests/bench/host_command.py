# SPDX-License-Identifier: Apache-2.0
"""Check that `tpcomm-bench host` measures what it was asked for, checks the results, refuses wrong use by name, and says
what the cpu device has not.

usage: host_command.py TPCOMM_BENCH ROOT
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

BENCH, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(ROOT, "tools"))
import json_schema  # noqa: E402


class Host(unittest.TestCase):
    def bench(self, *arguments):
        done = subprocess.run([BENCH, "host", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
        return done.returncode, done.stdout, done.stderr

    def test_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "host.json")
            for how, ranks in (("--threads", 3), ("--processes", 2)):
                code, out, err = self.bench("--device", "cpu", how, "--ranks", str(ranks), "--samples", "100", "--burst", "10", "--bytes", "8K,4000",
                                            "--json", path)
                self.assertEqual((code, err), (0, ""))
                self.assertEqual(list(json_schema.check(os.path.join(ROOT, "docs/schema/host.json"), [path])), [])
                with open(path, encoding="utf-8") as file:
                    data = json.load(file)
                self.assertEqual([(row["what"], row["bytes"]) for row in data["rows"]],
                                 [("launch", 0), ("nccl_alone", 8192), ("all_reduce", 8192), ("nccl_alone", 4000), ("all_reduce", 4000)])
                for row in data["rows"]:
                    self.assertEqual(row["us"]["n"], 100 if row["what"] == "all_reduce" else 0)
                    self.assertIsNone(row["over_launch_us"])  # nothing was launched
                    self.assertEqual(row["refused"] is None, row["what"] == "all_reduce")
                # Ten calls leave eight outputs, in each of ten rounds.
                self.assertEqual(data["checked"], {"elements": 10 * 8 * ranks * (8192 + 4000) // 2, "wrong": 0})
                self.assertIn("the cpu device launches no kernels", out)
                self.assertIn("NCCL works on GPUs", out)

    def test_refused_path(self):
        code, out, err = self.bench("--device", "cpu", "--threads", "--samples", "20", "--path", "local")
        self.assertEqual(code, 1)
        self.assertIn("only a group of one rank", out)
        self.assertIn("nothing was checked", err)

    def test_wrong_use(self):
        for arguments, piece in ((["--bytes", "8K,"], "--bytes 8K,: allowed are up to 8 sizes"), (["--bytes", "1"], "an element has 2 bytes"),
                                 (["--path", "auto,nccl"], "--path"), (["--threads", "--processes"], "contradict"),
                                 (["--json", "/nowhere/x.json"], "cannot write there")):
            code, out, err = self.bench("--device", "cpu", *arguments)
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(piece, err)
        self.assertIn("--burst", self.bench("--help")[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
