"""Which wheels are named for a CUDA, a driver and GPUs."""

from __future__ import annotations

import factory as make
import pytest

from fi_doctor import conditions
from fi_doctor.conditions import View


def _said(text, **changes):
    return conditions.fill(text, View(make.facts(**changes)), quote=True)


def _jit_cache(flashinfer, torch_cuda):
    facts = {"flashinfer": make.flashinfer(flashinfer), "toolkit": make.toolkit(torch_cuda=torch_cuda)}
    return _said("{jit_cache_requirement} {jit_cache_tag}", **facts)


@pytest.mark.parametrize(
    ("flashinfer", "torch_cuda", "tag"),
    [
        ("0.5.3", "12.8", "cu128"),
        ("0.6.7.post3", "13.2", "cu130"),
        ("0.7.2.post1", "13.0", "cu130"),
        ("0.7.2.post1", "13.2", "cu130"),
        ("0.7.2.post1", "13.5", "cu134"),
    ],
)
def test_the_jit_cache_is_that_of_the_newest_cuda_which_torch_covers(flashinfer, torch_cuda, tag):
    assert _jit_cache(flashinfer, torch_cuda) == f"flashinfer-jit-cache=={flashinfer}+{tag} {tag}"


def test_no_jit_cache_is_named_where_none_is_published():
    assert "no wheels for CUDA 12.6" in _jit_cache("0.7.2.post1", "12.6")


def test_the_jit_cache_of_a_build_of_our_own_is_that_of_its_release():
    assert _jit_cache("0.7.2.post1+local", "13.0").startswith("flashinfer-jit-cache==0.7.2.post1+cu130 ")


@pytest.mark.parametrize(
    ("driver_cuda", "sm", "tag"),
    [
        ("13.0", 90, "cu130"),
        ("13.4", 121, "cu130"),
        ("14.0", 90, "cu130"),
        ("12.9", 90, "cu128"),
        ("12.4", 80, "cu126"),
        ("13.0", 70, "cu126"),
        ("11.4", 80, "cu118"),
    ],
)
def test_torch_is_that_of_the_newest_cuda_which_driver_and_gpu_run(driver_cuda, sm, tag):
    assert _said("{torch_tag}", gpus=make.gpu_facts(make.gpu(sm=sm), cuda=driver_cuda)) == tag


@pytest.mark.parametrize(
    ("driver_cuda", "sm", "tag"), [("12.8", 110, "cu130"), ("12.6", 100, "cu128"), ("12.8", 100, ""), ("13.0", 110, "")]
)
def test_where_the_driver_runs_none_for_the_gpu_the_first_that_has_code_for_it_is_named(driver_cuda, sm, tag):
    gpus = make.gpu_facts(make.gpu(sm=sm), cuda=driver_cuda)
    assert ("has no code for these GPUs" in _said("{torch_tag}", gpus=gpus)) is bool(tag)
    said = _said("{torch_tag_of_newer_driver}", gpus=gpus)
    assert said == tag if tag else "this driver runs one" in said


def test_without_a_driver_torch_is_that_of_nvcc():
    assert _said("{torch_tag}", gpus=make.no_gpus(), toolkit=make.toolkit("12.8")) == "cu128"


def test_the_torch_that_vllm_requires_is_installed():
    vllm = make.package("vllm", "0.33.0", requires=('torch==2.14.0; python_version >= "3.10"',))
    assert _said("{torch_meant}", packages={"vllm": vllm}) == "torch==2.14.0"
    assert _said("{torch_meant}") == "torch"
