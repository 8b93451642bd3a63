"""A move to other versions or another GPU: what moves with it, what stands otherwise, what keeps what is required."""

from __future__ import annotations

import functools

import pytest
import upgraded_machines as machines
from msgspec.structs import replace
from upgraded_machines import H200, TWO_H200

from fi_doctor import targeting, upgraded
from fi_doctor.cli import targeting as reading
from fi_doctor.facts import released
from fi_doctor.facts.architectures import VARIABLE
from fi_doctor.knowledge import gpus
from fi_doctor.model import Evidence, Holds, Missing, Verdict
from fi_doctor.model.plans import Standing
from fi_doctor.model.targets import Target
from fi_doctor.moving import altered, ends, judging, keeping, pins, planning
from fi_doctor.moving.standing import moves, stands
from fi_doctor.reports import plans

NEW = "h200-cuda13.0-flashinfer0.7.2.post1/warm.json"


@functools.cache
def known():
    return judging.Known(*machines.shipped())


@functools.cache
def facts(name=NEW):
    return upgraded.completed(machines.recorded(name).facts)


@functools.cache
def ended(words, name=NEW):
    return ends.end(facts(name), reading.target(words, needs_gpu=False), is_here=False)


@functools.cache
def planned(words, name=NEW, required=(), *, is_recorded=False):
    to = reading.target(words, needs_gpu=False)
    recorded = machines.recorded(name) if is_recorded else None
    return planning.plan(
        facts(name), to, required=required, known=known(), words=("", words), recorded=recorded, is_here=False
    )


def pinned(end):
    return {pin.what: pin for pin in end.pins}


@functools.cache
def standing(words, name=NEW):
    return stands(judging.glance(ended(words, name).facts, known()), known().kb)


def test_what_a_release_requires_moves_with_it_and_says_who_asks():
    found = pinned(ended("vllm=0.33.0", TWO_H200))
    assert found["vllm"].is_asked
    assert not found["flashinfer-python"].is_asked
    assert (found["flashinfer-python"].before, found["flashinfer-python"].after) == ("0.5.3", "0.7.2.post1")
    assert found["flashinfer-python"].why == "vLLM 0.33.0 requires flashinfer-python==0.7.2.post1"
    assert found["flashinfer-python"].source == "Requires-Dist of vllm 0.33.0"
    assert found["torch"].after == "2.14.0"
    assert found["torch"].why.endswith("its wheel on PyPI is for CUDA 13.0")
    assert found["nvidia-cudnn-frontend"].after == ">=1.31.0"
    assert not [pin for pin in found.values() if pin.overrides]


def test_what_is_there_already_does_not_move():
    assert "vllm" not in pinned(ended("vllm=0.33.0"))
    assert ended("h200").facts.packages == facts().packages
    assert planned("vllm=0.33.0,flashinfer=0.7.2.post1").pins == ended("vllm=0.33.0").pins


def test_a_version_that_a_release_does_not_admit_is_named_as_what_it_is():
    end = ended("vllm=0.33.0,flashinfer=0.6.13", TWO_H200)
    assert end.facts.flashinfer.version == "0.6.13"
    assert pinned(end)["flashinfer-python"].overrides == "vLLM 0.33.0 requires flashinfer-python==0.7.2.post1"
    alone = pinned(ended("flashinfer=0.6.13"))["flashinfer-python"]
    assert alone.overrides == "vLLM 0.33.0 requires flashinfer-python==0.7.2.post1"
    assert not pinned(ended("vllm=0.28.0"))["flashinfer-python"].overrides
    told = plans.headline(planned("flashinfer=0.6.13"))
    assert told.endswith("3 versions move, 2 of them unasked, 1 AGAINST a requirement")
    assert "AGAINST" not in plans.headline(planned("vllm=0.28.0"))


def test_companions_go_with_flashinfer_and_only_where_they_are():
    package = machines.package(facts(), "flashinfer-cubin", "0.7.2.post1")
    here = replace(facts(), packages={**facts().packages, "flashinfer-cubin": package})
    found = pins.packages(here, {"flashinfer-python": "0.6.13"})
    assert found.versions["flashinfer-cubin"] == "0.6.13"
    assert "flashinfer-cubin" not in pins.packages(facts(), {"flashinfer-python": "0.6.13"}).versions


