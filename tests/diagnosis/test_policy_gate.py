"""What a policy asks: each requirement is judged, one decides, and what is allowed to fail is accounted for."""

from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import (
    Allowance,
    Depth,
    Evidence,
    Finding,
    FlashInfer,
    Holds,
    Policy,
    Request,
    Requirement,
    Scope,
    Severity,
    Verdict,
)

NORM, KV = "norm.rmsnorm", "kv.append_paged"


def need(feature=NORM, *, verdict="works", evidence="verified", scope="full"):
    return Requirement(
        feature=feature,
        verdict=Verdict(verdict),
        evidence=Evidence(evidence),
        scope=Scope(scope),
        source="fi-doctor.toml: require",
    )


def allow(*, feature="", finding="", expires="2027-01-31", verdicts=()):
    return Allowance(
        finding=finding,
        feature=feature,
        reason="a fix comes",
        expires=expires,
        source="fi-doctor.toml: allow",
        verdicts=verdicts,
    )


def finding(name="nvcc-too-old", severity=Severity.ERROR):
    return Finding(id=name, cause="x", severity=severity, title="t", why="w", fix=(), features=(), source="s")


def gate(rows, policy=None, *, features=(), found=(), facts=None, required=()):
    policy = replace(policy or Policy(), file="/repo/fi-doctor.toml", day="2026-12-01")
    request = Request(depth=Depth.RUN, features=features, required=required, policy=policy)
    return decide(request, tuple(rows), tuple(found), facts or make.facts())


def row(verdict="works", evidence="verified", scope="full", feature=NORM, **fields):
    return replace(make.row(feature, Verdict(verdict), Evidence(evidence), **fields), scope=Scope(scope))


@pytest.mark.parametrize(
    ("given", "asked", "code"),
    [
        (("works", "verified", "full"), {}, 0),
        (("works", "verified", "subset"), {}, 3),
        (("works", "verified", "subset"), {"scope": "subset"}, 0),
        (("works", "ran", "full"), {}, 3),
        (("works", "ran", "full"), {"evidence": "ran"}, 0),
        (("works", "built", "full"), {"evidence": "ran"}, 3),
        (("broken", "ran", "full"), {}, 1),
        (("broken", "predicted", "full"), {}, 3),
        (("wrong-result", "verified", "full"), {}, 1),
        (("unsupported", "declared", "full"), {}, 1),
        (("unknown", "built", "full"), {}, 3),
        (
            ("unsupported", "declared", "subset"),
            {"verdict": "unsupported", "evidence": "declared", "scope": "subset"},
            0,
        ),
        (("works", "verified", "full"), {"verdict": "unsupported", "evidence": "declared"}, 1),
    ],
)
def test_a_requirement_holds_or_not_or_cannot_be_told(given, asked, code):
    decided = gate((row(*given), row(feature=KV)), Policy(requirements=(need(**asked),)))
    assert decided.code == code
    [ruling] = [one for one in decided.requirements if one.source == "fi-doctor.toml: require"]
    assert ruling.holds is {0: Holds.YES, 1: Holds.NO, 3: Holds.CANNOT_TELL}[code]
    assert (ruling.rows == ()) is (code == 0)


def test_the_reason_says_what_is_missing():
    policy = Policy(requirements=(need(),))
    said = {
        gate((row(evidence="ran"),), policy).reason,
        gate((row(scope="subset", why="a part"),), policy).reason,
    }
    assert said == {
        "1 row works; required: norm.rmsnorm on SM90 works by ran, verified is asked for",
        "1 row works; required: norm.rmsnorm on SM90 works for a subset, full is asked for: a part",
    }


def test_one_ruling_decides_and_a_measured_failure_beats_what_cannot_be_told():
    policy = Policy(requirements=(need(KV), need()))
    decided = gate((row("broken", "ran"), row("unknown", "built", feature=KV)), policy)
    assert [(one.requirement, str(one.holds), one.decides) for one in decided.requirements] == [
        ("no selected row is broken or wrong-result", "no", True),
        ("at least one selected row was measured", "yes", False),
        ("kv.append_paged: works, verified, full", "cannot tell", False),
        ("norm.rmsnorm: works, verified, full", "no", False),
    ]
    assert decided.failed_required == (KV, NORM)


@pytest.mark.parametrize("room", [0, 150, 400])
def test_what_does_not_fit_into_the_deciding_line_is_cut_before_the_remedy_and_at_a_space(room):
    remedy = f"; settle it with: fi-doctor check --python /{'x' * room}/bin/python --feature norm.rmsnorm --budget 11m"
    why = f"budget of 480 s too short: {'it takes longer than that ' * 20}{remedy}"
    said = gate((row("unknown", "none", why=why),), Policy(requirements=(need(),))).reason
    assert said.endswith(f"...{remedy}")
    assert said.removesuffix(f"...{remedy}").split()[-1] in {"it", "takes", "longer", "than", "that"}
    bare = gate((row("unknown", "none", why=why.removesuffix(remedy)),), Policy(requirements=(need(),))).reason
    assert bare.endswith("...")
    assert len(bare) < 300


