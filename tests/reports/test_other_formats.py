"""JUnit, GitHub and Markdown: the same verdicts in each, counted as its readers count."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import junitparser
import pytest
from msgspec.structs import replace
from report_samples import (
    FEATURES,
    HOSTILE,
    SAMPLES,
    all_good,
    cell,
    empty,
    facts,
    from_a_lock,
    one_variant_broken,
    outcome,
    report,
    row,
)

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import (
    Allowance,
    Depth,
    Ending,
    Evidence,
    Finding,
    Policy,
    Request,
    Requirement,
    Scope,
    Severity,
    Verdict,
)
from fi_doctor.reports import render, rulings

KINDS = {junitparser.Failure: "failure", junitparser.Error: "error", junitparser.Skipped: "skipped"}
# What junit-10.xsd of Jenkins' xunit plugin allows.
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "skipped", "timestamp"},
    "testcase": {"name", "time", "classname"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
    "system-out": set(),
}
ROW = "norm.rmsnorm on SM90"


def decided(rows, *, policy=None, required=(), outcomes=None, findings=()):
    """A report of these rows with what the gate finds of them."""
    rows = tuple(rows)
    request = Request(depth=Depth.RUN, required=required, policy=policy or Policy())
    fields = {} if outcomes is None else {"outcomes": outcomes}
    gate = decide(request, rows, findings, facts())
    return report(rows, request=request, gate=gate, findings=findings, **fields)


def with_row(verdict, evidence=Evidence.RAN, why="as it is", **fields):
    """All rows work, except norm.rmsnorm."""
    return tuple(row(one, verdict, evidence, why, **fields) if one == "norm.rmsnorm" else row(one) for one in FEATURES)


def cases(done):
    """Name -> failure, error, skipped or passed, as junitparser reads it."""
    suites = junitparser.JUnitXml.fromstring(render(done, "junit").encode())
    return {one.name: KINDS[type(one.result[0])] if one.result else "passed" for suite in suites for one in suite}


def untold(ending):
    return outcome("norm.rmsnorm", ending=ending, detail="not done after 300 s")


STANDINGS = {
    "works": (with_row(Verdict.WORKS), {}, "passed"),
    "broken": (with_row(Verdict.BROKEN), {}, "failure"),
    "wrong": (with_row(Verdict.WRONG_RESULT, Evidence.VERIFIED), {}, "failure"),
    "unsupported": (with_row(Verdict.UNSUPPORTED, Evidence.DECLARED), {}, "skipped"),
    "required-unsupported": (with_row(Verdict.UNSUPPORTED, Evidence.DECLARED), {"required": ("norm.*",)}, "failure"),
    "predicted": (with_row(Verdict.BROKEN, Evidence.PREDICTED), {}, "error"),
    "not-run": (with_row(Verdict.UNKNOWN, Evidence.NONE), {"outcomes": (untold(Ending.NOT_RUN),)}, "skipped"),
    "timed-out": (with_row(Verdict.UNKNOWN, Evidence.NONE), {"outcomes": (untold(Ending.TIMED_OUT),)}, "error"),
    "lost": (with_row(Verdict.UNKNOWN, Evidence.NONE), {"outcomes": (untold(Ending.LOST),)}, "error"),
    "required-unknown": (with_row(Verdict.UNKNOWN, Evidence.NONE), {"required": (ROW.partition(" ")[0],)}, "error"),
}


@pytest.mark.parametrize("name", STANDINGS)
def test_a_row_is_counted_as_what_it_is(name):
    rows, asked, expected = STANDINGS[name]
    done = decided(rows, **asked)
    found = cases(done)
    assert found[ROW] == expected
    assert found["what was asked for holds"] == {0: "passed", 1: "failure", 3: "error"}[done.gate.code]


def test_a_failure_that_is_only_predicted_is_no_failure_while_another_row_fails_by_measurement():
    rows = with_row(Verdict.BROKEN, Evidence.PREDICTED)
    rows = tuple(row(one.feature, Verdict.BROKEN) if one.feature.startswith("norm.fused") else one for one in rows)
    for asked in ({}, {"required": ("norm.*",)}):
        done = decided(rows, **asked)
        assert (done.gate.code, cases(done)[ROW]) == (1, "error")


def test_a_row_that_works_and_not_as_well_as_required_is_an_error_that_says_what_is_asked():
    need = Requirement(
        feature="norm.*", verdict=Verdict.WORKS, evidence=Evidence.VERIFIED, scope=Scope.FULL, source="x.toml: require"
    )
    done = decided(with_row(Verdict.WORKS, Evidence.RAN), policy=Policy(requirements=(need,)))
    assert (done.gate.code, cases(done)[ROW]) == (3, "error")
    assert "asked for is norm.*: works, verified, full" in render(done, "junit")


def test_a_row_that_is_allowed_to_fail_is_skipped_and_says_until_when():
    allowed = Allowance(
        finding="", feature="norm.rmsnorm", reason="a fix is on its way", expires="2027-01-01", source=""
    )
    done = decided(with_row(Verdict.BROKEN), policy=Policy(allowed=(allowed,), day="2026-12-01"))
    assert (done.gate.code, cases(done)[ROW]) == (0, "skipped")
    assert 'message="allowed until 2027-01-01, a fix is on its way: broken' in render(done, "junit")
    assert "::error" not in render(done, "github")


def test_what_holds_only_because_it_is_allowed_is_called_allowed_and_never_yes_or_passed():
    allowed = Allowance(finding="", feature="norm.rmsnorm", reason="soon", expires="2027-01-01", source="")
    rows = with_row(Verdict.BROKEN, why="it crashed")
    done = decided(rows, policy=Policy(allowed=(allowed,), day="2026-12-01"), required=("norm.*",))
    found = cases(done)
    assert found["norm.* works [--require]"] == "skipped"
    assert found["what was asked for holds"] == "skipped"
    looked_at = "selected row that vLLM 0.33.0 can call or that is required"
    assert found[f"no {looked_at} is broken or wrong-result [default]"] == "skipped"
    assert 'message="allowed: norm.rmsnorm on SM90 is broken: it crashed"' in render(done, "junit")
    shown = render(done, "markdown")
    assert "| allowed | norm.\\* works | --require | norm.rmsnorm on SM90 is broken: it crashed |" in shown
    assert "| yes | norm" not in shown
    told = list(rulings.lines(done.gate))
    assert told[0].startswith("gate: allowed ")
    assert told[-1] == "gate: 1 of 3 requirements hold; that the others do not is allowed"
    titles = [line for line in render(done, "github").splitlines() if "norm.* works" in line]
    assert titles == []


@pytest.mark.parametrize("form", ["junit", "markdown", "console"])
def test_a_command_that_settles_it_is_never_cut(form):
    command = f"fi-doctor check --python /{'x' * 250}/bin/python --feature norm.rmsnorm --budget 11m"
    why = f"{'the budget is too short and ' * 30}; settle it with: {command}"
    shown = render(decided(with_row(Verdict.UNKNOWN, Evidence.NONE, why=why), required=("norm.rmsnorm",)), form)
    found = re.findall(r'message="([^"]*)"', shown) if form == "junit" else [shown]
    assert command in "".join(found).replace("\\", "").replace("\n    ", " ").replace("  ", " ")
    assert why not in "".join(found)


def test_every_row_because_of_which_a_requirement_does_not_hold_is_named():
    rows = tuple(row(one, Verdict.BROKEN if one.startswith("norm.") else Verdict.WORKS) for one in FEATURES)
    done = decided(rows)
    assert "; also norm.rmsnorm on SM90" in " ".join(" ".join(rulings.lines(done.gate)).split())
    assert "; also norm.rmsnorm on SM90 |" in render(done, "markdown")


def test_cells_have_cases_where_they_differ_and_only_those_of_a_failed_row_fail():
    pair = (cell("float16"), cell("float32", Verdict.BROKEN, Evidence.RAN, "it crashed"))
    names = [f"{ROW}: norm.rmsnorm float16", f"{ROW}: norm.rmsnorm float32"]
    works = cases(decided(with_row(Verdict.WORKS, Evidence.VERIFIED, cells=pair)))
    fails = cases(decided(with_row(Verdict.BROKEN, cells=pair)))
    assert [works[name] for name in names] == ["passed", "skipped"]
    assert [fails[name] for name in names] == ["passed", "failure"]
    alike = cases(all_good())
    assert [name for name in alike if "float16" in name] == []


@pytest.mark.parametrize("name", SAMPLES)
def test_junit_is_what_its_readers_take(name):
    root = ET.fromstring(render(SAMPLES[name](), "junit"))
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag]
        assert re.fullmatch(r"\d+\.\d{3}", element.get("time", "0.000"))
    for suite in root:
        counted = {tag: len(suite.findall(f"testcase/{tag}")) for tag in ("failure", "error", "skipped")}
        said = {"failure": suite.get("failures"), "error": suite.get("errors"), "skipped": suite.get("skipped")}
        assert {tag: str(number) for tag, number in counted.items()} == said
        assert suite.get("tests") == str(len(suite.findall("testcase")))
    families = [suite.get("name") for suite in root]
    assert len(families) == len(set(families))
    assert families[0] == "gate"


def test_junit_is_never_empty():
    found = cases(replace(empty(), gate=replace(empty().gate, requirements=())))
    assert found == {"what was asked for holds": "error"}


def test_what_xml_cannot_hold_is_replaced():
    bad = "".join(map(chr, range(32))) + "\ufffe\uffff\udcff\x7f]]>&<\"'"
    done = decided(with_row(Verdict.BROKEN, why=bad))
    said = ET.fromstring(render(done, "junit").encode()).find(".//testsuite[@name='norm']/testcase/failure").text
    assert "\\x00\\x01" in said
    assert "\\ufffe\\uffff\\udcff\\x7f]]>&<\"'" in said


def test_a_failure_says_the_deciding_lines_and_how_to_see_it_again():
    said = render(one_variant_broken(), "junit")
    assert "Segmentation fault" in said
    assert "reproduce: CUDA_VISIBLE_DEVICES=GPU-0" in said


def annotations(done, kind):
    return [line for line in render(done, "github").splitlines() if line.startswith(f"::{kind} ")]


def test_there_are_at_most_ten_annotations_of_a_kind_and_the_last_says_how_many_are_left_out():
    rows = [row(f"norm.n{number:02}", Verdict.BROKEN, Evidence.RAN, "x") for number in range(15)]
    wrong = row("norm.z", Verdict.WRONG_RESULT, Evidence.VERIFIED, "max error 3")
    found = annotations(decided((*rows, wrong)), "error")
    assert len(found) == 10
    assert found[0].startswith("::error title=fi-doctor%3A exit 1%2C")
    assert found[1] == "::error title=norm.z on SM90%3A wrong-result (verified)::max error 3"
    assert found[-1] == "::error title=fi-doctor::8 more; the summary and the other formats have all"
    assert len(annotations(decided((*rows[:8], wrong)), "error")) == 10
    assert annotations(decided((*rows[:8], wrong)), "error")[-1].startswith("::error title=norm.n07")


def test_a_check_that_passes_has_no_error_whatever_is_found():
    finding = Finding(
        id="x", cause="y", severity=Severity.ERROR, title="50% of it", why="w", fix=(), features=(), source=""
    )
    done = decided(with_row(Verdict.WORKS), findings=(finding,))
    assert (done.gate.code, annotations(done, "error")) == (0, [])
    assert annotations(done, "warning") == ["::warning title=x (error that does not fail this gate)::50%25 of it: w"]
    failed = decided(with_row(Verdict.WORKS), findings=(finding,), policy=Policy(fail_on=("broken", "warning")))
    assert (failed.gate.code, len(annotations(failed, "error"))) == (1, 2)


def test_every_line_of_github_is_a_command_of_ours():
    for sample in SAMPLES.values():
        for line in render(sample(), "github").splitlines():
            assert re.match(r"::(error|warning|notice) title=[^:,]+::", line)


def test_markdown_obeys_nothing_that_is_in_the_report():
    rows = with_row(Verdict.BROKEN, why=f"a | b <script> @team `x` [l](u) **b** &lt; {HOSTILE}")
    text = render(decided(rows), "markdown")
    [line] = [line for line in text.splitlines() if line.startswith("| norm.rmsnorm on SM90")]
    assert len(re.findall(r"(?<!\\)\|", line)) == 5
    for raw in ("<script>", " @team", "](u)", "&lt;", "\x1b", "\u202e"):
        assert raw not in text.replace("\\" + raw.strip(), "")


def test_markdown_says_what_decided():
    text = render(decided(with_row(Verdict.BROKEN, why="it crashed")), "markdown")
    assert text.startswith("# fi-doctor: exit 1, measured, and does not hold\n")
    said = "no selected row that vLLM 0.33.0 can call is broken or wrong-result"
    assert f"| **no** (decides) | {said} | default |" in text


def test_what_a_lock_holds_says_so_wherever_it_is_named():
    done = from_a_lock()
    # github names what fails alone, and counts the others.
    for form, lines in {"console": 6, "markdown": 6, "junit": 6, "github": 1, "json": 6, "yaml": 6}.items():
        text = render(done, form, width=200)
        assert text.count("locked 2026-11-20") >= lines, form
        told = [line for line in text.splitlines() if "killed by SIGABRT" in line]
        assert told, form
        assert [line for line in told if "locked 2026-11-20" not in line] == [], form
        assert ("6 rows locked 2026-11-20" if form == "console" else "6 of these locked") in text, form


def test_a_case_that_passes_by_a_lock_says_so_and_one_that_passes_now_does_not():
    root = ET.fromstring(render(from_a_lock(), "junit"))
    said = {case.get("name"): case.findtext("system-out") for case in root.iter("testcase")}
    assert said["norm.fused_add_rmsnorm on SM90"].startswith("works (verified): locked 2026-11-20: ")
    assert said[f"{ROW}: norm.rmsnorm float16"].startswith("works (verified): locked 2026-11-20: ")
    rows = {case.get("name"): case for case in ET.fromstring(render(all_good(), "junit")).iter("testcase")}
    assert rows["norm.fused_add_rmsnorm on SM90"].find("system-out") is None
