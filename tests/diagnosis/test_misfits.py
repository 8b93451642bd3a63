"""Calls of vLLM that do not fit the installed FlashInfer, as findings."""

from __future__ import annotations

import factory as make
import pytest

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings, misfits
from fi_doctor.knowledge.explain import explain
from fi_doctor.model import MisfitKind, Severity

KB = knowledge.load()


def facts(*several, requires="flashinfer-python==0.7.2.post1", vllm="0.33.0"):
    package = make.package("vllm", vllm, requires=(requires,))
    return make.facts(packages={"vllm": package}, calls=make.calls(*several))


def found(*several, outcomes=(), **changes):
    return misfits.find(KB, facts(*several, **changes), outcomes)


def test_no_misfit_is_no_finding():
    assert found() == []
    assert misfits.find(KB, make.facts(), ()) == []


def test_a_finding_has_the_places_of_both_sides():
    [one] = found(make.misfit())
    assert one.id == "vllm-passes-unknown-flashinfer-keyword"
    assert one.why == (
        "vllm/sampler.py:5: flashinfer.sampling.top_k_top_p_sampling_from_logits (flashinfer/sampling.py:1659): "
        "unexpected keyword argument 'seed'"
    )
    assert one.source == "vllm/sampler.py:5"


def test_misfits_of_one_kind_are_one_finding_and_the_rest_is_counted():
    several = [make.misfit(name=f"flashinfer.f{number}", caller=f"a.py:{number}") for number in range(6)]
    [one] = found(*several)
    assert one.why.count("vllm/a.py:") == 4
    assert one.why.endswith("; and 2 more: fi-doctor features --calls")
    assert "6 names" in one.title


def test_a_missing_name_has_no_place_in_flashinfer():
    [one] = found(make.misfit(MisfitKind.MISSING_NAME, callee="", text="FlashInfer has no x"))
    assert one.why == "vllm/sampler.py:5: flashinfer.sampling.top_k_top_p_sampling_from_logits: FlashInfer has no x"


def test_rows_that_enter_there_are_named():
    [one] = found(make.misfit())
    assert one.features == ("sampling.top_k_top_p",)
    [one] = found(
        make.misfit(name="flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper().run", callee="prefill.py:1")
    )
    assert "attention.prefill" in one.features
    [one] = found(make.misfit(name="flashinfer.topk.top_k", callee="topk.py:1"))
    assert one.features == ()


def test_it_is_an_error_where_the_row_is_called_here_and_a_warning_elsewhere():
    called = make.outcome("sampling.top_k_top_p")
    other = make.misfit(name="flashinfer.topk.top_k", callee="topk.py:1")
    assert [one.severity for one in found(make.misfit(), outcomes=(called,))] == [Severity.ERROR]
    assert [one.severity for one in found(make.misfit(), outcomes=(called,), vllm="0.20.2")] == [Severity.WARNING]
    assert [one.severity for one in found(other, outcomes=(called,))] == [Severity.WARNING]
    lazily = make.misfit(MisfitKind.MISSING_LAZILY, callee="")
    assert [one.severity for one in found(lazily, outcomes=(called,))] == [Severity.INFO]


def test_the_fix_is_the_flashinfer_that_vllm_asks_for_where_it_is_another():
    [one] = found(make.misfit(), requires="flashinfer-python==0.6.13; extra == 'x'")
    assert one.fix == ("pip install flashinfer-python==0.6.13", "fi-doctor features --calls")
    for requires in ("flashinfer-python==0.7.2.post1", "torch"):
        [one] = found(make.misfit(), requires=requires)
        assert one.fix[0].startswith("report-upstream: https://github.com/vllm-project/vllm/issues")


@pytest.mark.parametrize("kind", MisfitKind, ids=str)
def test_each_kind_is_a_finding_of_its_own_that_is_explained(kind):
    [one] = [one for one in findings.find(KB, facts(make.misfit(kind)), ()) if one.cause == misfits.CAUSE]
    assert one.id == kind.value
    assert explain(KB, kind.value).startswith(kind.value)
