"""What came of trying on a real GPU: recommended changes (--prove), and vLLM started on tiny models (--prove-vllm)."""

from __future__ import annotations

import pathlib

import pytest
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.knowledge import models
from fi_doctor.model import Evidence, Proven, Verdict
from fi_doctor.model.deployed import Effect, Wanted
from fi_doctor.probing import catalog
from fi_doctor.reports import document, exports

MACHINES = pathlib.Path(__file__).parent / "machines"


def recorded(name):
    return document.read((MACHINES / name).read_bytes(), name)


def trials(proof):
    return [
        (one.feature, one.before.verdict, one.after.verdict, one.after.evidence, one.turned) for one in proof.trials
    ]


def test_another_toolkit_turned_the_moe_kernel_that_its_version_gate_refused():
    report = recorded("h200-proved-nvcc-flashinfer0.5.3/cold.json")
    [one] = [each for each in report.recommendations if each.line == "export CUDA_HOME=/usr/local/cuda-13.0"]
    assert one.proof.result is Proven.IN_PART
    turned = [trial[:4] for trial in trials(one.proof) if trial[4]]
    assert turned == [("moe.fp8_block", Verdict.BROKEN, Verdict.WORKS, Evidence.VERIFIED)] * 3
    # Nothing else was turned by it: a width that crashes the kernel is no matter of the toolkit.
    assert {trial[0] for trial in trials(one.proof)} == {"moe.fp8_block"}


def test_what_the_budget_left_no_time_for_is_neither_turned_nor_refuted():
    report = recorded("h200-proved-arch-list-flashinfer0.7.2.post1/cold.json")
    [one] = [each for each in report.recommendations if "FLASHINFER_CUDA_ARCH_LIST" in each.line]
    came = {(feature, after, turned) for feature, _, after, _, turned in trials(one.proof)}
    assert came == {
        ("activation.silu_and_mul", Verdict.WORKS, True),
        ("kv.append_paged", Verdict.UNKNOWN, False),
        ("norm.rmsnorm", Verdict.UNKNOWN, False),
    }
    assert not report.disproved
    text = exports.export(report, "shell").text
    assert "# tried here: activation.silu_and_mul on SM90 (4 variants) broken -> works (verified)" in text
    assert "# not known: kv.append_paged on SM90 (5 variants) broken -> unknown" in text


def judged(name):
    """The recording judged again for the model that it was made for."""
    report = recorded(name)
    then = report.deployed
    wanted = Wanted(model=then.model, deployment=then.deployment, config=models.config_of(then.model.name))
    kb, specs = knowledge.load(), catalog.discover()
    return pipeline.rejudge(report, replace(report.request, features=()), kb=kb, specs=specs, wanted=wanted).deployed


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        (
            "h200-started-llama-flashinfer0.7.2.post1/warm.json",
            {"attention": "FLASHINFER", "linear": "UnquantizedLinearMethod", "sampling": "FLASHINFER"},
        ),
        (
            "h200-started-gpt-oss-flashinfer0.7.2.post1/cold.json",
            {"attention": "FLASH_ATTN", "moe": "TRITON", "linear": "UnquantizedLinearMethod", "sampling": "FLASHINFER"},
        ),
    ],
)
def test_what_a_started_vllm_took_is_what_it_ran(name, chosen):
    found = judged(name)
    ran = {one.choice.operator: one.choice for one in found.parts if one.choice.evidence is Evidence.RAN}
    assert {operator: choice.chosen for operator, choice in ran.items()} == chosen
    assert ran["sampling"].features == ("sampling.top_k_top_p",)
    assert not found.stopped


def test_a_vllm_that_ended_while_it_started_is_told_first():
    """vLLM 0.25.1 passes autotune() of FlashInfer 0.5.3 an argument that it does not have."""
    then = recorded("h200-started-llama-flashinfer0.5.3/cold.json").deployed
    assert then.effect is Effect.UNKNOWN
    assert any("autotune() got an unexpected keyword argument 'cache'" in note for note in then.notes)
    attention = [one.choice for one in then.parts if one.choice.operator == "attention"]
    assert [(one.chosen, one.evidence) for one in attention] == [("FLASHINFER", Evidence.BUILT)]
