"""How much of a complete backend is there, judged by plain facts and rows."""

from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.diagnosis import coverage
from fi_doctor.model import Depth, Ending, Evidence, Here, Misfit, MisfitKind, Operator, Request, Stage, Verdict

KB = knowledge.load()
RMSNORM = Operator(
    id="rmsnorm",
    group="Basic inference",
    title="RMSNorm",
    entry=("flashinfer.norm.rmsnorm", "flashinfer.norm.newer"),
    rows=("norm.rmsnorm",),
    instead="vLLM's own",
)
AWQ = Operator(id="awq", group="Quantisation", title="AWQ", patterns=("*awq*",))
SYMBOLS = {"flashinfer.norm.rmsnorm": "norm/__init__.py:642", "flashinfer.norm.newer": make.absent("it has no newer")}
PUBLIC = {"*awq*": {}}


def covered(operator=RMSNORM, *outcomes, **changes):
    """What is said of one operator."""
    fi = make.flashinfer(symbols=SYMBOLS, public=PUBLIC)
    facts = make.facts(**{"flashinfer": fi, "calls": make.calls(), **changes})
    kb = replace(KB, operators=(operator,))
    plans = tuple(make.planned(one.probe, sm=one.sm) for one in outcomes)
    request = Request(depth=Depth.RUN if outcomes else Depth.STATIC)
    report = pipeline.conclude(request, kb=kb, facts=facts, planned=plans, outcomes=outcomes, created="2026-01-02")
    whole = coverage.cover(kb, report)
    return whole.operators[0], whole


def test_what_is_there_and_called_and_works_is_missing_nowhere():
    one, whole = covered(RMSNORM, make.outcome())
    assert one.flashinfer == {"flashinfer.norm.rmsnorm": "norm/__init__.py:642"}
    assert one.vllm == ("layernorm.py:7", "layernorm.py:9")
    assert [(here.row, here.verdict) for here in one.here] == [("norm.rmsnorm", Verdict.WORKS)]
    assert (one.missing, one.unknown) == ((), ())
    assert whole.known == "what was run, at 2026-01-02"


@pytest.mark.parametrize("kind", ["misfit", "wanting"])
def test_what_vllm_asks_for_and_flashinfer_has_not_is_called_all_the_same(kind):
    gone = Misfit(MisfitKind.MISSING_NAME, "flashinfer.kda.recurrent", "kda.py:9", "", "it has no recurrent")
    told = {"misfits": (gone,)} if kind == "misfit" else {"wanting": {gone.name: gone.caller}}
    calls = make.calls(calls={}, places={}, **told)
    operator = replace(RMSNORM, entry=("flashinfer.recurrent",))
    symbols = {"flashinfer.recurrent": make.absent("it has no recurrent")}
    one, _ = covered(operator, flashinfer=make.flashinfer(symbols=symbols, public=PUBLIC), calls=calls)
    assert (one.vllm, one.missing) == (("kda.py:9",), ("flashinfer",))


def test_a_static_look_leaves_open_whether_it_works():
    one, whole = covered()
    assert (one.missing, one.unknown) == ((), ("here",))
    assert whole.known == "a static look: nothing was built or run"


def test_what_does_not_work_is_missing_here():
    one, _ = covered(RMSNORM, make.outcome(ending=Ending.RAISED, stage=Stage.BUILT, error="no"))
    assert one.missing == ("here",)


def test_a_pattern_that_nothing_matches_is_missing_in_flashinfer_and_so_in_vllm():
    one, _ = covered(AWQ)
    assert (one.flashinfer, one.flashinfer_why) == ({}, "it has no public name like *awq*")
    assert one.missing == ("flashinfer", "vllm")
    assert one.unknown == ("here",)


def test_a_pattern_that_something_matches_is_there():
    fi = make.flashinfer(public={"*awq*": {"flashinfer.gemm.mm_awq": "gemm/awq.py:3"}})
    one, _ = covered(AWQ, flashinfer=fi)
    assert (one.flashinfer, one.missing) == ({"flashinfer.gemm.mm_awq": "gemm/awq.py:3"}, ("vllm",))


def test_a_pattern_that_was_not_looked_for_is_not_missing():
    one, _ = covered(AWQ, flashinfer=make.flashinfer(public={}))
    assert ("flashinfer" in one.missing, "flashinfer" in one.unknown) == (False, True)
    assert one.flashinfer_why == "*awq* was not looked for"


def test_a_call_by_another_name_of_the_same_function_counts():
    calls = make.calls(calls={"flashinfer.rmsnorm": ("a.py:1",)}, places={"flashinfer.rmsnorm": "norm/__init__.py:642"})
    assert covered(calls=calls)[0].vllm == ("a.py:1",)


def test_a_method_of_a_class_counts_as_a_call_of_it():
    wrapper = replace(RMSNORM, entry=("flashinfer.W",))
    fi = make.flashinfer(symbols={"flashinfer.W": "w.py:1"})
    for name in ("flashinfer.W().run", "flashinfer.W.initialize"):
        calls = make.calls(calls={name: ("a.py:1",)}, places={name: "w.py:9"})
        assert covered(wrapper, flashinfer=fi, calls=calls)[0].vllm == ("a.py:1",)


def test_without_calls_it_is_not_known_whether_vllm_uses_it():
    one, whole = covered(calls=make.missing("vllm is not installed"))
    assert (one.vllm, one.vllm_why, one.unknown) == ((), "vllm is not installed", ("vllm", "here"))
    assert whole.calls == make.missing("vllm is not installed")


def test_without_flashinfer_nothing_is_known():
    one, _ = covered(flashinfer=make.missing("no flashinfer"))
    assert one.flashinfer_why == "no flashinfer"
    assert one.unknown == ("flashinfer", "vllm", "here")
    assert one.missing == ()


def test_every_row_that_no_operator_names_is_an_operator():
    _, whole = covered()
    rows = {one.id for one in whole.operators if one.group == coverage.OTHERS}
    assert rows == {feature.id for feature in KB.features} - {"norm.rmsnorm"}


@pytest.mark.parametrize("verdict", [Verdict.UNSUPPORTED, Verdict.BROKEN, Verdict.WRONG_RESULT])
def test_one_row_that_fails_is_enough(verdict):
    works = Here(row="a", sm=90, verdict=Verdict.WORKS, evidence=Evidence.RAN, why="")
    assert coverage.works((works,)) is True
    assert coverage.works((works, replace(works, verdict=verdict))) is False
    assert coverage.works((works, replace(works, verdict=Verdict.UNKNOWN))) is None
    assert coverage.works(()) is None
