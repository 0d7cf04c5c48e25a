#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that tools/check_gpu_record.py warns where device code is newer than the last kept run on a GPU, and only there."""
import json
import os
import subprocess
import unittest

import planted


class CheckGpuRecord(planted.Planted):
    def git(self, *arguments):
        env = dict(os.environ, GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_SYSTEM=os.devnull)
        done = subprocess.run(["git", "-C", self.root, "-c", "user.name=t", "-c", "user.email=t@t", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, env=env)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def commit(self, path, text):
        self.plant(path, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", f"change {path}")
        return self.git("rev-parse", "HEAD")

    def keep(self, name, commit, passed=("gpu_oneshot",)):
        self.commit(f"bench/results/{name}", json.dumps({"schema": "tpcomm-testrun/1", "commit": commit, "passed": list(passed)}))

    def verdict(self):
        status, output = self.tool("check_gpu_record.py", "--root", self.root)
        self.assertEqual(status, 0, output)
        self.assertEqual(len(output.splitlines()), 1, output)
        return output

    def test_verdicts(self):
        self.assertIn("cannot tell", self.verdict())
        self.git("init", "-q")
        first = self.commit("src/custom_ar/oneshot.cu", "one")
        self.assertIn("WARNING: no run on a GPU", self.verdict())
        self.keep("a.json", "no commit of this history")
        self.keep("b.json", first, passed=())
        self.plant("bench/results/broken.json", "{")
        self.assertIn("WARNING: no run on a GPU", self.verdict())
        self.keep("c.json", first)
        self.assertIn("as it was run on a GPU (bench/results/c.json)", self.verdict())
        self.commit("src/custom_ar/custom_ar.c", "host code")
        self.assertIn("as it was run", self.verdict())
        second = self.commit("src/custom_ar/wait.cuh", "two")
        self.assertIn("WARNING: device code has changed in 1 commit(s) since the last run on a GPU (bench/results/c.json)", self.verdict())
        self.assertIn("change src/custom_ar/wait.cuh", self.verdict())
        self.keep("0-sorts-first.json", second)
        self.assertIn("as it was run on a GPU (bench/results/0-sorts-first.json)", self.verdict())
        self.commit("src/fused/norm.cu", "three")
        self.assertIn("WARNING: device code has changed in 1 commit(s)", self.verdict())


if __name__ == "__main__":
    unittest.main()