def test_torch_for_another_cuda_is_a_version_that_moves():
    here = replace(facts(), toolkit=replace(facts().toolkit, torch_cuda="12.8"))
    end = ends.end(here, reading.target("torch=2.13.0", needs_gpu=False), is_here=False)
    assert (pinned(end)["torch's CUDA"].before, pinned(end)["torch's CUDA"].after) == ("12.8", "13.0")
    assert "torch's CUDA" not in pinned(ended("vllm=0.28.0"))


@pytest.mark.parametrize(
    ("words", "what", "least", "is_met"),
    [
        ("driver=570", "driver", "580", False),
        ("driver=580", "driver", "580", True),
        ("vllm=0.17.1,cuda=12.8,driver=550", "driver", "525", True),
        ("b200,vllm=0.17.1,cuda=12.8,driver=550", "driver", "570", False),
        ("b300,vllm=0.17.1,cuda=12.9,driver=575", "driver", "575", True),
        ("b200,cuda=12.4", "nvcc", "12.8", False),
        ("h200,cuda=11.8", "nvcc", "12.0", False),  # sm_90a
        ("b300,cuda=12.8", "nvcc", "12.9", False),
        ("b300,cuda=12.9", "nvcc", "12.9", True),
        ("b300,vllm=0.17.1", "torch's CUDA", "12.8", True),
        ("thor,vllm=0.17.1", "torch's CUDA", "13.0", False),
    ],
)
def test_what_gpu_and_torch_need_of_driver_and_toolkit(words, what, least, is_met):
    [need] = [one for one in pins.needs(ended(words).facts) if one.what == what]
    assert (need.least, need.is_met) == (least, is_met)


def test_a_driver_that_is_not_known_is_neither_enough_nor_too_old():
    unknown = replace(facts(), gpus=replace(facts().gpus, driver=Missing(reason="no NVML")))
    [need] = [one for one in pins.needs(unknown) if one.what == "driver"]
    assert isinstance(need.is_met, Missing)


def test_another_gpu_has_its_own_architecture_and_no_module_of_the_old_one():
    after = ended("b200").facts.flashinfer
    assert (after.architectures, after.cached_modules) == (("100a",), ())
    assert ended("h200").facts.flashinfer == facts().flashinfer
    named = replace(facts(), environment={**facts().environment, VARIABLE: "9.0a"})
    end = ends.end(named, reading.target("b200"), is_here=False)
    assert end.facts.flashinfer.architectures == facts().flashinfer.architectures


def test_a_row_for_other_gpus_is_lost_and_one_for_this_gpu_may_work():
    found = {row.feature: row for row in moves(standing("h200"), standing("b200"))}
    lost, gained = found["gemm.fp8_block_sm90"], found["gemm.mxfp8"]
    assert (lost.before, lost.after, lost.evidence) == (Standing.EXPECTED, Standing.UNSUPPORTED, Evidence.DECLARED)
    assert "this is 100" in lost.why
    assert (gained.before, gained.after) == (Standing.UNSUPPORTED, Standing.OPEN)
    assert lost.calls == ("called without a flag", "not called")
    assert lost.sms == (90, 100)


def test_nothing_that_stays_stands_otherwise():
    assert list(moves(standing("h200"), standing("h200"))) == []
    assert planned("h200").rows == ()
    assert planned("h200").code == 0


def test_what_cannot_be_compiled_or_run_is_broken_by_what_is_known():
    old = standing("b200,cuda=12.4")["norm.rmsnorm"]
    assert (old.standing, old.evidence) == (Standing.BROKEN, Evidence.PREDICTED)
    assert old.why.startswith("nvcc-too-old-for-gpu: nvcc 12.4")
    assert standing("h200,driver=535")["norm.rmsnorm"].why.startswith("driver-too-old-for-torch")
    assert standing("b200,cuda=13.0")["norm.rmsnorm"].standing is Standing.OPEN


def test_of_a_release_that_is_not_shipped_nothing_is_known_and_nothing_holds(monkeypatch):
    monkeypatch.setattr(released, "of_release", lambda name, kind: None)
    found = planned.__wrapped__("flashinfer=0.7.4", required=("attention.decode",))
    assert (found.code, found.required[0].holds) == (3, Holds.CANNOT_TELL)
    assert found.search is None
    assert any("flashinfer-python 0.7.4 are not in the shipped data" in note for note in found.notes)


