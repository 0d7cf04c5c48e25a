# SPDX-License-Identifier: Apache-2.0
"""Check that TPCOMM_CUDA finds nvcc or says in configure's last line why there is no CUDA, and that bad options are refused."""
import os
import re
import subprocess
import unittest

from planted import Planted, ROOT


class Configure(Planted):
    def configure(self, *options, cudacxx=None):
        environment = {**os.environ, "CUDACXX": cudacxx or "", "CUDAHOSTCXX": ""}
        done = subprocess.run(["cmake", "-S", ROOT, "-B", os.path.join(self.root, "build"), "-DTPCOMM_BUILD_TESTS=OFF", *options],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment)
        summary = [line for line in done.stdout.split("\n") if line.startswith("-- ") and not re.match(
            r"-- (Configuring|Generating|Build files)", line)]
        return done.returncode, summary[-1] if summary else "", " ".join(done.stdout.split())

    def program(self, name, text):
        place = self.plant(name, f"#!/bin/sh\n{text}\n")
        os.chmod(place, 0o755)
        return place

    def test_off(self):
        status, last, _ = self.configure("-DTPCOMM_CUDA=OFF")
        self.assertEqual(status, 0)
        self.assertRegex(last, r"^-- tpcomm: CPU build; (this machine has \d+ GPUs?; )?this build has no CUDA because TPCOMM_CUDA=OFF$")

    def test_named_nvcc_is_no_program(self):
        place = os.path.join(self.root, "no nvcc")
        status, last, _ = self.configure("-DTPCOMM_CUDA=AUTO", cudacxx=place)
        self.assertEqual(status, 0)
        self.assertIn(f"this build has no CUDA because CUDACXX names {place}, which is no program", last)
        status, _, output = self.configure("-DTPCOMM_CUDA=ON", cudacxx=place)
        self.assertNotEqual(status, 0)
        self.assertIn("TPCOMM_CUDA=ON, but CUDACXX names", output)

    def test_nvcc_does_not_work(self):
        nvcc = self.program("nvcc", "echo 'warning: x' >&2; echo 'host_config.h: error: -- unsupported GNU version!' >&2; exit 1")
        status, last, _ = self.configure("-DTPCOMM_CUDA=AUTO", cudacxx=nvcc)
        self.assertEqual(status, 0)
        self.assertIn("no CUDA because " + nvcc, last)
        self.assertIn("unsupported GNU version", last)
        status, _, output = self.configure("-DTPCOMM_CUDA=ON", cudacxx=nvcc)
        self.assertNotEqual(status, 0)
        self.assertIn("unsupported GNU version", output)

    def test_nvcc_works(self):
        nvcc = self.program("nvcc", 'case "$*" in --version) echo "Cuda compilation tools, release 12.4, V12.4.99";; esac')
        status, last, _ = self.configure("-DTPCOMM_CUDA=AUTO", cudacxx=nvcc)
        self.assertEqual(status, 0)
        self.assertIn("CPU build; ", last)
        self.assertIn(f"CUDA compiler found ({nvcc}, 12.4)", last)
        self.assertIn("-DTPCOMM_CUDA=ON", last)

    def test_bad_options(self):
        for option in ("-DTPCOMM_CUDA=MAYBE", "-DTPCOMM_SANITIZE=memory"):
            status, _, output = self.configure(option)
            self.assertNotEqual(status, 0)
            self.assertIn(option[2:], output)
            self.assertIn("allowed are", output)


if __name__ == "__main__":
    unittest.main()