def test_the_row_that_the_reason_speaks_of_is_the_first_of_those_that_lack_something():
    rows = (row("unknown", "none", feature="norm.a"), row("broken", "ran", feature="norm.b", why="it crashed"))
    asked = gate(rows, Policy(requirements=(need("norm.*"),))).requirements[2]
    assert (asked.why, asked.rows) == ("norm.b on SM90 is broken: it crashed", ("norm.b on SM90", "norm.a on SM90"))


def test_where_all_holds_nothing_decides():
    decided = gate((row(),), Policy(requirements=(need(),)))
    assert [one.decides for one in decided.requirements] == [False] * 3


@pytest.mark.parametrize(
    ("name", "wanted", "code"),
    [
        ("torch", ">=2", 0),
        ("torch", ">=99", 1),
        ("flashinfer-python", "<0.1", 1),
        ("driver", ">=570", 0),
        ("driver", ">=999", 1),
        ("nvcc", "==13.0", 0),
        ("cuda", "<13", 1),
        ("python", ">=3.9", 0),
        ("sglang", ">=0.1", 3),
    ],
)
def test_versions(name, wanted, code):
    decided = gate((row(),), Policy(versions={name: wanted}))
    assert decided.code == code
    assert code == 0 or decided.reason.startswith(f"1 row works; version: {name}")


def test_a_package_that_is_not_installed_has_not_the_version_that_is_asked_for():
    facts = make.facts()
    facts = replace(facts, packages={**facts.packages, "vllm": make.missing("not installed in /venv")})
    assert gate((row(),), Policy(versions={"vllm": ">=0.11"}), facts=facts).code == 1


def test_a_flashinfer_without_metadata_has_the_version_that_it_says():
    facts = make.facts()
    assert isinstance(facts.flashinfer, FlashInfer)
    facts = replace(facts, packages={**facts.packages, "flashinfer-python": make.missing("no metadata")})
    assert gate((row(),), Policy(versions={"flashinfer-python": ">=0.5"}), facts=facts).code == 0


def test_a_version_that_cannot_be_compared_cannot_be_told():
    facts = make.facts()
    facts = replace(facts, packages={**facts.packages, "torch": make.package("torch", "built by hand")})
    assert gate((row(),), Policy(versions={"torch": ">=2"}), facts=facts).code == 3
    unread = make.facts(gpus=make.no_gpus())
    assert gate((row(),), Policy(versions={"driver": ">=2"}), facts=unread).code == 3


@pytest.mark.parametrize(
    ("verdict", "evidence", "fail_on", "code"),
    [
        ("broken", "ran", ("wrong-result",), 0),
        ("wrong-result", "verified", ("wrong-result",), 1),
        ("unsupported", "declared", ("unsupported",), 1),
        ("unsupported", "declared", ("broken",), 0),
        ("unknown", "none", ("unknown",), 3),
        ("broken", "predicted", ("broken",), 3),
    ],
)
def test_the_verdicts_that_fail(verdict, evidence, fail_on, code):
    decided = gate((row(verdict, evidence, feature=KV), row()), Policy(fail_on=fail_on))
    assert decided.code == code
    assert decided.requirements[0].source == ("default" if fail_on == Policy().fail_on else "fail-on")


def test_the_verdicts_that_nobody_wrote_are_said_to_be_the_default():
    """Severities alone leave them as they are; verdicts that were written are named after who wrote them."""
    who = {"fail-on": "--fail-on"}

    def sources(**fields):
        decided = gate((row(),), Policy(sources=who, **fields))
        return decided.requirements[0].source, decided.requirements[-1].source

    words = Policy().fail_on
    assert sources(fail_on=(*words, "error"), names_verdict=False) == ("default", "--fail-on")
    assert sources(fail_on=words)[0] == "--fail-on"
    nothing = gate((row("broken", "ran"), row(feature=KV)), Policy(sources=who, fail_on=()))
    assert (nothing.code, nothing.requirements[0].requirement) == (0, "no verdict of a row fails")


def with_vllm(version="0.33.0"):
    facts = make.facts()
    return replace(facts, packages={**facts.packages, "vllm": make.package("vllm", version)})


UNCALLED = {"feature": NORM, "vllm_calls": False}


@pytest.mark.parametrize(
    ("rows", "asked", "version", "code"),
    [
        ("all", (), "0.33.0", 1),
        ("called", (), "0.33.0", 0),
        ("called", (), "", 1),
        ("called", (NORM,), "0.33.0", 1),
        ("called", (KV,), "0.33.0", 0),
    ],
    ids=["all", "called", "no-vllm", "required", "another-required"],
)
def test_what_vllm_cannot_call_fails_only_where_all_rows_are_looked_at_or_it_is_required(rows, asked, version, code):
    facts = with_vllm(version) if version else make.facts()
    given = (row("wrong-result", **UNCALLED), row(feature=KV))
    decided = gate(given, Policy(rows=rows), facts=facts, required=asked)
    assert decided.code == code
    said = "selected row that vLLM 0.33.0 can call" if rows == "called" and version else "selected row"
    ends = " or that is required" if asked else ""
    assert decided.requirements[0].requirement == f"no {said}{ends} is broken or wrong-result"


