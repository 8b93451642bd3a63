"""SARIF by its published schema, and by what GitHub's code scanning asks of it: places, levels, lasting identities."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import pytest
from hostile_reports import everywhere
from msgspec.structs import replace
from report_samples import SAMPLES, all_good, broken_toolkit, cell, empty, facts, report, row, two_sms

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import Depth, Evidence, Finding, Policy, Request, Requirement, Scope, Severity, Verdict
from fi_doctor.reports import render
from fi_doctor.reports.beside import Anchor, Beside

HERE = pathlib.Path(__file__).parent
SCHEMA = json.loads((HERE / "published" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
READER = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)
ANCHOR = Anchor("gates/fi-doctor.toml", {"fail-on": 3, "require": 5, "require.norm.*": 6})
MOST_OF_RESULTS = 5000  # that GitHub shows


def run(done, **beside):
    """The one run, valid by the schema."""
    found = json.loads(render(done, "sarif", beside=Beside(**beside)))
    READER.validate(found)
    [one] = found["runs"]
    return one


def results(done, **beside):
    return run(done, **beside)["results"]


def decided(*rows, findings=(), required=(), policy=None):
    request = Request(depth=Depth.RUN, required=required, policy=policy or Policy())
    return report(rows, request=request, gate=decide(request, rows, findings, facts()), findings=findings)


def finding(name="a-rule", severity=Severity.WARNING, features=(), why="w"):
    return Finding(
        id=name,
        cause="c",
        severity=severity,
        title=f"title of {why}",
        why=why,
        fix=("do",),
        features=features,
        source="",
    )


def identities(done):
    return [one["partialFingerprints"]["fiDoctor/v1"] for one in results(done)]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("make", [lambda name: SAMPLES[name](), everywhere], ids=["as-it-is", "hostile"])
def test_it_is_valid_and_every_result_has_a_rule_a_place_and_an_identity(name, make):
    found = run(make(name))
    rules = found["tool"]["driver"]["rules"]
    assert {one["id"] for one in rules} == {one["ruleId"] for one in found["results"]}
    for one in found["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["message"]["text"]
        [place] = one["locations"]
        assert place["physicalLocation"]["artifactLocation"] == {"uri": "fi-doctor.toml", "uriBaseId": "%SRCROOT%"}
        assert set(one["partialFingerprints"]) == {"fiDoctor/v1", "primaryLocationLineHash"}
    assert len(found["results"]) < MOST_OF_RESULTS


@pytest.mark.parametrize("name", SAMPLES)
def test_no_two_results_have_one_identity(name):
    found = identities(SAMPLES[name]())
    assert len(found) == len(set(found))


@pytest.mark.parametrize("make", [all_good, broken_toolkit, empty])
def test_the_invocation_has_the_exit_code_and_says_what_it_means(make):
    [one] = run(make(), anchor=ANCHOR)["invocations"]
    assert (one["exitCode"], one["executionSuccessful"]) == (make().gate.code, True)
    assert make().gate.reason[:20] in one["exitCodeDescription"]
    assert one["toolExecutionNotifications"] == []


def test_without_a_policy_and_a_lock_it_is_said_where_results_are_placed():
    named = Policy(file="/etc/of ours/fi-doctor.toml", versions={"torch": ">=99"})
    [known] = results(decided(row("norm.a"), policy=named))
    assert known["locations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": "file:///etc/of%20ours/fi-doctor.toml"
    }
    assert run(decided(row("norm.a"), policy=named))["invocations"][0]["toolExecutionNotifications"] == []
    [note] = run(broken_toolkit())["invocations"][0]["toolExecutionNotifications"]
    assert (note["level"], "placed on fi-doctor.toml" in note["message"]["text"]) == ("note", True)


def test_what_the_gate_refuses_is_an_error_and_what_it_cannot_tell_a_warning():
    done = decided(row("norm.a", Verdict.BROKEN, Evidence.RAN, "it crashed"), row("kv.b", Verdict.WORKS))
    [one] = results(done)
    assert (one["ruleId"], one["level"]) == ("broken", "error")
    assert one["message"]["text"].startswith("norm.a on SM90: broken (ran): it crashed. Asked for: ")
    unknown = row("norm.a", Verdict.UNKNOWN, Evidence.NONE, "nobody looked")
    [one] = results(decided(unknown, row("kv.b"), required=("norm.a",)))
    assert (one["ruleId"], one["level"]) == ("unknown", "warning")
    assert results(decided(unknown, row("kv.b"))) == []
    assert results(all_good()) == []


def test_of_a_row_whose_variants_differ_each_that_fails_is_a_result():
    cells = (cell("fp16"), cell("fp32", Verdict.BROKEN, Evidence.RAN, "it crashed"), cell("fp8", Verdict.BROKEN))
    found = results(decided(row("norm.a", Verdict.BROKEN, Evidence.RAN, "it crashed", cells=cells)))
    assert [one["properties"]["variant"] for one in found] == ["fp32", "fp8"]


def test_a_finding_is_an_error_only_where_it_fails_the_gate():
    grave, info = finding("grave", Severity.ERROR), finding("told", Severity.INFO)
    levels = {one["ruleId"]: one["level"] for one in results(decided(row("norm.a"), findings=(grave, info)))}
    assert levels == {"grave": "warning", "told": "note"}
    policy = Policy(fail_on=("broken", "error"), sources={"fail-on": "fi-doctor.toml: fail-on"})
    found = results(decided(row("norm.a"), findings=(grave, info), policy=policy), anchor=ANCHOR)
    regions = {one["ruleId"]: one["locations"][0]["physicalLocation"].get("region") for one in found}
    assert {one["ruleId"]: one["level"] for one in found} == {"grave": "error", "told": "note"}
    assert regions == {"grave": {"startLine": 3}, "told": None}


def test_a_result_stands_on_the_line_that_asks_for_it():
    need = Requirement(
        feature="norm.*",
        verdict=Verdict.WORKS,
        evidence=Evidence.RAN,
        scope=Scope.SUBSET,
        source="fi-doctor.toml: require",
    )
    rows = (row("norm.a", Verdict.UNSUPPORTED, Evidence.DECLARED), row("kv.b"))
    done = decided(*rows, policy=Policy(requirements=(need,)))
    [one] = results(done, anchor=ANCHOR)
    place = one["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "gates/fi-doctor.toml", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 6}
    [outside] = results(done, anchor=Anchor("file:///etc/fi-doctor.toml"))
    assert outside["locations"][0]["physicalLocation"] == {"artifactLocation": {"uri": "file:///etc/fi-doctor.toml"}}


def test_of_several_that_ask_for_a_row_it_is_the_one_that_asks_for_the_fewest():
    need = Requirement(
        feature="norm.*",
        verdict=Verdict.WORKS,
        evidence=Evidence.RAN,
        scope=Scope.SUBSET,
        source="x.toml: require",
    )
    policy = Policy(requirements=(need,), sources={"fail-on": "x.toml: fail-on"})
    rows = (row("kv.a", Verdict.BROKEN, Evidence.RAN), row("norm.a", Verdict.BROKEN, Evidence.RAN))
    found = results(decided(*rows, policy=policy), anchor=ANCHOR)
    assert [one["locations"][0]["physicalLocation"]["region"]["startLine"] for one in found] == [3, 6]


def test_what_is_asked_of_no_row_has_a_result_too_where_it_does_not_hold():
    anchor = Anchor("fi-doctor.toml", {"versions.torch": 8})
    policy = Policy(versions={"torch": ">=99", "flashinfer-python": ">=0.1"})
    [one] = results(decided(row("norm.a"), policy=policy), anchor=anchor)
    assert (one["ruleId"], one["level"]) == ("gate", "error")
    assert one["message"]["text"].startswith("torch >=99: ")
    assert one["properties"] == {"variant": "torch >=99"}
    assert "gate" in {one["ruleId"] for one in results(empty())}


def test_an_identity_hangs_on_rule_row_and_variant_and_on_nothing_else():
    def done(why, *, sm=90, order=1):
        rows = [row("norm.a", Verdict.BROKEN, Evidence.RAN, why, sm=sm), row("norm.b", Verdict.BROKEN, why=why, sm=sm)]
        return decided(*rows[::order], findings=(finding(why=why),))

    assert identities(done("it crashed")) == identities(done("another line, /other/path", order=-1))
    assert len(set(identities(done("x")) + identities(done("x", sm=100)))) == 5
    wrong = row("norm.a", Verdict.WRONG_RESULT, Evidence.VERIFIED)
    assert not set(identities(decided(wrong))) & set(identities(done("x")))


def test_findings_of_one_rule_are_one_result_for_each_row():
    several = [finding(why="one"), finding(why="two"), finding(features=("norm.a",), why="three")]
    both, alone = results(decided(row("norm.a"), findings=tuple(several)))
    assert ("title of one" in both["message"]["text"], "title of two" in both["message"]["text"]) == (True, True)
    assert alone["properties"] == {"feature": "norm.a"}


def test_rules_have_the_texts_and_pages_that_are_at_hand():
    texts, pages = {"broken": "It should work."}, {"broken": "https://example.org/words.md#broken"}
    [rule, *_] = run(decided(row("norm.a", Verdict.BROKEN)), texts=texts, pages=pages)["tool"]["driver"]["rules"]
    assert (rule["help"]["text"], rule["helpUri"]) == ("It should work.", "https://example.org/words.md#broken")
    [rule, *_] = run(decided(row("norm.a", Verdict.BROKEN)))["tool"]["driver"]["rules"]
    assert (rule["help"]["text"], "helpUri" in rule) == ("fi-doctor explain broken", False)


def test_warnings_of_the_gate_are_notifications():
    done = replace(two_sms(), gate=replace(two_sms().gate, warnings=("it has expired",)))
    notes = run(done, anchor=ANCHOR)["invocations"][0]["toolExecutionNotifications"]
    assert notes == [{"level": "warning", "message": {"text": "it has expired"}}]
