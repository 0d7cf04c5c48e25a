# SPDX-License-Identifier: Apache-2.0
"""Check that the module finds its library where it says, tells every place that it tried with the loader's own words, and needs neither
CUDA nor NCCL, torch or numpy."""
import os
import re
import shutil
import subprocess
import sys

import pytest

LIBRARY = os.environ["TPCOMM_LIBRARY"]
PACKAGE = os.path.join(os.environ["PYTHONPATH"], "tpcomm")


def imported(path, library=None, code="from tpcomm import library_path; print(library_path)", **variables):
    """(exit code, output) of a Python that imports tpcomm from a path."""
    environment = {**os.environ, "PYTHONPATH": str(path), **variables}
    environment.pop("TPCOMM_LIBRARY")
    if library is not None:
        environment["TPCOMM_LIBRARY"] = str(library)
    done = subprocess.run([sys.executable, "-c", "import tpcomm; " + code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment, check=False)
    return done.returncode, done.stdout


@pytest.fixture(name="tree")
def make_tree(tmp_path):
    """A source tree with the module in it and nothing built."""
    root = tmp_path / "a tree [1]"
    shutil.copytree(PACKAGE, root / "python" / "tpcomm", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (root / "include").mkdir()
    (root / "include" / "tpcomm.h").touch()
    return root


def compiled(path, source):
    """A shared library of this C source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([os.environ["TPCOMM_TEST_CC"], "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
    return path


def built(tree, name, sanitizer=""):
    place = tree / name / "src" / "libtpcomm.so"
    place.parent.mkdir(parents=True)
    shutil.copy(LIBRARY, place)
    (tree / name / "CMakeCache.txt").write_text(f"A:STRING=b\nTPCOMM_SANITIZE:STRING={sanitizer}\n")
    return place


def test_nothing_found_names_every_place(tree):
    code, output = imported(tree / "python")
    assert code == 1
    assert "ImportError: tpcomm found no library that it can use" in output
    places = re.findall(r"^  (.*) \((.*?)\): (.*)$", output, re.MULTILINE)
    assert [(path, what) for path, what, _ in places] == [
        (str(tree / "python" / "tpcomm" / "libtpcomm.so"), "of the wheel"),
        (str(tree / "build" / "src" / "libtpcomm.so"), "of the build tree"),
        ("libtpcomm.so.0.1", "of the system"),
        ("libtpcomm.so", "of the system")]
    reasons = [reason for _, _, reason in places]
    assert reasons[:2] == ["no such file"] * 2
    assert all("cannot open shared object file" in reason for reason in reasons[2:]), "the loader's own words"
    assert "TPCOMM_LIBRARY" in output


def test_named_library_and_no_other(tree, tmp_path):
    place = built(tree, "build")
    other = shutil.copy(LIBRARY, tmp_path / "other.so")
    assert imported(tree / "python", other) == (0, f"{other}\n")
    assert imported(tree / "python", "") == (0, f"{place}\n"), "an empty variable counts as unset"
    code, output = imported(tree / "python", tmp_path / "absent.so")
    assert code == 1 and f"{tmp_path}/absent.so (TPCOMM_LIBRARY): no such file" in output
    os.mkfifo(tmp_path / "pipe.so")
    for name in ("pipe.so", ""):
        code, output = imported(tree / "python", tmp_path / name)
        assert code == 1 and "(TPCOMM_LIBRARY): it is no regular file" in output
    assert str(place) not in output, "another library was tried though one was named"


def test_order(tree, tmp_path):
    system = tmp_path / "system"
    system.mkdir()
    shutil.copy(LIBRARY, system / "libtpcomm.so.0.1")
    path = {"LD_LIBRARY_PATH": str(system)}
    assert imported(tree / "python", **path) == (0, "libtpcomm.so.0.1\n")
    for name in ("build-zz", "build-aa", "build"):
        place = built(tree, name)
        assert imported(tree / "python", **path) == (0, f"{place}\n")
    wheel = tree / "python" / "tpcomm" / "libtpcomm.so"
    shutil.copy(LIBRARY, wheel)
    assert imported(tree / "python", **path) == (0, f"{wheel}\n")


def test_sanitizer_builds_are_passed_over(tree):
    """Loading one would end this Python."""
    built(tree, "build-asan", "address")
    code, output = imported(tree / "python")
    assert code == 1 and "build-asan/src/libtpcomm.so (of the build tree): it was built with TPCOMM_SANITIZE=address" in output
    place = built(tree, "build-zz")
    assert imported(tree / "python") == (0, f"{place}\n")


def test_build_directories_of_others_are_not_ours(tree):
    """An installed module has no source tree around it, whatever is called build there."""
    place = built(tree, "build")
    os.remove(tree / "include" / "tpcomm.h")
    code, output = imported(tree / "python")
    assert code == 1 and str(place) not in output


@pytest.mark.parametrize("source, why", [
    ("int x;", "it has no function tpcomm_version, so it is not libtpcomm"),
    ("int tpcomm_version(void) { return 200; }", "it is version 0.2.0, and this module needs 0.1"),
    ("int tpcomm_version(void) { return 10100; }", "it is version 1.1.0, and this module needs 0.1"),
    ("int tpcomm_version(void) { return 107; }", "it has no function tpcomm_status_name"),
    (None, "(file too short|invalid ELF header)"),
])
def test_unusable_libraries(tree, tmp_path, source, why):
    place = tmp_path / "libtpcomm.so"
    if source is None:
        place.write_text("no library")
    else:
        compiled(place, source)
    code, output = imported(tree / "python", place)
    assert code == 1
    assert re.search(re.escape(f"{place} (TPCOMM_LIBRARY): ") + ".*" + (why if source is None else re.escape(why)), output), output
    # One that was only found is passed over for the next.
    fine = built(tree, "build")
    shutil.copy(place, tree / "python" / "tpcomm" / "libtpcomm.so")
    assert imported(tree / "python") == (0, f"{fine}\n")


def test_missing_dependency_is_told(tree, tmp_path):
    """The loader's message names what it lacks, not only the library."""
    lacking = compiled(tmp_path / "liblacking.so", "int f(void) { return 1; }")
    place = tmp_path / "libtpcomm.so"
    subprocess.run([os.environ["TPCOMM_TEST_CC"], "-shared", "-fPIC", "-Wl,--no-as-needed", "-x", "c", "/dev/null", "-o", place, "-x", "none", lacking], check=True)
    os.remove(lacking)
    code, output = imported(tree / "python", place)
    assert code == 1 and "liblacking.so" in output


BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "torch", "cupy", "nvidia", "cuda"):
            raise ImportError(name + " was asked for")
sys.meta_path.insert(0, Block())
"""


def test_import_needs_no_other_package():
    code = BLOCK + """
import array, tpcomm
with tpcomm.init_local(1)[0] as comm:
    x = array.array("f", [1, 2])
    assert comm.all_reduce(x) is x and list(x) == [1, 2]
    assert not {"numpy", "torch"} & set(sys.modules)
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n")


def test_library_needs_only_the_c_library():
    needed = re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-dW", LIBRARY], stdout=subprocess.PIPE, text=True, check=True).stdout)
    assert needed and all(re.fullmatch(r"(libc|libm|libdl|libpthread|ld-linux.*)\.so\.\d+", name) for name in needed), needed


def test_gpu_request_without_one_is_refused_with_the_reason():
    code = """
import tpcomm
try:
    print("cuda made", [comm.device for comm in tpcomm.init_local(2, [0, 0], device="cuda")])
except tpcomm.Unsupported as error:
    assert error.name == "TPCOMM_ERR_UNSUPPORTED" and error.status == -3
    print("refused", error.text)
comms = tpcomm.init_local(2, device="cpu")
print([comm.device for comm in comms])
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    text, devices = done.stdout.strip().split("\n")
    assert re.match("refused .*(cuda|CUDA)", text) or text == "cuda made ['cuda', 'cuda']", done.stdout
    assert devices == "['cpu', 'cpu']"
