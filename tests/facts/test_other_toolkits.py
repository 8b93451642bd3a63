"""Toolkits that the JIT does not take: which of them would do, and why not the others."""

import os
import shutil
import subprocess

import pytest
from environment_on_disk import Environment, toolkit, write

from fi_doctor.facts import toolchain, toolkits
from fi_doctor.facts import toolkit as asking
from fi_doctor.facts.toolkits import find_c_before_cxx

needs_cxx = pytest.mark.skipif(shutil.which("c++") is None, reason="asks a real C++ compiler")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(asking, "LOCAL", tmp_path / "local")  # this machine's own toolkits are others
    monkeypatch.setattr(toolkits, "SYSTEM_LIBRARIES", ())
    return Environment(tmp_path)


def _old(environment):
    """A CUDA_HOME that is too old for the GPU."""
    shutil.rmtree(environment.cuda)
    toolkit(environment.cuda, "11.5", "sm_80 sm_86")


def _beside(environment, name, version="13.0", codes="sm_80 sm_90"):
    home = environment.folder / name
    toolkit(home, version, codes)
    environment.environ["PATH"] += f":{home}/bin"
    return home


def _wheels(environment, version="13.0"):
    """The folder into which pip's nvidia-cuda-nvcc, -runtime, -cccl and -nvvm of CUDA 13 unpack."""
    home = environment.site / "nvidia/cu13"
    toolkit(home, version, "sm_80 sm_90")
    shutil.rmtree(home / "lib64")
    write(home / "lib/libcudart.so.13", "")
    return home


def test_the_mend_names_the_toolkit_that_fits(environment):
    _old(environment)
    _beside(environment, "cuda-12.4", "12.4", "sm_80 sm_86")
    lacking = _beside(environment, "cuda-13.1", "13.1")
    (lacking / "include/cuda_bf16.h").unlink()
    good = _beside(environment, "cuda-12.8", "12.8")
    fix = environment.fix("nvcc-too-old-for-gpu")
    assert any(line.startswith(f"export CUDA_HOME={good}") for line in fix)
    [told] = [line for line in fix if "do not do" in line]
    assert "cuda-12.4 (its nvcc 12.4 does not know sm_90)" in told
    assert "cuda-13.1 (it lacks cuda_bf16.h)" in told


def test_of_two_that_fit_that_of_torch_s_major_comes_first(environment):
    _old(environment)
    environment.driver_cuda = "14.0"
    good = _beside(environment, "cuda-13.0b", "13.0")
    _beside(environment, "cuda-14.0", "14.0")
    assert any(f"CUDA_HOME={good}" in line for line in environment.fix("nvcc-too-old-for-gpu"))


def test_a_toolkit_that_the_driver_does_not_run_is_not_named(environment):
    _old(environment)
    environment.driver_cuda = "12.8"
    _beside(environment, "cuda-13.1", "13.1")
    fix = environment.fix("nvcc-too-old-for-gpu")
    assert not any("CUDA_HOME=" in line for line in fix)
    assert any("it is of CUDA 13.1, and the driver runs 12.x" in line for line in fix)


def test_a_complete_one_is_named_for_what_only_some_modules_need(environment):
    (environment.cuda / "lib64/libnvrtc.so").unlink()
    lacking, good = _beside(environment, "cuda-13.2", "13.2"), _beside(environment, "cuda-13.1", "13.1")
    (lacking / "lib64/libnvrtc.so").unlink()
    assert any(f"CUDA_HOME={good}" in line for line in environment.fix("toolkit-lacks-nvrtc"))


def test_the_toolkit_of_pip_s_wheels_is_seen_and_what_it_lacks_is_said(environment):
    shutil.rmtree(environment.cuda)
    home = _wheels(environment)
    [found] = environment.facts().toolkit.toolkits
    assert (found.home, found.cccl) == (str(home), "3.0.1")
    assert {"libcudart.so", "libcuda.so"} <= set(found.lacks)
    fix = environment.fix("nvcc-not-taken")
    assert not any("CUDA_HOME=" in line for line in fix)
    assert any(f"{home} (it lacks libcudart.so, libcuda.so)" in line for line in fix)


def test_the_toolkit_of_pip_s_wheels_is_named_once_it_is_complete(environment):
    shutil.rmtree(environment.cuda)
    home = _wheels(environment)
    (home / "lib64").symlink_to("lib")
    for name in ("libcudart.so", "stubs/libcuda.so"):
        write(home / "lib" / name, "")
    assert any(f"export CUDA_HOME={home}" in line for line in environment.fix("nvcc-not-taken"))


@pytest.mark.skipif(shutil.which("ln") is None, reason="runs the line that the report names")
def test_the_line_that_completes_the_toolkit_of_pip_s_wheels_does(environment):
    home = _wheels(environment)
    environment.environ["CUDA_HOME"] = str(home)
    write(home / "lib/libnvrtc.so.13", "")
    [line] = [one for one in environment.fix("toolkit-lacks-link-libraries") if "for f in" in one]
    subprocess.run(["sh", "-c", line.partition("  #")[0]], check=True)
    jit = environment.facts().toolkit.jit
    assert jit.libraries["cudart"] == f"{home}/lib64/libcudart.so"
    assert jit.module_libraries["nvrtc"] == f"{home}/lib64/libnvrtc.so"


def test_the_toolkit_that_the_jit_takes_is_not_among_the_others(environment):
    environment.environ["CUDA_HOME"] = str(_wheels(environment))
    shutil.rmtree(environment.cuda)
    assert environment.facts().toolkit.toolkits == ()


def test_what_flashinfer_brings_itself_does_not_lack(environment):
    (environment.cuda / "include/cuda/std/optional").unlink()
    (environment.cuda / "include/nv/target").unlink()
    assert "toolkit-lacks-headers" not in environment.findings()
    environment.cccl.unlink()
    assert "toolkit-lacks-headers" in environment.findings()


@needs_cxx
@pytest.mark.parametrize(("home", "hides"), [("/usr/", True), ("link", True), ("/usr/local", False)])
def test_the_system_s_folder_under_another_name_comes_before_those_of_cxx(tmp_path, home, hides):
    (tmp_path / "link").symlink_to("/usr")
    include = str(tmp_path / home / "include") if home == "link" else f"{home}/include"
    compiler = toolchain.find_host_compiler(os.environ)
    listed = toolchain.read_include_folders(compiler, os.environ, system=(include,))
    assert find_c_before_cxx(listed) == (include if hides else "")
