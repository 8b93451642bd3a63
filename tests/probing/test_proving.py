"""Recommended changes are tried on the probes that failed, in real children of a probe that obeys variables."""

from __future__ import annotations

import os
import time

import machine_samples
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline, proving
from fi_doctor.diagnosis import proofs
from fi_doctor.errors import TargetError
from fi_doctor.model import (
    Action,
    ActionKind,
    Depth,
    Evidence,
    Feature,
    Missing,
    Package,
    Proven,
    Request,
    Rule,
    Setting,
    Severity,
    Silent,
    Verdict,
)
from fi_doctor.probing import catalog, plan, run

FEATURE = "fake.obeys"
INSTALL = ActionKind.INSTALL
PROBE = '''"""Does the variable of a variant mend it?"""

import os
import signal

PROBE = {
    "id": "fake.obeys",
    "feature": "fake.obeys",
    "gpus": 0,
    "timeout_s": 20,
    "variants": {
        "first": {},
        "second": {},
        "dies": {},
        "cache": {},
        "needs": {"packages": {"found": ""}},
    },
}


def run(variant):
    if variant == "cache" and "FLASHINFER_WORKSPACE_BASE" not in os.environ:
        raise RuntimeError("a stale module")
    if variant == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if variant in ("first", "second") and os.environ.get("MENDS") != variant:
        raise RuntimeError(f"no {variant}" if "MENDS" not in os.environ else f"{os.environ['MENDS']} instead")
    return {"elements": 1}
'''
SETTINGS = tuple(
    Setting(name=name, owner=owner, kind="env", read_by=">=0", what="it steers the probe", source="here")
    for name, owner in (("MENDS", "flashinfer-python"), ("VLLM_MENDS", "vllm"))
)
ROW = Feature(id=FEATURE, title="a row", entry=(), probes=(FEATURE,), vllm=(), needs_gpu=False)


class Machine:
    """What stands for a reading of a machine. later: what is read of it with further variables."""

    def __init__(self, facts, *, later=None, environ=None, fault=None):
        self.environ = environ or {"PATH": os.environ["PATH"]}
        self._facts, self._later, self._fault = facts, later or facts, fault

    def again(self, assignments, _):
        return Machine(self._later, environ={**self.environ, **dict(assignments)}, fault=self._fault)

    def finish(self, _):
        if self._fault:
            raise self._fault
        return self._facts


def rule(name, explains, *lines, kind=ActionKind.SET):
    setting = "" if kind is INSTALL else "MENDS"
    fix = tuple(Action(kind=kind, line=line, setting=setting) for line in lines)
    return Rule(
        id=name,
        cause=name,
        severity=Severity.ERROR,
        title=name,
        why="it is so",
        when={"missing": "nvcc"},
        fix=fix,
        source="here",
        status="confirmed",
        features=(FEATURE,),
        explains=explains,
    )


@pytest.fixture
def proven(tmp_path):
    """A function: the report that is proven with these rules, for these variants."""
    path = tmp_path / "fake_obeys.py"
    path.write_text(PROBE)

    def prove(*rules, variants, budget_s=60.0, fault=None, from_cache=False, later=None):
        package = Package(
            name="flashinfer-python",
            version="0.7.2",
            location="/site",
            editable=False,
            commit=MISSING,
            requires=(),
            shadowed=(),
        )
        facts = replace(machine_samples.bare_facts(), packages={"flashinfer-python": package})
        spec = catalog.parse(PROBE, str(path), "fi-doctor")
        request = Request(depth=Depth.RUN, jobs=1, budget_s=60)
        [planned] = plan.plan((spec,), facts, request)
        planned = (replace(planned, variants=tuple(name for name in planned.variants if name in variants)),)
        machine = Machine(facts, later=later(facts) if later else None, fault=fault)
        outcomes, _ = run.run_all(planned, facts=facts, request=request, watch=Silent(), environ=machine.environ)
        if from_cache:
            cells = tuple(replace(cell, module_from="cache") for cell in outcomes[0].cells)
            outcomes = (replace(outcomes[0], cells=cells),)
        kb = replace(knowledge.load(), rules=rules, settings=SETTINGS, features=(ROW,), operators=())
        report = pipeline.conclude(request, kb=kb, facts=facts, planned=planned, outcomes=outcomes, created="")
        examined = proving.Examined(kb, machine, (), planned, Silent())
        return proving.prove(report, examined, time.monotonic() + budget_s)

    return prove


MISSING = Missing(reason="not read")


def test_a_change_that_turns_its_cells_is_kept_with_before_and_after(proven):
    report = proven(rule("a", "first", "export MENDS=first"), variants=("first", "second"))
    [one] = report.recommendations[:1]
    [trial] = one.proof.trials
    assert (one.proof.result, trial.variant, trial.turned) == (Proven.TURNED, "first", True)
    assert (trial.before.verdict, trial.before.why) == (Verdict.BROKEN, "RuntimeError: no first")
    assert (trial.after.verdict, trial.after.evidence) == (Verdict.WORKS, Evidence.VERIFIED)
    assert report.disproved == ()


