#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that tools/gpu_testrun.py keeps what passed, failed, was skipped and hung, as docs/schema/testrun.json says, and that all records
in bench/results are like that."""
import glob
import json
import os
import subprocess
import time
import unittest

import planted

TESTS = """cmake_minimum_required(VERSION 3.22)
project(t NONE)
enable_testing()
add_test(NAME good COMMAND sh -c "echo fine")
add_test(NAME bad COMMAND sh -c "echo before; echo 'test_x.c:12: not true: 1 == 2'; echo after; exit 1")
add_test(NAME away COMMAND sh -c "echo 'SKIP: no GPU here'; exit 77")
add_test(NAME hangs COMMAND sh -c "echo begun; sleep 1000")
add_test(NAME other COMMAND sh -c "exit 1")
set_tests_properties(good bad away hangs PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 TIMEOUT 30)
set_tests_properties(hangs PROPERTIES TIMEOUT 2)
"""


class GpuTestrun(planted.Planted):
    def run_it(self, *arguments):
        self.plant("CMakeLists.txt", TESTS)
        build, results = os.path.join(self.root, "b"), os.path.join(self.root, "r")
        subprocess.run(["cmake", "-S", self.root, "-B", build], stdout=subprocess.DEVNULL, check=True)
        status, output = self.tool("gpu_testrun.py", build, results, *arguments)
        files = glob.glob(os.path.join(results, "*-gpu-check.json"))
        self.assertEqual(len(files), 1, output)
        schema = os.path.join(planted.ROOT, "docs", "schema", "testrun.json")
        self.assertEqual(self.tool("json_schema.py", schema, files[0]), (0, ""))
        with open(files[0], encoding="utf-8") as file:
            return status, output, json.load(file)

    def test_everything_is_kept(self):
        begun = time.monotonic()
        status, output, run = self.run_it("--commit", "abc", "--also", "more=echo x=1; exit 0", "--also", "none=echo SKIP: no daemon; exit 77",
                                          "--also", "wrong=echo oh no; exit 3")
        self.assertEqual(status, 1, output)
        self.assertLess(time.monotonic() - begun, 150)  # of the 1000 s that one of them sleeps
        self.assertEqual(run["commit"], "abc")
        self.assertEqual(sorted(run["passed"]), ["good", "more"])
        self.assertEqual(run["skipped"], [{"name": "away", "reason": "no GPU here"}, {"name": "none", "reason": "no daemon"}])
        failed = {one["name"]: one["text"] for one in run["failed"]}
        self.assertEqual(sorted(failed), ["bad", "hangs", "wrong"])
        self.assertEqual(failed["bad"], "test_x.c:12: not true: 1 == 2")
        self.assertIn("did not end within", failed["hangs"])
        self.assertEqual(failed["wrong"], "oh no")
        self.assertEqual(sorted(run["durations"]), ["away", "bad", "good", "hangs", "more", "none", "wrong"])
        self.assertIn("2 passed, 3 failed, 2 skipped", output)
        self.assertTrue(os.path.exists(os.path.join(self.root, "r", "bad.txt")))

    def test_time_runs_out(self):
        _, _, run = self.run_it("--seconds", "0")
        self.assertEqual(run["passed"] + run["failed"], [])
        self.assertEqual({one["reason"] for one in run["skipped"]}, {"the run's 0 s were over"})

    def test_kept_records(self):
        schema = os.path.join(planted.ROOT, "docs", "schema", "testrun.json")
        found = 0
        for place in glob.glob(os.path.join(planted.ROOT, "bench", "results", "*.json")):
            with open(place, encoding="utf-8") as file:
                if json.load(file).get("schema") == "tpcomm-testrun/1":
                    self.assertEqual(self.tool("json_schema.py", schema, place), (0, ""))
                    found += 1
        self.assertGreater(found, 0)


if __name__ == "__main__":
    unittest.main()
