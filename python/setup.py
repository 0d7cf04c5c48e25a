# SPDX-License-Identifier: Apache-2.0
"""Builds libtpcomm.so with CMake and puts it into the wheel. TPCOMM_LIBRARY=FILE: that file is taken instead of building one.

The sources are those of the checkout around this folder, or those that a source distribution brought in _source. Nothing is written
to either: everything in between lies in a temporary folder.
"""
import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel  # setuptools 70.1 and newer
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = ("CMakeLists.txt", "LICENSE", "cmake", "include", "src")


def source_root():
    """The folder that holds the C sources."""
    for root in (os.path.join(HERE, "_source"), os.path.dirname(HERE)):
        if os.path.exists(os.path.join(root, "include", "tpcomm.h")):
            return root
    sys.exit(f"setup.py: the sources of tpcomm are not around {HERE}: install from a whole checkout, as in: pip install ./python")


ROOT = source_root()
SCRATCH = tempfile.mkdtemp(prefix="tpcomm-python-")
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)


def version():
    """It stands once, in the public header."""
    with open(os.path.join(ROOT, "include", "tpcomm.h"), encoding="utf-8") as file:
        found = dict(re.findall(r"^#define TPCOMM_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)$", file.read(), re.MULTILINE))
    return "{MAJOR}.{MINOR}.{PATCH}".format(**found)


def run(*command):
    print("setup.py:", *command, flush=True)
    try:
        status = subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        sys.exit(f"setup.py: {command[0]} not found: it builds the C library (apt-get install {command[0]}, dnf install {command[0]}). "
                 "TPCOMM_LIBRARY=FILE takes a library that is there already")
    if status != 0:
        sys.exit(f"setup.py: failed ({status}): {' '.join(command)}")


def library():
    """The shared library, built unless there is one."""
    named = os.environ.get("TPCOMM_LIBRARY")
    if named:
        if not os.path.isfile(named):
            sys.exit(f"setup.py: TPCOMM_LIBRARY={named}: no such file")
        return named
    build = os.path.join(SCRATCH, "library")
    run("cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DTPCOMM_BUILD_BENCH=OFF", "-DTPCOMM_BUILD_TESTS=OFF",
        "-DTPCOMM_INSTALL=OFF")
    run("cmake", "--build", build, "--target", "tpcomm", "--parallel", str(os.cpu_count() or 2))
    return os.path.join(build, "src", "libtpcomm.so")


class BuildPython(build_py):
    """The package, with the library and the licence in it."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):  # the module finds the build tree by itself
            return
        package = os.path.join(self.build_lib, "tpcomm")
        shutil.copyfile(os.path.realpath(library()), os.path.join(package, "libtpcomm.so"))
        shutil.copyfile(os.path.join(ROOT, "LICENSE"), os.path.join(package, "LICENSE"))

    def get_outputs(self, include_bytecode=True):
        return super().get_outputs(include_bytecode) + [os.path.join(self.build_lib, "tpcomm", name) for name in ("libtpcomm.so", "LICENSE")]


class Wheel(bdist_wheel):
    """For this kind of machine, but for any Python: nothing is compiled against it."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    """Holds machine code, though no extension module."""

    def has_ext_modules(self):
        return True


class SourceDistribution(sdist):
    """With the C sources in it, which otherwise lie outside this folder; put together in SCRATCH, which goes away by itself."""

    def finalize_options(self):
        super().finalize_options()
        self.keep_temp = True

    def make_release_tree(self, base_dir, files):
        place = os.path.join(SCRATCH, base_dir)
        super().make_release_tree(place, files)
        for name in SOURCES:
            source, target = os.path.join(ROOT, name), os.path.join(place, "_source", name)
            if os.path.isdir(source):
                shutil.copytree(source, target)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(source, target)

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, **options):  # pylint: disable=redefined-builtin
        return super().make_archive(base_name, format, root_dir=root_dir or SCRATCH, base_dir=base_dir, **options)


setup(version=version(), distclass=BinaryDistribution, cmdclass={"build_py": BuildPython, "bdist_wheel": Wheel, "sdist": SourceDistribution},
      options={"build": {"build_base": os.path.join(SCRATCH, "build")}, "egg_info": {"egg_base": SCRATCH}})
