from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings, matrix
from fi_doctor.model import Ending, Severity, Stage, Verdict

KB = knowledge.load()
NO_NINJA = make.facts(toolkit=make.toolkit(ninja=make.missing("no ninja on PATH")))


def found(facts=None, *outcomes):
    """What is found where a plan is made for every outcome."""
    facts = facts or make.facts()
    plans = tuple(make.planned(one.probe, sm=one.sm) for one in outcomes)
    known = findings.find(KB, facts, outcomes)
    rows = matrix.judge(KB, facts, plans, outcomes, known)
    return findings.with_contradictions(KB, facts, rows, known)


def test_a_finding_says_its_rule_in_words_of_this_machine():
    [one] = findings.find(KB, NO_NINJA, ())
    assert (one.id, one.severity) == ("ninja-not-found", Severity.ERROR)
    assert one.why.startswith("no ninja on PATH.")
    assert one.fix == (f"{make.PYTHON} -m pip install ninja  # and have this Python's bin folder on PATH",)
    assert {"activation.silu_and_mul", "kv.append_paged", "attention.decode", "moe.fp8_block"} <= set(one.features)
    assert not {"import.flashinfer", "norm.rmsnorm"} & set(one.features)


def test_a_fix_whose_placeholders_are_unknown_is_left_out():
    kit = make.toolkit("12.6")
    [one] = [
        one
        for one in findings.find(KB, make.facts(toolkit=kit), ())
        if one.id == "fp8-block-moe-refused-below-cuda-12-8"
    ]
    assert [line.split()[0] for line in one.fix] == ["Install"]
    kit = make.toolkit("12.6", others=(make.nvcc("13.0"),))
    [one] = [
        one
        for one in findings.find(KB, make.facts(toolkit=kit), ())
        if one.id == "fp8-block-moe-refused-below-cuda-12-8"
    ]
    assert one.fix[0] == "export CUDA_HOME=/usr/local/cuda-13.0"


def test_a_fact_that_is_missing_fires_no_rule_about_its_value():
    facts = make.facts(toolkit=make.toolkit(gate_version=make.missing("no nvcc, no torch")))
    assert "fp8-block-moe-refused-below-cuda-12-8" not in {one.id for one in findings.find(KB, facts, ())}


def test_the_gravest_come_first_and_the_order_is_the_same_each_time():
    fi = make.flashinfer(cache_owner=0, version_check_disabled=True)
    facts = make.facts(
        flashinfer=fi, toolkit=make.toolkit(ninja=make.missing("none")), gpus=make.gpu_facts(cuda="13.1")
    )
    ids = [one.id for one in findings.find(KB, facts, ())]
    assert ids == ["ninja-not-found", "flashinfer-cache-of-other-user", "flashinfer-version-check-disabled"]


@pytest.mark.parametrize(
    ("built", "detail", "expected"),
    [
        ((), "ld: cannot find -lcudart", "cached-build-uses-other-toolkit"),
        (("norm",), "/bin/sh: 1: /opt/old/bin/nvcc: not found", "cached-build-uses-other-toolkit"),
        (("norm",), "libcudart.so.12: cannot open shared object file", "cached-build-uses-other-toolkit"),
        (("norm",), "ld: cannot find -lcudart", "unexplained-failure"),
    ],
    ids=["never built", "toolkit gone", "library gone", "another cause"],
)
def test_a_build_file_of_another_toolkit_explains_what_it_can_explain(built, detail, expected):
    stale = {"norm": "cuda_home = /opt/old; now /opt/new"}
    facts = make.facts(flashinfer=make.flashinfer(stale_modules=stale, cached_modules=built))
    [one] = found(facts, make.outcome("norm.rmsnorm", Ending.RAISED, Stage.IMPORTED, detail=detail))
    assert one.id == expected


def test_what_is_measured_beats_what_is_predicted_and_that_is_a_finding():
    [one] = [one for one in found(NO_NINJA, make.outcome("kv.append_paged")) if one.id == "measured-beats-known"]
    assert one.title == "ninja-not-found predicts broken, measured here: works"
    assert "kv.append_paged on SM90" in one.why
    assert one.features == ("kv.append_paged",)


def test_a_prediction_that_came_true_is_no_contradiction():
    broken = make.outcome("kv.append_paged", Ending.RAISED, Stage.IMPORTED, detail="ninja: not found")
    assert [one.id for one in found(NO_NINJA, broken)] == ["ninja-not-found"]


def test_a_failure_that_nothing_explains_is_a_finding_with_the_script_to_report():
    [one] = found(None, make.outcome(ending=Ending.SIGNALLED, stage=Stage.BUILT, detail="SIGSEGV"))
    assert one.id == "unexplained-failure"
    assert one.title == "norm.rmsnorm on SM90 fails, and no known problem explains it"
    assert one.why == "SIGSEGV"
    assert one.fix[0] == "fi-doctor probes show norm.rmsnorm"
    assert "https://github.com/flashinfer-ai/flashinfer/issues" in one.fix[1]