def test_where_only_rows_that_vllm_cannot_call_were_measured_nobody_can_tell():
    given = (row(**UNCALLED), row("unknown", "none", feature=KV))
    assert gate(given, facts=with_vllm()).code == 0
    assert gate(given, Policy(rows="called"), facts=with_vllm()).code == 3
    alone = gate((row("broken", "ran", **UNCALLED),), Policy(rows="called"), facts=with_vllm())
    assert (alone.code, alone.reason) == (3, "1 row broken; there is no selected row that vLLM 0.33.0 can call")


def test_a_finding_about_rows_that_are_not_looked_at_fails_nothing():
    about = replace(finding(), features=(NORM,))
    given = (row("wrong-result", **UNCALLED), row(feature=KV))
    called = Policy(rows="called", fail_on=("broken", "error"))
    assert gate(given, called, facts=with_vllm(), found=[about]).code == 0
    assert gate(given, called, facts=with_vllm(), found=[replace(about, features=(NORM, KV))]).code == 1
    assert gate(given, called, facts=with_vllm(), found=[replace(about, features=())]).code == 1
    assert gate(given, replace(called, rows="all"), facts=with_vllm(), found=[about]).code == 1


@pytest.mark.parametrize(
    ("severity", "word", "code"),
    [
        ("error", "error", 1),
        ("warning", "error", 0),
        ("warning", "warning", 1),
        ("error", "warning", 1),
        ("info", "info", 1),
    ],
)
def test_findings_fail_from_the_weakest_severity_that_is_named(severity, word, code):
    decided = gate((row(),), Policy(fail_on=("broken", word)), found=[finding(severity=Severity(severity))])
    assert decided.code == code
    assert gate((row(),), found=[finding()]).code == 0


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


DAY = "2026-11-20"


def test_a_row_of_a_lock_gives_what_it_gave_when_it_was_measured_and_the_requirement_says_locked():
    locked = row().as_locked(DAY)
    done = gate((locked, row(feature=KV)), Policy(requirements=(need(),)))
    assert done.code == 0
    assert done.reason == "2 rows work, 1 of these locked"
    [asked] = [one for one in done.requirements if one.requirement.startswith(NORM)]
    assert (asked.holds, asked.why) == (Holds.YES, f"locked {DAY}")
    both = gate((locked, row(feature="norm.layernorm")), Policy(requirements=(need("norm.*"),)))
    assert both.requirements[-1].why == f"1 of 2 rows locked {DAY}"
    assert both.requirements[1].why == f"2 of 2, 1 of 2 rows locked {DAY}"


def test_a_row_of_a_lock_is_not_known_better_than_it_was_locked():
    done = gate((row("works", "ran").as_locked(DAY),), Policy(requirements=(need(),)))
    assert done.code == 3
    assert done.reason.endswith(f"{NORM} on SM90 works by ran (locked {DAY}), verified is asked for")
    broken = gate((row("broken", "ran").as_locked(DAY),), Policy(requirements=(need(),)))
    assert broken.code == 1
    assert f"locked {DAY}" in next(one.why for one in broken.requirements if one.requirement.startswith(NORM))


def lost(asked=None, *, required=()):
    unknown = row("unknown", "none", why="norm.py:1; not run: since it was locked: cache:norm")
    policy = replace(asked or Policy(), file="/repo/fi-doctor.toml", day="2026-12-01")
    request = Request(depth=Depth.RUN, required=required, policy=policy)
    return decide(request, (unknown, row(feature=KV).as_locked(DAY)), (), make.facts(), missed=(unknown,))


def test_what_a_lock_held_and_is_unknown_cannot_be_told_and_nobody_is_said_to_require_it():
    done = lost()
    assert done.code == 3
    said = "norm.rmsnorm on SM90 is unknown: since it was locked: cache:norm"
    assert done.reason == f"1 row works, 1 unknown, 1 of these locked; {said}"
    assert done.failed_required == ()
    decided = next(one for one in done.requirements if one.decides)
    assert (decided.source, decided.rows) == ("--locked", ("norm.rmsnorm on SM90",))
    assert "; required: norm.rmsnorm on SM90 is unknown" in lost(required=(NORM,)).reason
    assert lost(Policy(allowed=(allow(feature="norm.*"),))).code == 0


def test_without_a_lock_nobody_asks_what_was_locked():
    assert "--locked" not in {one.source for one in gate((row(),)).requirements}
    whole = decide(Request(depth=Depth.RUN), (row().as_locked(DAY),), (), make.facts(), missed=())
    assert [one.holds for one in whole.requirements if one.source == "--locked"] == [Holds.YES]
