# SPDX-License-Identifier: Apache-2.0
"""Check that the scripts' set-up names all that is missing and prints one line for apt, dnf or conda, and does nothing else."""
import os
import shutil
import subprocess
import unittest

from planted import Planted, ROOT

ALWAYS = ("bash", "sed", "sort", "head", "tail", "cat", "grep", "nproc", "dirname")


class Setup(Planted):
    def setup(self, *needs, programs=(), uid=1000, environment=None, lines=()):
        """(exit status, output) of tpc_setup, where only these programs are in PATH and nothing of cJSON is anywhere."""
        path = os.path.join(self.root, "bin")
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path)
        for name in ALWAYS:
            os.symlink(shutil.which(name), os.path.join(path, name))
        self.program("id", f"echo {uid}")
        self.program("ldconfig", "exit 0")
        for name in programs:
            self.program(name, f'echo "{name} $*" >>"{self.root}/calls"')
        for name, text in lines:
            self.program(name, text)
        script = f'. "{ROOT}/scripts/setup-common.sh"; tpc_any_exists() {{ return 1; }}; tpc_setup "$@" && echo all is here'
        done = subprocess.run([shutil.which("bash"), "-c", script, "demo.sh", *needs], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False, env={"PATH": path, "TMPDIR": self.root, **(environment or {})})
        return done.returncode, done.stdout

    def program(self, name, text):
        os.chmod(self.plant(f"bin/{name}", f"#!{shutil.which('bash')}\n{text}\n"), 0o755)

    def calls(self):
        path = os.path.join(self.root, "calls")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_user_gets_one_line(self):
        status, output = self.setup("cc", "make", "cmake", "cjson_header", "cjson_library", programs=("apt-get", "sudo"))
        self.assertEqual(status, 2, output)
        self.assertIn("a C compiler, ninja or make, cmake 3.22 or newer, the header of cJSON", output)
        wanted = "    sudo apt-get update && sudo apt-get install -y --no-install-recommends build-essential cmake libcjson-dev libcjson1"
        self.assertEqual([line for line in output.split("\n") if line.startswith("    ")], [wanted])
        self.assertEqual(self.calls(), "", "a user's set-up ran something")

    def test_other_managers(self):
        _, output = self.setup("cc", "cxx", "python", programs=("dnf",))
        self.assertIn("    sudo dnf install -y gcc gcc-c++ python3\n", output)
        _, output = self.setup("cc", "cmake", programs=("dnf", "conda"), environment={"CONDA_PREFIX": self.root})
        self.assertIn("    conda install -y -c conda-forge c-compiler cmake\n", output)
        status, output = self.setup("cc")
        self.assertEqual(status, 2)
        self.assertIn("none of apt-get, dnf and conda", output)

    def test_old_cmake_is_missing(self):
        for version, here in (("3.18.4", False), ("3.22.0", True), ("3.3.1", False), ("3.100.0", True), ("4.0.1", True)):
            status, output = self.setup("cmake", programs=("apt-get",), lines=(("cmake", f"echo cmake version {version}"),))
            self.assertEqual(status == 0, here, f"{version}: {output}")

    def test_root_installs(self):
        install = f'echo "apt-get $*" >>"{self.root}/calls"; [ "$1" = update ] || printf "#!{shutil.which("bash")}\\n" >"{self.root}/bin/make"; ' \
                  f'/bin/chmod 755 "{self.root}/bin/make" 2>/dev/null || true'
        status, output = self.setup("make", uid=0, lines=(("apt-get", install),))
        self.assertEqual(status, 0, output)
        self.assertEqual(self.calls(), "apt-get update\napt-get install -y --no-install-recommends build-essential\n")

    def test_failed_install_is_said(self):
        status, output = self.setup("make", uid=0, lines=(("apt-get", "echo no network; exit 100"),))
        self.assertEqual(status, 2)
        self.assertIn("no network", output)
        self.assertIn("could not install", output)
        # An install that says yes and brings nothing.
        status, output = self.setup("make", uid=0, lines=(("apt-get", "exit 0"),))
        self.assertEqual(status, 2)
        self.assertIn("still missing", output)

    def test_nothing_missing(self):
        status, output = self.setup("make", programs=("make", "apt-get", "sudo"))
        self.assertEqual((status, output), (0, "all is here\n"))
        self.assertEqual(self.calls(), "")


if __name__ == "__main__":
    unittest.main()