def test_wrong_numbers_are_named_as_such():
    [one] = found(None, make.outcome(ending=Ending.WRONG, stage=Stage.RAN, detail="max error 0.5 over 0.01"))
    assert one.title.startswith("norm.rmsnorm on SM90 gives wrong numbers")


@pytest.mark.parametrize(("feature", "whom"), [("norm.rmsnorm", findings.UPSTREAM), ("acme.kernel", findings.MAKERS)])
def test_who_is_told_of_a_failure_is_who_made_what_failed(feature, whom):
    [one] = found(None, make.outcome(feature, Ending.RAISED, Stage.RAN, detail="no such kernel"))
    assert f": {whom}, with that script" in one.fix[1]


def test_failures_in_the_same_words_are_one_finding():
    outcomes = [
        make.outcome(name, Ending.RAISED, Stage.NONE, error="ImportError", detail="libcudart.so.12: cannot open")
        for name in ("norm.rmsnorm", "kv.append_paged", "activation.silu_and_mul")
    ]
    [one] = found(None, *outcomes)
    assert one.title == "activation.silu_and_mul on SM90 and 2 more fail, and no known problem explains it"
    assert one.features == ("activation.silu_and_mul", "kv.append_paged", "norm.rmsnorm")


@pytest.mark.parametrize(
    ("facts", "explained"),
    [
        (make.facts(toolkit=make.toolkit(jit=make.jit(libraries={"cuda": make.absent("no libcuda.so")}))), True),
        (make.facts(flashinfer=make.flashinfer(cache_owner=0)), False),
    ],
    ids=["an-error-about-the-row", "a-warning"],
)
def test_only_a_grave_finding_about_the_row_explains_its_failure(facts, explained):
    outcome = make.outcome("kv.append_paged", Ending.RAISED, Stage.IMPORTED, detail="ld: cannot find -lcuda")
    assert ("unexplained-failure" in {one.id for one in found(facts, outcome)}) is not explained


def test_an_error_about_the_row_does_not_hide_a_failure_in_other_words():
    facts = make.facts(toolkit=make.toolkit(jit=make.jit(libraries={"cuda": make.absent("no libcuda.so")})))
    outcome = make.outcome("kv.append_paged", Ending.RAISED, Stage.IMPORTED, detail="x.cu(3): error: no such type")
    assert {one.id for one in found(facts, outcome)} == {"toolkit-lacks-link-libraries", "unexplained-failure"}


@pytest.mark.parametrize(
    ("verdict", "evidence", "measured"),
    [
        ("works", "verified", True),
        ("works", "ran", True),
        ("works", "built", False),
        ("broken", "built", True),
        ("broken", "predicted", False),
        ("wrong-result", "verified", True),
        ("unsupported", "declared", False),
        ("unknown", "built", False),
    ],
)
def test_a_success_is_measured_by_running_and_a_failure_by_trying(verdict, evidence, measured):
    assert findings.is_measured(Verdict(verdict), make.Evidence(evidence)) is measured


PART = make.outcome("moe.bf16", whole_module="fused_moe_90 is not compiled: 181 objects, estimated 9 min with 64 jobs")


@pytest.mark.parametrize(
    ("vllm", "variables", "severity"),
    [
        ("0.33.0", {}, Severity.WARNING),
        (None, {}, Severity.WARNING),
        ("0.14.1", {}, Severity.INFO),
        ("0.14.1", {"VLLM_USE_FLASHINFER_MOE_FP16": "1"}, Severity.WARNING),
        ("0.14.1", {"VLLM_USE_FLASHINFER_MOE_FP16": "0"}, Severity.INFO),
    ],
    ids=["default", "no-vllm", "off", "turned-on", "turned-off"],
)
def test_a_first_start_that_compiles_nothing_of_a_module_is_no_warning(vllm, variables, severity):
    facts = make.facts(packages={"vllm": vllm} if vllm else None, environment=variables)
    [one] = [one for one in findings.find(KB, facts, (PART,)) if one.id == "first-start-compiles-moe-module"]
    assert one.severity is severity
    assert ("only when turned on (vLLM 0.14.1, which is installed)" in one.title) is (severity is Severity.INFO)


def test_commands_of_ours_examine_the_interpreter_that_was_examined():
    facts = make.facts()
    facts = replace(facts, interpreter=replace(facts.interpreter, is_own=False, executable="/a b/python"))
    [one] = [one for one in findings.find(KB, facts, (PART,)) if one.id == "first-start-compiles-moe-module"]
    assert one.fix[0] == "fi-doctor warm --python '/a b/python' --feature 'moe.*'"
    [one] = found(facts, make.outcome("norm.rmsnorm", Ending.RAISED, Stage.BUILT, detail="no one knows this"))
    assert one.fix[1].endswith("the output of fi-doctor report --python '/a b/python' --yaml")
