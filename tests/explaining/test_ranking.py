"""The first cause and not the last error; how sure it is; and what is said where nothing decides."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

from fi_doctor.model import Confidence

NO_NVCC = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"
TOO_NEW = "RuntimeError: No supported CUDA architectures found for major versions [12]."
FOLLOWS = "RuntimeError: Engine core initialization failed. See root cause above."


def test_what_follows_is_listed_and_no_diagnosis():
    found = diagnosed(f"{NO_NVCC}\n{FOLLOWS}")
    assert [one.cause for one in found.diagnoses] == ["nvcc-not-found"]
    assert [(error.line, error.follows) for error in found.errors] == [(2, False), (3, True)]


def test_an_error_of_several_ranks_is_told_once_with_them():
    found = diagnosed("\n".join(f"(Worker_TP{rank} pid={90 + rank}) {NO_NVCC}" for rank in range(4)))
    [matched] = found.diagnoses[0].matched
    assert (matched.line, matched.times, len(matched.ranks)) == (2, 4, 4)


@pytest.mark.parametrize(
    ("environment", "confidence"),
    [
        ("compute capability: 120\nCUDA toolkit: 12.8", Confidence.HIGH),
        ("compute capability: 120", Confidence.MEDIUM),
        ("", Confidence.MEDIUM),
    ],
)
def test_what_is_not_known_makes_it_less_sure(environment, confidence):
    first = diagnosed(TOO_NEW, environment).diagnoses[0]
    assert (first.cause, first.confidence) == ("jit-arch-too-new-for-nvcc", confidence)
    assert bool(first.unknown) == (confidence is not Confidence.HIGH)


def test_what_is_known_to_be_otherwise_rules_a_cause_out():
    assert diagnosed(TOO_NEW, "compute capability: 120\nCUDA toolkit: 13.0").diagnoses == ()


def test_two_faults_are_two_diagnoses_and_the_first_line_is_first():
    both = diagnosed(f"{NO_NVCC}\nnvcc fatal   : Unknown option '-static-global-template-stub=false'", "nvcc: 12.2")
    assert [one.cause for one in both.diagnoses] == ["nvcc-not-found", "toolkit-too-old-for-flashinfer"]


def test_where_nothing_decides_it_is_said_what_would_help():
    found = diagnosed("RuntimeError: something that nobody has seen")
    assert found.diagnoses == ()
    assert found.answer.startswith("I do not know")
    assert any("--env-file" in one for one in found.helps)


def test_where_the_first_error_is_not_in_the_log_its_beginning_is_asked_for():
    assert any("from its beginning" in one for one in diagnosed(FOLLOWS).helps)


def test_a_setting_is_recommended_only_where_the_version_reads_it():
    old = diagnosed(TOO_NEW, "compute capability: 120\nvllm: 0.4.0\nflashinfer-python: 0.6.13\nvLLM serve")
    new = diagnosed(TOO_NEW, "compute capability: 120\nvllm: 0.25.1\nflashinfer-python: 0.6.13")
    assert not any("SAMPLER" in line for line in old.diagnoses[0].remedies)
    assert any("SAMPLER" in line for line in new.diagnoses[0].remedies)


def test_what_the_log_does_not_tell_is_left_out_of_a_title():
    assert "nvcc does not know" in diagnosed(TOO_NEW).diagnoses[0].title
