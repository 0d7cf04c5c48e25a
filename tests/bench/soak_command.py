# SPDX-License-Identifier: Apache-2.0
"""Check that `tpcomm-bench soak` draws the same for the same seed, checks every element, finds a planted wrong one and says how to repeat
it, makes all kinds of calls, and answers wrong use by name; and that the soaks kept in bench/results fit their schema, exact and flat.

usage: soak_command.py TPCOMM_BENCH ROOT
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

BENCH, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(ROOT, "tools"))
import json_schema  # noqa: E402

LIMIT = 100  # seconds that nothing here comes near
# A sanitizer must not keep for long what was freed: that would look like memory that grows.
ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4:thread_local_quarantine_size_kb=64"}
SCHEMA = os.path.join(ROOT, "docs/schema/soak.json")


class Soak(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.json = os.path.join(folder.name, "out.json")

    def bench(self, *arguments, env=None):
        done = subprocess.run([BENCH, "soak", "--device", "cpu", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=LIMIT, env={**ENVIRONMENT, **(env or {})})
        return done.returncode, done.stdout, done.stderr

    def read(self, path):
        self.assertEqual(list(json_schema.check(SCHEMA, [path])), [])
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def soak(self, *more, code=0, env=None):
        got, out, err = self.bench("--json", self.json, *more, env=env)
        self.assertEqual(got, code, out + err)
        return self.read(self.json), err

    def test_all_kinds_of_calls(self):
        for how in ("--processes", "--threads"):
            with self.subTest(how=how):
                data, err = self.soak(how, "--ranks", "3", "--stretches", "20", "-e", "64K", "--seed", "5")
                self.assertEqual((err, data["checked"]["wrong"], data["flat"]), ("", 0, True))
                self.assertGreater(data["checked"]["elements"], 100000)
                done = data["done"]
                self.assertGreaterEqual(len(done["calls"]), 4, done)
                self.assertLessEqual(set(done["path_steps"]), {"cpu_oneshot", "cpu_twoshot", "local", "fused_oneshot", "unfused"})
                self.assertGreater(done["in_place"], 0)
                self.assertGreater(done["misaligned"], 0)
                self.assertEqual((done["graphs"], done["replays"]), (0, 0))
                self.assertEqual(len(data["manifest"]["ranks"]), 3)
                self.assertEqual(sum(done["calls"].values()) // 3 >= data["samples"][-1]["calls"] // 2, True)

    def test_for_a_time(self):
        """How much is done in it is the clock's affair."""
        for how in ("--processes", "--threads"):
            with self.subTest(how=how):
                data, err = self.soak(how, "--ranks", "3", "--seconds", "1", "-e", "64K", "--seed", "5")
                self.assertEqual((err, data["checked"]["wrong"], data["flat"]), ("", 0, True))
                self.assertGreaterEqual(data["ran_s"], 1)

    def test_planted(self):
        """A soak goes on for its time after a wrong element: how many stretches follow is the clock's affair."""
        data, err = self.soak("--ranks", "2", "--seconds", "0.1", "--first", "3", "--seed", "1", code=1,
                              env={"TPCOMM_BENCH_FAULT": "wrong@3:4:0"})
        self.assertGreaterEqual(data["stretches"], 1)
        self.assertEqual(data["checked"]["wrong"], 1)
        self.assertIn("rank 1: step 4 of stretch 3; --seed 1 --first 3 begins there", err)
        self.assertIn("1 of ", err)
        self.assertIn("planted", data["caveats"][0])

    def test_same_seed(self):
        """A seed decides every call, whatever the clock and the kind of ranks: what was drawn, made and compared. Another seed, or other
        stretches, are other calls, and a stretch alone is what it is among others."""
        def stretches(first, count, seed, how):
            data, err = self.soak("--ranks", "2", how, "--first", str(first), "--stretches", str(count), "--seed", seed, "-e", "64K")
            self.assertEqual((err, data["stretches"], data["checked"]["wrong"]), ("", count, 0))
            return data
        whole, again = stretches(40, 12, "9", "--threads"), stretches(40, 12, "9", "--processes")
        for key in ("plan", "done", "checked"):
            self.assertEqual(whole[key], again[key])
        other = stretches(40, 12, "10", "--threads")
        for key in ("plan", "done", "checked"):
            self.assertNotEqual(whole[key], other[key])
        parts = [stretches(40, 5, "9", "--threads"), stretches(45, 7, "9", "--threads")]
        self.assertEqual(len({data["plan"] for data in (whole, other, *parts)}), 4)
        for key in ("steps", "in_place", "misaligned", "groups", "host_messages"):
            self.assertEqual(whole["done"][key], sum(data["done"][key] for data in parts), key)
        self.assertEqual(whole["checked"]["elements"], sum(data["checked"]["elements"] for data in parts))

    def test_wrong_use(self):
        for piece, arguments in (("--maxbytes 1K: a row of 8192 floats must fit", ["-e", "1K"]),
                                 ("--threads and --processes contradict", ["--threads", "--processes"]),
                                 ("--seconds", ["--seconds", "0"]),
                                 ("/nowhere/x.json: cannot write there", ["--json", "/nowhere/x.json"])):
            code, out, err = self.bench(*arguments)
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(piece, err)

    def test_results(self):
        for path in glob.glob(os.path.join(ROOT, "bench/results/*-soak-*.json")):
            data = self.read(path)
            self.assertEqual((data["checked"]["wrong"], data["flat"]), (0, True), path)
            self.assertGreaterEqual(data["ran_s"], data["manifest"]["settings"]["seconds"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