def test_what_was_measured_to_fail_stays_so_until_a_mend_is_known():
    rows = {row.feature: row for row in planned("vllm=0.33.0", TWO_H200, is_recorded=True).rows}
    mended = rows["activation.silu_and_mul"]
    assert (mended.before, mended.after) == (Standing.BROKEN, Standing.EXPECTED)
    assert "it ran on NVIDIA H200 with this release" in mended.why
    known_rule = rows["comm.allreduce_fusion"]
    assert (known_rule.before, known_rule.after) == (Standing.WRONG_RESULT, Standing.OPEN)
    assert known_rule.why == "known to be mended: two-shot-allreduce-barrier-lets-through"
    same = planned("driver=590", TWO_H200, required=("activation.silu_and_mul",), is_recorded=True)
    assert same.required[0].holds is Holds.NO
    assert same.required[0].why == "bf16_d3420: predicted by act-and-mul-misaligned"


@pytest.mark.parametrize(("verdict", "after"), [(Verdict.BROKEN, Standing.BROKEN), (Verdict.WORKS, Standing.EXPECTED)])
def test_that_other_machines_ran_it_mends_nothing_that_was_measured_here(verdict, after):
    recorded = machines.recorded(NEW)
    rows = (
        replace(row, verdict=verdict, evidence=Evidence.VERIFIED) if row.feature == "norm.rmsnorm" else row
        for row in recorded.features
    )
    judged = judging.glance(ended("driver=590").facts, known())
    one = stands(judged, known().kb, before=replace(recorded, features=tuple(rows)))["norm.rmsnorm"]
    assert one.standing is after
    assert ("not known to be mended by it" in one.why) == (verdict is Verdict.BROKEN)


def test_what_works_before_and_is_not_measured_after_is_no_change():
    found = planned("driver=590", TWO_H200, is_recorded=True)
    assert found.rows == ()


def test_settings_that_end_and_defaults_that_change():
    found = {
        one.name: one for one in altered.find(known().kb, facts(TWO_H200), ended("vllm=0.33.0", TWO_H200).facts, ())
    }
    gone = found["VLLM_ATTENTION_BACKEND"]
    assert (gone.before, gone.after, gone.instead, gone.is_set) == (
        "read",
        "not known",
        ("--attention-backend",),
        False,
    )
    other = found["VLLM_USE_FLASHINFER_SAMPLER"]
    assert (other.before, other.after) == ("default unset", "default True")
    assert altered.find(known().kb, facts(), ended("b200").facts, ()) == ()