def test_one_that_turns_some_of_its_cells_says_which(proven):
    report = proven(rule("a", "", "export MENDS=second"), variants=("first", "second", "dies"))
    proof = report.recommendations[0].proof
    assert proof.result is Proven.IN_PART
    found = {one.variant: (one.turned, one.after.why) for one in proof.trials}
    assert found["second"][0]
    assert found["first"] == (False, "RuntimeError: second instead")
    assert not found["dies"][0]
    assert found["dies"][1].startswith("SIGSEGV")


def test_one_that_does_not_help_makes_way_for_the_next_mend_of_its_finding(proven):
    report = proven(rule("a", "first", "export MENDS=other", "export MENDS=first"), variants=("first",))
    [gone] = report.disproved
    assert (gone.line, gone.proof.result) == ("export MENDS=other", Proven.DID_NOT_HELP)
    assert gone.proof.trials[0].after.why == "RuntimeError: other instead"
    [kept] = report.recommendations
    assert (kept.line, kept.proof.result) == ("export MENDS=first", Proven.TURNED)


def test_what_is_turned_is_not_tried_with_another_change(proven):
    rules = rule("a", "first", "export MENDS=first"), rule("b", "first", "export MENDS=first OTHER=1")
    first, second = proven(*rules, variants=("first",)).recommendations
    assert first.proof.result is Proven.TURNED
    assert second.proof.why == ("not tried, since what it is meant to turn is turned by export MENDS=first")


def test_without_time_nothing_is_proven_and_nothing_dropped(proven):
    report = proven(rule("a", "first", "export MENDS=other"), variants=("first",), budget_s=0.0)
    [one] = report.recommendations
    assert (one.proof.result, one.proof.why) == (Proven.NOT_PROVEN, "no time: the budget is used up")
    assert report.disproved == ()


def test_a_change_with_which_the_interpreter_does_not_start_is_disproved(proven):
    fault = TargetError("it cannot be used", why="exit code 127")
    report = proven(rule("a", "first", "export MENDS=first"), variants=("first",), fault=fault)
    assert report.disproved[0].proof.why == "with it the interpreter cannot be used: it cannot be used: exit code 127"


def test_what_empty_caches_mend_is_not_credited_to_the_change(proven):
    report = proven(rule("a", "stale", "export MENDS=first"), variants=("cache",), from_cache=True)
    proof = report.recommendations[0].proof
    assert proof.result is Proven.NOT_PROVEN
    assert proof.why == "what it is meant to turn works with empty caches, without the change too"


def with_package(facts):
    found = replace(facts.packages["flashinfer-python"], name="found")
    return replace(facts, packages={**facts.packages, "found": found})


def test_what_could_not_be_tried_before_is_tried_with_the_change(proven):
    a = rule("a", "needs", "export MENDS=first")
    [trial] = proven(a, variants=("needs",), later=with_package).recommendations[0].proof.trials
    assert (trial.variant, trial.before.evidence, trial.before.verdict) == ("needs", Evidence.NONE, Verdict.UNKNOWN)
    assert (trial.after.verdict, trial.turned) == (Verdict.WORKS, True)


def test_what_can_be_tried_neither_before_nor_after_proves_nothing(proven):
    report = proven(rule("a", "needs", "export MENDS=first"), variants=("needs",))
    proof = report.recommendations[0].proof
    assert (proof.result, proof.why) == (Proven.NOT_PROVEN, "with it nothing could be tried either")


UNTRIED = {
    "export MENDS=/path/to/choose": "its value is to be chosen first",
    "export VLLM_MENDS=first": "VLLM_MENDS is vLLM's, and no probe reads it",
    "unset MENDS": "that is how it is set already",
    "export MENDS=unasked": "nothing was tried here and failed that it is meant to turn",
    "pip install something": "it installs a package, and nothing is installed here",
}


def test_what_no_probe_can_tell_is_neither_kept_nor_dropped_for_it(proven):
    rules = [
        rule(f"r{number}", "no such failure", line, kind=INSTALL if line.startswith("pip") else ActionKind.SET)
        for number, line in enumerate(UNTRIED)
    ]
    report = proven(*rules, variants=("first",))
    told = {one.line: one.proof for one in report.recommendations if one.line in UNTRIED}
    assert {line: proof.why for line, proof in told.items()} == UNTRIED
    assert {proof.result for proof in told.values()} == {Proven.NOT_PROVEN}
    assert report.disproved == ()
    assert {one.proof for one in report.recommendations if one.kind is ActionKind.REPORT} == {None}


def test_a_report_that_is_judged_anew_keeps_what_was_proven(proven):
    recorded = proven(rule("a", "first", "export MENDS=first"), variants=("first",))
    bare = replace(recorded, recommendations=tuple(replace(one, proof=None) for one in recorded.recommendations))
    assert proofs.as_recorded(bare, recorded) == recorded
