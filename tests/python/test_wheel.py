# SPDX-License-Identifier: Apache-2.0
"""Check that pip makes a wheel which brings the library, that it works in a fresh environment with nothing else there, and that a source
distribution holds all that is needed. Nothing here needs a network."""
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SOURCE = os.path.join(ROOT, "python")
LIBRARY = os.environ["TPCOMM_LIBRARY"]


def environment(library=None, **more):
    """Ours, without what leads to the source tree."""
    kept = {name: value for name, value in os.environ.items() if name not in ("TPCOMM_LIBRARY", "PYTHONPATH", "PYTHONHOME")}
    if library:
        kept["TPCOMM_LIBRARY"] = str(library)
    return {**kept, **more}


def run(*command, **keywords):
    keywords = {"env": environment(), "cwd": "/", **keywords}
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **keywords)
    return done.returncode, done.stdout


def good(*command, **keywords):
    code, output = run(*command, **keywords)
    assert code == 0, f"{command}\n{output}"
    return output


def make_wheel(source, folder, **keywords):
    return run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-index", "--no-deps", "-v", "-w", folder, source, **keywords)


def tree(folder):
    return sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names if "__pycache__" not in place)


@pytest.fixture(name="wheel", scope="module")
def build_wheel(tmp_path_factory):
    """Made from the sources, by CMake."""
    folder = tmp_path_factory.mktemp("a wheel")
    before = tree(SOURCE)
    code, output = make_wheel(SOURCE, folder)
    assert code == 0, output
    assert tree(SOURCE) == before, "the build left something in the source tree"
    (made,) = folder.iterdir()
    return made


def test_wheel(wheel):
    assert re.fullmatch(r"tpcomm-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    modules = {f"tpcomm/{name}" for name in os.listdir(os.path.join(SOURCE, "tpcomm")) if name.endswith(".py")}
    assert modules | {"tpcomm/libtpcomm.so", "tpcomm/LICENSE", "tpcomm/py.typed"} == {name for name in names if name.startswith("tpcomm/")}
    assert not re.search(r"^Requires-Dist", metadata, re.MULTILINE), "it needs no other package"


def test_fresh_environment(wheel, tmp_path):
    """With a space in its path; the library is the wheel's own; two ranks meet; uninstalling leaves nothing."""
    place = tmp_path / "an environment"
    venv.create(place, with_pip=True, symlinks=True)
    python = place / "bin" / "python3"
    good(python, "-m", "pip", "install", "--no-index", wheel)
    library = good(python, "-c", "from tpcomm import __version__, library_path; print(library_path, __version__)").split()
    assert " ".join(library[:-1]).startswith(str(place)) and library[-1] == wheel.name.split("-")[1]
    output = good(os.environ["TPCOMM_TEST_BENCH"], "run", "-n", "2", "--", python, os.path.join(ROOT, "examples", "hello.py"))
    assert sorted(output.strip().split("\n")) == ["[0] rank 0 of 2: the sum is 3", "[1] rank 1 of 2: the sum is 3"]
    good(python, "-m", "pip", "uninstall", "-y", "tpcomm")
    assert not list(place.rglob("*tpcomm*"))


def test_given_library(tmp_path):
    """Nothing is built then."""
    code, output = make_wheel(SOURCE, tmp_path, env=environment(LIBRARY))
    assert code == 0 and "cmake" not in output, output
    with zipfile.ZipFile(next(tmp_path.iterdir())) as archive, open(LIBRARY, "rb") as file:
        assert archive.read("tpcomm/libtpcomm.so") == file.read()


def test_source_distribution(tmp_path):
    """It brings the C sources along; the wheel that is made of it is the same. Nothing is put beside the sources, not even for a moment."""
    before = os.stat(SOURCE).st_mtime_ns
    good(sys.executable, "setup.py", "-q", "sdist", "-d", tmp_path, cwd=SOURCE)
    assert os.stat(SOURCE).st_mtime_ns == before
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as file:
        file.extractall(tmp_path)  # noqa: S202, our own
    unpacked = next(path for path in tmp_path.iterdir() if path.is_dir())
    good("cmake", "-S", unpacked / "_source", "-B", tmp_path / "build", "-DTPCOMM_BUILD_TESTS=OFF", "-DTPCOMM_BUILD_BENCH=OFF",
         "-DTPCOMM_INSTALL=OFF")
    code, output = make_wheel(unpacked, tmp_path / "wheel", env=environment(LIBRARY))
    assert code == 0, output
    assert os.listdir(tmp_path / "wheel")[0].startswith("tpcomm-")


@pytest.mark.parametrize("library, path, why", [
    ("/nonexistent/libtpcomm.so", None, "TPCOMM_LIBRARY=/nonexistent/libtpcomm.so: no such file"),
    (None, "/nonexistent", "cmake not found"),
])
def test_what_is_missing_is_told(tmp_path, library, path, why):
    more = {"PATH": path} if path else {}
    code, output = make_wheel(SOURCE, tmp_path, env=environment(library, **more))
    assert code != 0 and why in output, output


def test_folder_alone(tmp_path):
    """Without the checkout around it."""
    alone = tmp_path / "python"
    shutil.copytree(SOURCE, alone, ignore=shutil.ignore_patterns("__pycache__"))
    code, output = make_wheel(alone, tmp_path / "wheel")
    assert code != 0 and "install from a whole checkout" in output, output
