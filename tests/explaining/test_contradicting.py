"""A fact that does not agree with a message is said not to be of what wrote it, and is claimed in no answer."""

from __future__ import annotations

import io

import pytest
from fault_cases import FAULTS, diagnosed

from fi_doctor.explaining import contradicting
from fi_doctor.explaining.diagnose import Source, diagnose

FATAL = "nvcc fatal   : Unsupported gpu architecture 'compute_"
NONE = "RuntimeError: No supported CUDA architectures found for major versions [12]."
OLD = "RuntimeError: CUDA driver version is insufficient for CUDA runtime version"


def told(log, environment):
    given = Source("env.txt", io.BytesIO(environment.encode()), is_environment=True)
    return diagnose([given, Source("log", io.BytesIO(log.encode()))])


@pytest.mark.parametrize(
    ("architecture", "nvcc"),
    [("120a", "13.0"), ("100a", "13.0.48"), ("103a", "12.9"), ("90a", "12.4"), ("89", "12.4"), ("70", "12.8")],
)
def test_the_build_took_another_nvcc_than_one_that_knows_the_architecture(architecture, nvcc):
    found = told(f"{FATAL}{architecture}'", f"CUDA toolkit: {nvcc}\n")
    [first, *_] = found.diagnoses
    assert first.confidence.value in ("medium", "low")
    assert nvcc not in first.title
    assert f"states nvcc {nvcc}, which knows compute_{architecture}: the build took another one" in found.answer
    assert any("build.ninja" in line for line in found.helps)


@pytest.mark.parametrize(
    ("architecture", "nvcc"), [("120a", "12.4"), ("103a", "12.8"), ("90a", "11.8"), ("70", "13.0")]
)
def test_an_nvcc_that_does_not_know_it_is_the_one(architecture, nvcc):
    found = told(f"{FATAL}{architecture}'", f"compute capability: {architecture.rstrip('a')}\nCUDA toolkit: {nvcc}\n")
    assert found.diagnoses
    assert "another one" not in found.answer


def test_what_the_log_itself_states_of_nvcc_counts_as_little():
    found = diagnosed(f"CUDA toolkit: 13.0\n{FATAL}120a'")
    assert "states nvcc 13.0, which knows compute_120a" in found.answer
    assert "13.0" not in found.diagnoses[0].title


def test_of_several_nvcc_the_one_that_does_not_know_it_counts():
    stated = "compute capability: 120\nCUDA toolkit: 13.0\nCuda compilation tools, release 12.4, V12.4.131\n"
    found = told(f"{FATAL}120a'", stated)
    assert "12.4.131" in found.diagnoses[0].title
    assert "states" not in found.answer


def test_what_a_given_nvcc_alone_rules_out_is_told_with_it():
    found = told(NONE, "compute capability: 120\nCUDA toolkit: 13.0\n")
    assert [(one.cause, one.confidence.value) for one in found.diagnoses] == [("jit-arch-too-new-for-nvcc", "medium")]
    assert "line 2 of env.txt states nvcc 13.0, with which this message does not come about" in found.answer
    assert found.diagnoses[0].unknown == ()


def test_another_cause_by_the_given_facts_is_no_contradiction():
    found = told(f"{FATAL}110a'", "compute capability: 87\nCUDA toolkit: 12.6\n")
    assert [one.cause for one in found.diagnoses] == ["aot-build-hardcodes-newer-arch"]
    assert "states" not in found.answer


@pytest.mark.parametrize(("driver", "is_belied"), [("580.65.06", True), ("535.216.01", False)])
def test_a_driver_that_runs_the_cuda_of_torch_is_not_the_one_that_is_too_old(driver, is_belied):
    found = told(OLD, f"NVIDIA driver: {driver}\ntorch: 2.9.0+cu128\n")
    assert found.diagnoses[0].cause == "driver-too-old-for-toolkit"
    assert (driver in found.diagnoses[0].title) is not is_belied
    assert ("another driver or a newer library was loaded" in found.answer) is is_belied


AGAINST = {
    "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist": "CUDA toolkit: 13.0",
    "ModuleNotFoundError: No module named 'flashinfer'": "flashinfer-python==0.6.4",
    "RuntimeError: No CUDA GPUs are available": "GPU 0: NVIDIA H100",
}


@pytest.mark.parametrize("message", AGAINST)
def test_what_is_there_and_was_not_found_is_said(message):
    alone, both = told(message, "x"), told(message, AGAINST[message])
    assert [one.cause for one in both.diagnoses] == [one.cause for one in alone.diagnoses]
    assert "line 1 of env.txt states" in both.answer
    assert "states" not in alone.answer


def test_the_causes_that_are_named_are_some():
    assert {*contradicting._AGAINST, contradicting._TOO_OLD} <= {fault.cause for fault in FAULTS}
