"""What differs between two reports: verdicts, facts in the order in which they matter, findings."""

from __future__ import annotations

import factory as make
import msgspec
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.diagnosis import changes, fact_changes
from fi_doctor.model import Depth, Ending, Evidence, Missing, Request, Stage, Verdict
from fi_doctor.probing import catalog

KB, SPECS = knowledge.load(), catalog.discover()
REFUSED = "FP8 block scaling not implemented for CUDA 12.6 or lower."


def report(facts, outcomes=()):
    planned = tuple(make.planned(outcome.probe) for outcome in outcomes)
    return pipeline.conclude(
        Request(depth=Depth.RUN), kb=KB, facts=facts, planned=planned, outcomes=outcomes, created="2026-11-28"
    )


def difference(before, after):
    return changes.difference(before, after, kb=KB, specs=SPECS)


@pytest.fixture
def broken():
    facts = make.facts(toolkit=make.toolkit("12.6", jit=make.jit("12.6", home="/opt/cuda-12.6")))
    return report(facts, (make.outcome("norm.rmsnorm", Ending.RAISED, Stage.BUILT, detail=REFUSED),))


@pytest.fixture
def mended():
    return report(make.facts(), (make.outcome("norm.rmsnorm"),))


def test_a_report_does_not_differ_from_itself(broken):
    found = difference(broken, broken)
    assert (found.rows, found.facts, found.findings_gone, found.findings_new) == ((), (), (), ())
    assert found.rows_compared == len(broken.features)


def test_a_mended_row_is_told_with_both_reasons(broken, mended):
    [row] = [row for row in difference(broken, mended).rows if row.feature == "norm.rmsnorm"]
    assert row.verdicts == (Verdict.BROKEN, Verdict.WORKS)
    assert row.evidence == (Evidence.RAN, Evidence.VERIFIED)
    assert REFUSED in row.why[0]


def test_the_facts_that_differ_are_told_and_no_others(broken, mended):
    told = {fact.name: (fact.before, fact.after) for fact in difference(broken, mended).facts}
    assert told["toolkit.jit.cuda_home"] == ("/opt/cuda-12.6", "/usr/local/cuda-13.0")
    assert told["toolkit.gate_version"] == ("12.6", "13.0")
    assert {name.partition(".")[0] for name in told} == {"toolkit"}


def test_findings_come_and_go(broken, mended):
    forth, back = difference(broken, mended), difference(mended, broken)
    assert "fp8-block-moe-refused-below-cuda-12-8" in forth.findings_gone
    assert (forth.findings_gone, forth.findings_new) == (back.findings_new, back.findings_gone)


def test_a_row_of_one_side_only_has_nothing_on_the_other(mended):
    fewer = msgspec.structs.replace(mended, features=mended.features[1:])
    [row] = difference(fewer, mended).rows
    assert row.feature == mended.features[0].feature
    assert (row.verdicts[0], row.evidence[0], row.why[0]) == (None, None, "")
    assert row.verdicts[1] is mended.features[0].verdict


def test_what_differs_from_minute_to_minute_is_not_told(mended):
    gpus = make.gpu_facts(make.gpu(memory_free_mib=7))
    system = msgspec.structs.replace(mended.facts.system, memory_available_mib=7)
    later = report(msgspec.structs.replace(mended.facts, gpus=gpus, system=system), (make.outcome("norm.rmsnorm"),))
    assert difference(mended, later).facts == ()


def test_a_fact_that_is_missing_differs_from_one_that_is_there(mended):
    facts = make.facts(packages={"vllm": "0.33.0"})
    told = {fact.name: (fact.before, fact.after) for fact in difference(mended, report(facts)).facts}
    assert told["packages.vllm"][0].startswith("not known: not installed")
    assert told["packages.vllm"][1] == "0.33.0"


def test_a_variable_that_is_called_kind_is_no_missing_fact(mended):
    facts = msgspec.structs.replace(mended.facts, environment={"kind": "missing", "VLLM_X": "1"})
    told = {fact.name: fact.after for fact in difference(mended, report(facts)).facts}
    assert told["environment.VLLM_X"] == "1"


def test_a_package_that_comes_is_one_difference_and_one_that_is_in_neither_is_none(mended):
    def having(executable, version):
        absent = Missing(reason=f"not installed in {executable}")
        return replace(mended.facts, packages={"ninja": make.package("ninja", version) if version else absent})

    def told(before, after):
        return [(one.name, one.before, one.after) for one in fact_changes.changed(before, after)]

    absent = "not known: not installed in /a"
    assert told(having("/a", ""), having("/b", "1.13")) == [("packages.ninja", absent, "1.13")]
    assert told(having("/b", "1.13"), having("/a", "")) == [("packages.ninja", "1.13", absent)]
    assert told(having("/a", ""), having("/b", "")) == []