def test_a_setting_that_is_set_comes_first():
    before = facts(TWO_H200)
    before = replace(before, environment={**before.environment, "VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    after = ends.end(before, reading.target("vllm=0.33.0", needs_gpu=False), is_here=False).facts
    first = altered.find(known().kb, before, after, ())[0]
    assert (first.name, first.is_set) == ("VLLM_ATTENTION_BACKEND", True)
    assert "--attention-backend FLASHINFER" in first.remark


def test_a_first_start_compiles_what_is_not_there():
    before, after = planned("b200").starts
    assert {"norm", "sampling"} <= {*after.modules}
    assert "fused_moe_90" in before.modules
    assert "fused_moe_90" not in after.modules
    assert after.seconds > 0
    assert "gemm.fp4" in after.unknown
    text = plans.render(planned("b200"), width=80).replace("\n      ", " ")
    assert f"after: {len(after.modules)} modules: " in text
    assert "after, of which it is not known: " in text
    there = replace(facts().flashinfer, jit_cache_modules=before.modules)
    assert judging.judge(replace(facts(), flashinfer=there), known()).expected.first_start.modules == ()


def test_a_row_that_vllm_no_longer_calls_is_lost_and_one_behind_a_flag_says_which():
    before = {"attention.sinks": standing("h200")["attention.sinks"]}
    [lost] = keeping.kept(["attention.sinks"], before, standing("vllm=0.28.0"), ended("vllm=0.28.0").facts, known().kb)
    assert lost.holds is Holds.NO
    assert "vLLM 0.28.0 does not call it" in lost.why
    [same] = keeping.kept(["attention.sinks"], before, standing("h200"), facts(), known().kb)
    assert same.holds is Holds.YES
    called = {"comm.allreduce": standing("h200")["comm.allreduce"]}
    [flag] = keeping.kept(["comm.allreduce"], called, standing("vllm=0.28.0"), ended("vllm=0.28.0").facts, known().kb)
    assert (flag.holds, flag.line) == (Holds.YES, "export VLLM_ALLREDUCE_USE_FLASHINFER=1")


def test_a_target_without_a_gpu_describes_the_rest():
    assert reading.target("vllm=0.33.0", needs_gpu=False).sm == 0
    assert targeting.driver_of("580.95").cuda == "13.0"


def test_no_line_is_longer_than_the_terminal_and_nothing_is_said_to_work():
    found = planned("b200,cuda=12.4", H200, required=("moe.bf16",))
    for width in (80, 120):
        lines = plans.render(found, width=width).splitlines()
        assert max(len(line) for line in lines if " " in line.strip()) <= width
    assert not [row for row in found.rows if row.after is Standing.WORKS]


def test_what_machines_of_its_kind_showed_is_expected_and_not_measured():
    judged = judging.glance(facts(), known())
    rows = tuple(replace(row, verdict=Verdict.WORKS, evidence=Evidence.PREDICTED) for row in judged.features)
    found = stands(judged._replace(features=rows), known().kb)
    assert {one.standing for one in found.values()} == {Standing.EXPECTED}
    assert list(moves(found, stands(judged._replace(features=rows), known().kb))) == []


def test_where_there_was_no_vllm_nothing_is_called_otherwise():
    absent = machines.ABSENT
    before = replace(facts(), packages={**facts().packages, "vllm": absent}, vllm=absent, calls=absent)
    after = ends.end(before, reading.target("vllm=0.28.0", needs_gpu=False), is_here=False)
    one, other = (stands(judging.glance(it, known()), known().kb) for it in (before, after.facts))
    assert {row.calls for row in moves(one, other)} == {("", "")}
    [kept] = keeping.kept(["attention.sinks"], one, other, after.facts, known().kb)
    assert kept.holds is Holds.YES


def test_two_releases_that_want_different_versions_of_a_third_are_told():
    clash = pinned(ended("vllm=0.28.0,flashinfer=0.7.4"))["nvidia-cutlass-dsl"]
    assert (clash.after, clash.overrides) == ("4.6.2", "FlashInfer 0.7.4 requires nvidia-cutlass-dsl>=4.8.0")
    assert not pinned(ended("vllm=0.28.0"))["nvidia-cutlass-dsl"].overrides


def test_a_gpu_beside_another_cpu_says_so():
    assert any("GB200 comes with an aarch64 CPU" in note for note in planned("gb200").notes)
    assert not any("aarch64" in note for note in planned("b200").notes)
    assert {one.name for one in gpus.GPUS} >= gpus.ON_ARM


@pytest.mark.parametrize("version", ["0.34.0.dev1+g1234", "main", ""])
def test_a_vllm_of_no_release_is_where_a_move_can_begin(version):
    vllm = replace(facts().packages["vllm"], version=version or Missing(reason="no metadata"))
    begin = replace(facts(), packages={**facts().packages, "vllm": vllm})
    to = reading.target("driver=470", needs_gpu=False)
    found = planning.plan(begin, to, required=("norm.rmsnorm",), known=known(), words=("", ""), is_here=False)
    assert found.code == 1
    assert found.search.found


def test_a_version_that_nobody_can_compare_is_not_admitted():
    [torch] = [pin for pin in pins.packages(facts(), {"torch": "2.14.0foo"}).pins if pin.what == "torch"]
    assert torch.overrides == "vLLM 0.33.0 requires torch==2.14.0"


def test_a_torch_of_which_nothing_is_known_is_told():
    to = Target(words="", sm=0, versions={"torch": "9.9"})
    found = planning.plan(facts(), to, required=(), known=known(), words=("", ""), is_here=False)
    assert any("torch 9.9" in note for note in found.notes)
    assert not any("torch" in note for note in planned("torch=2.13.0").notes)
