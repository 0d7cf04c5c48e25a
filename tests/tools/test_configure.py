# SPDX-License-Identifier: Apache-2.0
"""Check that TPCOMM_CUDA finds nvcc or says in configure's last line why there is no CUDA, and that bad options are refused."""
import glob
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

    def toolkit(self, release="12.4"):
        """An nvcc that compiles everything."""
        self.toolkit_files()
        return self.program("bin/nvcc", f'case "$*" in --version) echo "Cuda compilation tools, release {release}, V{release}.99";; esac')

    def toolkit_files(self):
        """What a build looks for beside bin/nvcc."""
        self.plant("include/cuda_runtime_api.h", "")
        self.plant("lib64/libcudart_static.a", "")

    def places(self, count):
        """A machine with so many GPUs."""
        for i in range(count):
            self.plant(f"dev/nvidia{i}", "")
        return "-DTPC_TEST_GPU_PLACES=" + os.path.join(self.root, "dev", "nvidia[0-9]*")

    def test_native_architectures(self):
        smi = self.program("smi/nvidia-smi", "echo 9.0; echo 12.0; echo 9.0; echo 13.7")
        nvcc = self.program("bin/nvcc", 'case "$*" in --version) echo "release 12.9, V12.9.1";; --list-gpu-arch) '
                                        'echo compute_80; echo compute_90; echo compute_120;; esac')
        self.toolkit_files()
        before = os.environ["PATH"]
        os.environ["PATH"] = os.path.dirname(smi) + ":" + before
        try:
            status, last, _ = self.configure("-DTPCOMM_CUDA=AUTO", self.places(3), cudacxx=nvcc)
        finally:
            os.environ["PATH"] = before
        self.assertEqual(status, 0, last)
        self.assertIn("CUDA build for sm_90 sm_120 (", last)

    @unittest.skipIf(glob.glob("/dev/nvidia[0-9]*") or glob.glob("/proc/driver/nvidia/gpus/*"), "this machine has GPUs of its own")
    def test_nvcc_works(self):
        nvcc = self.toolkit()
        status, last, _ = self.configure("-DTPCOMM_CUDA=AUTO", cudacxx=nvcc)
        self.assertEqual(status, 0)
        self.assertIn("CPU build; ", last)
        self.assertIn(f"CUDA compiler found ({nvcc}, 12.4), but this machine shows no GPU: -DTPCOMM_CUDA=ON", last)
        status, last, _ = self.configure("-DTPCOMM_CUDA=AUTO", self.places(2), cudacxx=nvcc)
        self.assertEqual(status, 0, last)
        self.assertIn(f"CUDA build for sm_80 sm_90 ({nvcc}, 12.4); this machine has 2 GPUs; ", last)

    def test_on_needs_no_gpu(self):
        nvcc = self.toolkit()
        status, last, _ = self.configure("-DTPCOMM_CUDA=ON", "-DTPCOMM_CUDA_ARCHITECTURES=75", cudacxx=nvcc)
        self.assertEqual(status, 0, last)
        self.assertIn(f"CUDA build for sm_75 ({nvcc}, 12.4); ", last)

    @unittest.skipIf(glob.glob("/dev/nvidia[0-9]*") or glob.glob("/proc/driver/nvidia/gpus/*"), "this machine has GPUs of its own")
    def test_nvcc_is_old(self):
        nvcc = self.toolkit("12.2")
        status, last, _ = self.configure("-DTPCOMM_CUDA=AUTO", self.places(1), cudacxx=nvcc)
        self.assertEqual(status, 0)
        self.assertIn(f"this machine has 1 GPU; this build has no CUDA because {nvcc} is 12.2, and 12.3 or newer is needed", last)
        status, _, output = self.configure("-DTPCOMM_CUDA=ON", cudacxx=nvcc)
        self.assertNotEqual(status, 0)
        self.assertIn("12.3 or newer is needed", output)

    def test_bad_options(self):
        for option in ("-DTPCOMM_CUDA=MAYBE", "-DTPCOMM_SANITIZE=memory"):
            status, _, output = self.configure(option)
            self.assertNotEqual(status, 0)
            self.assertIn(option[2:], output)
            self.assertIn("allowed are", output)


if __name__ == "__main__":
    unittest.main()
