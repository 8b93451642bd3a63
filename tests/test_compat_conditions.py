"""Forward compatibility: which library of a cuda-compat package mends a driver that is too old for torch."""

from __future__ import annotations

import factory as make
import pytest
import serving
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings

KB = knowledge.load()
LIBRARY = "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05"


def _fix(*compat, name="NVIDIA H100 80GB HBM3", driver="570.86.15"):
    files = replace(serving.machine().driver_files, compat=compat)
    gpus = make.gpu_facts(make.gpu(name=name), driver=driver, cuda="12.8")
    facts = make.facts(gpus=gpus, machine=replace(serving.machine(), driver_files=files))
    [found] = [one for one in findings.find(KB, facts, ()) if one.id == "driver-too-old-for-torch"]
    return " | ".join(found.fix)


def test_a_compat_library_of_this_machine_is_named():
    assert "export LD_LIBRARY_PATH=/usr/local/cuda-13.0/compat:$LD_LIBRARY_PATH" in _fix(LIBRARY)


@pytest.mark.parametrize("version", ["570.26.00", "575.57.08"])
def test_one_that_does_not_run_torch_s_cuda_is_not(version):
    assert "cuda-12.9/compat:" not in _fix(f"/usr/local/cuda-12.9/compat/libcuda.so.{version}")


@pytest.mark.parametrize(
    ("driver", "sm", "cuda", "is_named"),
    [
        ("535.54.03", 90, "12.2", True),
        ("530.30.02", 90, "12.1", False),  # NVIDIA's table has it not for CUDA 13
        ("470.57.02", 90, "11.4", False),
        ("550.54.14", 100, "12.4", False),  # the driver in the kernel does not know the GPU
        ("570.86.15", 100, "12.8", True),
    ],
)
def test_none_is_named_where_it_cannot_help_the_driver_in_the_kernel(driver, sm, cuda, is_named):
    name = "NVIDIA B200" if sm == 100 else "NVIDIA H100 80GB HBM3"
    facts = make.facts(
        gpus=make.gpu_facts(make.gpu(name=name, sm=sm), driver=driver, cuda=cuda), machine=serving.machine()
    )
    [found] = [one for one in findings.find(KB, facts, ()) if one.id == "driver-too-old-for-torch"]
    assert ("cuda-compat-13-0" in " | ".join(found.fix)) is is_named
    is_too_old = any(one.id == "driver-too-old-for-gpu" for one in findings.find(KB, facts, ()))
    assert is_too_old is (driver[:3] in {"470", "550"})


def test_without_one_its_package_is_named():
    assert "apt-get install -y cuda-compat-13-0 " in _fix()


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090", "NVIDIA RTX A6000"])
def test_none_is_named_for_gpus_that_it_is_not_known_to_be_for(name):
    said = _fix(LIBRARY, name=name)
    assert "compat" not in said
    assert "whl/cu128" in said
