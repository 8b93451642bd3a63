"""What a policy asks: each requirement is judged, one decides, and what is allowed to fail is accounted for."""

from __future__ import annotations

import factory as make
import pytest
from gate_samples import KV, NORM, finding, gate, need, row
from msgspec.structs import replace

from fi_doctor.model import (
    FlashInfer,
    Holds,
    Policy,
    Severity,
)


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
