"""A real FlashInfer module, compiled on the CPU by the real nvcc through the real command."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from flashinfer_wheels import locate

ROOT = pathlib.Path(__file__).parents[2]
VERSION = "0.5.3"  # needs the least to be imported without a GPU
FEATURE = "activation.silu_and_mul"
# What decides which toolkit and flags are taken; the machine's own settings must not reach these tests.
CUDA_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDACXX", "CC", "CXX", "LIBRARY_PATH", "CPATH", "NVCC_PREPEND_FLAGS")
OUT_OF_WAY = re.compile(rf"(?:FLASHINFER_.*|TORCH_.*|PYTHONPATH|{'|'.join(CUDA_VARIABLES)})")

pytestmark = [
    pytest.mark.jit,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("FI_DOCTOR_NO_JIT") == "1", reason="FI_DOCTOR_NO_JIT=1 is set"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc on PATH"),
]


@pytest.fixture(scope="module")
def python():
    """This interpreter, which must have torch: where nvcc is there, a missing torch would only hide the tests."""
    found = subprocess.run([sys.executable, "-c", "import torch, tvm_ffi"], capture_output=True, text=True)
    if found.returncode:
        pytest.fail(
            f"{sys.executable} cannot import what FlashInfer's JIT needs: {found.stderr.strip().splitlines()[-1]}. "
            "pip install -e '.[dev]', or set FI_DOCTOR_NO_JIT=1 to do without these tests"
        )
    return sys.executable


@pytest.fixture(scope="module")
def flashinfer(tmp_path_factory):
    """A folder with the FlashInfer of that version, unpacked from its wheel."""
    found = locate(VERSION)
    if found.is_dir():
        return found
    folder = tmp_path_factory.mktemp("flashinfer")
    with zipfile.ZipFile(found) as wheel:
        wheel.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def toolkit():
    """The folder of the toolkit to which the nvcc on PATH belongs, by what that nvcc says of itself."""
    nvcc = shutil.which("nvcc")
    said = subprocess.run([nvcc, "--dryrun", "-x", "cu", "-E", "/dev/null"], capture_output=True, text=True)
    top = re.search(r"^#\$ TOP=(.+)$", said.stderr, re.MULTILINE)
    assert top, said.stderr
    return pathlib.Path(top[1]).resolve()


@pytest.fixture(scope="module")
def stubs(toolkit, tmp_path_factory):
    """A folder with what is missing here to link and load: an empty libcuda.so, a link to the toolkit's libcudart."""
    folder = tmp_path_factory.mktemp("stubs")
    if not (toolkit / "lib64/stubs/libcuda.so").exists():
        _shared_object(folder / "libcuda.so")
    elif not _can_be_loaded("libcuda.so.1"):  # what linking with the toolkit's own stub asks for
        _shared_object(folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    if not (toolkit / "lib64/libcudart.so").exists():
        [found, *_] = sorted(toolkit.rglob("libcudart.so.*"))
        (folder / "libcudart.so").symlink_to(found)
    return folder


def _can_be_loaded(name):
    code = f"import ctypes; ctypes.CDLL({name!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def _shared_object(path, *options):
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", path, *options], input=b"", check=True)


class Machine:
    """A home, a cache and an environment of its own for the command."""

    def __init__(self, folder, python, flashinfer):
        self.folder = folder
        self.python = python
        self.env = {name: value for name, value in os.environ.items() if not OUT_OF_WAY.fullmatch(name)} | {
            "HOME": str(folder),
            "FLASHINFER_WORKSPACE_BASE": str(folder),
            "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
            # ninja may be installed beside this interpreter only.
            "PATH": os.pathsep.join([os.environ["PATH"], str(pathlib.Path(python).parent)]),
            "CUDA_VISIBLE_DEVICES": "",  # where there is a GPU, it is not used: these tests are about building
            "PYTHONPATH": os.pathsep.join([str(flashinfer), str(ROOT)]),
        }

    def set(self, **variables):
        self.env |= {name: str(value) for name, value in variables.items()}

    def link_with(self, stubs):
        loaded = self.env.get("LD_LIBRARY_PATH")
        self.set(
            FLASHINFER_EXTRA_LDFLAGS=f"-L{stubs}",
            LD_LIBRARY_PATH=os.pathsep.join([str(stubs), *([loaded] if loaded else [])]),
        )

    def check(self, *args):
        """Exit code and report of a check of the one row."""
        command = [self.python, "-m", "fi_doctor", "check", "--feature", "activation.silu*", "--python", self.python]
        done = subprocess.run(
            [*command, "--format", "json", *args],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.stdout, done.stderr
        report = json.loads(done.stdout)
        [row] = [row for row in report["features"] if row["feature"] == FEATURE]
        [outcome] = [outcome for outcome in report["outcomes"] if outcome["feature"] == FEATURE]
        return done.returncode, report, row, outcome

    def cache(self, *args):
        """Exit code and what is said of the one module in the cache."""
        command = [self.python, "-m", "fi_doctor", "cache", "--json", *args]
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True)
        assert done.stdout, done.stderr
        [entry] = json.loads(done.stdout)["entries"]
        return done.returncode, entry


@pytest.fixture
def machine(tmp_path, python, flashinfer):
    return Machine(tmp_path, python, flashinfer)


def test_a_module_is_built_and_the_row_is_unknown_for_want_of_a_gpu(machine, toolkit, stubs):
    machine.set(CUDA_HOME=toolkit)
    machine.link_with(stubs)
    code, report, row, outcome = machine.check()
    _expect_built(code, row, outcome)
    assert not outcome["cached"]
    assert report["builds"]["modules"] == {"silu_and_mul": "built"}
    assert report["builds"]["seconds"] > 1 > outcome["seconds"]["built"]
    assert report["gate"]["measured"] == 0
    assert list(machine.folder.rglob("silu_and_mul.so"))

    code, report, row, outcome = machine.check()
    _expect_built(code, row, outcome)
    assert outcome["cached"]
    assert report["builds"]["modules"] == {}  # no process is started to ask for it
    assert outcome["seconds"]["built"] < 1

    code, entry = machine.cache()
    assert (code, entry["state"], entry["cuda_home"]) == (0, "valid", str(toolkit)), entry["why"]
    assert entry["flags"] == ["arch=compute_90a,code=sm_90a"]
    assert list(entry["module"]["library"]["units"]) == ["sm_90a"]
    other = pathlib.Path(toolkit).with_name("another")
    machine.set(CUDA_HOME=other)
    code, entry = machine.cache()
    assert (code, entry["state"]) == (1, "stale")
    assert f"now {other}" in entry["why"]


def test_the_advice_for_an_nvcc_wrapper_is_proven_by_a_build_with_it_and_mends_it_in_the_same_cache(
    machine, toolkit, stubs, tmp_path
):
    machine.set(PATH=os.pathsep.join([str(_wrapper_folder(toolkit, tmp_path)), machine.env["PATH"]]))
    libcuda = tmp_path / "libcuda"
    libcuda.mkdir()
    (libcuda / "libcuda.so").symlink_to(stubs / "libcuda.so")  # not libcudart, which the change is to bring
    machine.link_with(libcuda)
    code, report, row, _ = machine.check("--prove")
    assert (code, report["disproved"]) == (1, [])
    assert (row["verdict"], row["evidence"]) == ("broken", "built")
    assert "cannot find -lcudart" in row["why"]
    assert "cannot find -lcudart" in report["gate"]["reason"]
    assert "cannot find -lcudart" in report["builds"]["modules"]["silu_and_mul"]
    [one] = [one for one in report["recommendations"] if one["findings"] == ["cuda-home-derived-from-nvcc-wrapper"]]
    assert one["proof"]["result"] == "turned"
    assert {trial["before"]["verdict"] for trial in one["proof"]["trials"]} == {"broken"}
    assert all("cannot find -lcudart" in trial["before"]["why"] for trial in one["proof"]["trials"])
    assert {trial["after"]["evidence"] for trial in one["proof"]["trials"]} == {"built"}
    assert not list(machine.folder.rglob("silu_and_mul.so")), "the trial has caches of its own"
    prefix, _, home = one["line"].partition(" #")[0].strip().partition("=")  # behind # stands what it lacks itself
    assert (prefix, pathlib.Path(home).resolve()) == ("export CUDA_HOME", toolkit)

    # This FlashInfer keeps the build.ninja of the failed build, and in it the wrong toolkit.
    machine.set(CUDA_HOME=home)
    machine.link_with(stubs)
    code, report, row, _ = machine.check()
    assert (code, row["verdict"]) == (1, "broken")
    assert "cannot find -lcudart" in row["why"]
    assert {"cuda-home-derived-from-nvcc-wrapper", "unexplained-failure"}.isdisjoint(_findings(report))
    assert home in _findings(report)["cached-build-uses-other-toolkit"]["title"]
    line = _advice(report, "cached-build-uses-other-toolkit")
    assert line.startswith("rm -f ")
    subprocess.run(line, shell=True, check=True)

    code, report, row, outcome = machine.check()
    _expect_built(code, row, outcome)
    assert "cached-build-uses-other-toolkit" not in _findings(report)


def _findings(report):
    return {finding["id"]: finding for finding in report["findings"]}


def _advice(report, finding):
    """The line that is recommended for a finding."""
    [advice] = [one for one in report["recommendations"] if finding in one["findings"]]
    return advice["line"]


def _expect_built(code, row, outcome):
    assert (row["verdict"], row["evidence"], code) == ("unknown", "built", 3), row["why"]
    assert (outcome["stage"], outcome["ending"]) == ("built", "returned")


def _wrapper_folder(toolkit, tmp_path):
    """The folder of the machine's own nvcc where that is a wrapper without a toolkit around it, else of one like it."""
    found = pathlib.Path(shutil.which("nvcc")).parent
    if found.parent.resolve() != toolkit and not list(found.parent.glob("lib64/libcudart.so*")):
        return found
    folder = tmp_path / "wrapped/bin"
    folder.mkdir(parents=True)
    wrapper = folder / "nvcc"
    wrapper.write_text(f'#!/bin/sh\nexec {toolkit}/bin/nvcc "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    return folder
