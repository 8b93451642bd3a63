"""What is allowed to fail: what it excuses, what it does not, and what is called allowed."""

from __future__ import annotations

import pytest
from gate_samples import KV, allow, finding, gate, need, row
from msgspec.structs import replace

from fi_doctor.model import (
    Policy,
)


def excused(policy, rows=(), found=(), **asked):
    decided = gate(rows, policy, found=found, **asked)
    return decided.code, [one.state for one in decided.allowed], [text.partition(": ")[2] for text in decided.warnings]


BROKEN = ("broken", "ran")


def test_what_is_allowed_does_not_fail():
    rows = (row(*BROKEN), row(feature=KV))
    assert excused(Policy(allowed=(allow(feature="norm.*"),)), rows) == (0, ["used"], [])
    said = gate(rows, Policy(allowed=(allow(feature="norm.*"),))).reason
    assert said == "1 row works, 1 broken; allowed to fail: norm.rmsnorm on SM90"
    required = Policy(allowed=(allow(feature="norm.*"),), requirements=(need(),))
    assert excused(required, rows) == (0, ["used"], [])
    by_finding = Policy(allowed=(allow(finding="nvcc-too-old"),), fail_on=("broken", "error"))
    assert excused(by_finding, (row(),), [finding()]) == (0, ["used"], [])


def test_what_is_allowed_excuses_nothing_else():
    policy = Policy(allowed=(allow(feature="norm.*"), allow(finding="nvcc-too-old")), fail_on=("broken", "error"))
    assert excused(policy, (row(*BROKEN), row(*BROKEN, feature=KV)), [finding()])[0] == 1
    assert excused(policy, (row(*BROKEN), row(feature=KV)), [finding(), finding("other")])[0] == 1


@pytest.mark.parametrize("left", [("unknown", "none"), ("broken", "predicted")], ids=["unknown", "predicted"])
@pytest.mark.parametrize("is_required", [False, True], ids=["fail-on", "require"])
def test_a_row_is_excused_too_that_cannot_be_told_while_another_fails_by_measurement(left, is_required):
    rows = (row(*BROKEN), row(*left, feature="norm.layernorm"), row(feature=KV))
    policy = Policy(allowed=(allow(feature="norm.rmsnorm"), allow(feature="norm.layernorm")))
    policy = replace(policy, fail_on=("broken", "wrong-result", "unknown"))
    if is_required:
        policy = replace(policy, fail_on=("none",), requirements=(need("norm.*"),))
    assert excused(policy, rows) == (0, ["used", "used"], [])
    measured_alone = replace(policy, allowed=policy.allowed[:1])
    assert excused(measured_alone, rows)[:2] == (3, ["used"])
    assert excused(replace(policy, allowed=policy.allowed[1:]), rows)[:2] == (1, ["used"])


def test_what_has_expired_allows_nothing_and_is_told():
    policy = Policy(allowed=(allow(feature="norm.*", expires="2026-11-30"),))
    code, states, warnings = excused(policy, (row(*BROKEN), row(feature=KV)))
    assert (code, states) == (1, ["expired"])
    assert warnings == ["feature norm.* expired on 2026-11-30 and allows nothing any more: a fix comes"]
    last_day = Policy(allowed=(allow(feature="norm.*", expires="2026-12-01"),))
    assert excused(last_day, (row(*BROKEN), row(feature=KV)))[:2] == (0, ["used"])


def test_what_excused_nothing_is_told_unless_its_rows_were_not_selected():
    policy = Policy(allowed=(allow(feature="norm.*"),))
    code, states, warnings = excused(policy, (row(),))
    assert (code, states) == (0, ["unused"])
    assert warnings == ["feature norm.* excused nothing; allowed until 2027-01-31: a fix comes"]
    assert excused(policy, (row(feature=KV),), features=("kv.*",)) == (0, ["not selected"], [])


def test_an_allowance_is_no_measurement():
    assert gate((row(*BROKEN[:1], "predicted"),), Policy(allowed=(allow(feature="norm.*"),))).code == 3


def test_what_holds_only_because_it_is_allowed_is_called_allowed_with_what_fails():
    policy = Policy(allowed=(allow(feature="norm.*"), allow(finding="nvcc-too-old")), fail_on=("broken", "error"))
    asked = replace(policy, requirements=(need("norm.*", evidence="ran", scope="subset"),))
    rows = (row(*BROKEN, why="it crashed"), row(feature="norm.layernorm"), row(feature=KV))
    done = gate(rows, asked, found=[finding()])
    assert (done.code, done.failed_required) == (0, ())
    assert [(str(one.holds), one.why, one.rows, one.findings) for one in done.requirements] == [
        ("allowed", "norm.rmsnorm on SM90: it crashed", (), ()),
        ("yes", "3 of 3", (), ()),
        ("allowed", "norm.rmsnorm on SM90 is broken: it crashed", (), ()),
        ("allowed", "nvcc-too-old (error): t", (), ()),
    ]
    assert not any(one.decides for one in done.requirements)


@pytest.mark.parametrize(
    ("given", "verdicts", "code"),
    [
        (("works", "verified", "subset"), ("works",), 0),
        (("works", "verified", "subset"), ("wrong-result",), 3),
        (("wrong-result", "verified", "full"), ("works",), 1),
        (("wrong-result", "verified", "full"), ("works", "wrong-result"), 0),
        (("wrong-result", "verified", "full"), (), 0),
        (("unknown", "none", "full"), ("works",), 3),
    ],
)
def test_an_allowance_with_a_verdict_excuses_no_other(given, verdicts, code):
    policy = Policy(requirements=(need(),), allowed=(allow(feature="norm.*", verdicts=verdicts),))
    assert excused(policy, (row(*given), row(feature=KV)))[:2] == (code, ["used" if code == 0 else "unused"])
    [said] = gate((row(*given),), policy).allowed
    assert said.what == f"feature norm.*{' (' * bool(verdicts)}{', '.join(verdicts)}{')' * bool(verdicts)}"
