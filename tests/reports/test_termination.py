"""A termination message: the most important first, whole lines, never more than Kubernetes keeps."""

from __future__ import annotations

import re

import pytest
from hostile_reports import everywhere
from msgspec.structs import replace
from report_samples import SAMPLES, all_good, broken_toolkit, facts, outcome, report, row

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import Depth, Ending, Evidence, Holds, Request, Ruling, Verdict
from fi_doctor.reports import render

LEFT_OUT = re.compile(r"(\d+) lines? left out; --format json has everything")


def failing(number, why="it crashed"):
    """As many rows that fail as are asked for."""
    rows = tuple(row(f"norm.n{one:03}", Verdict.BROKEN, why=why) for one in range(number))
    request = Request(depth=Depth.RUN)
    return report(rows, request=request, gate=decide(request, rows, (), facts()))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("make", [lambda name: SAMPLES[name](), everywhere], ids=["as-it-is", "hostile"])
def test_it_is_plain_text_that_fits(name, make):
    text = render(make(name), "termination-log")
    assert 0 < len(text.encode()) <= 4096
    assert text.endswith("\n")
    assert text.startswith(f"Exit {make(name).gate.code} (")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_the_answer_then_what_failed_first_then_what_to_do():
    lines = render(broken_toolkit(), "termination-log").splitlines()
    starts = [line.partition(" ")[0] for line in lines]
    assert lines[0].startswith("Exit 1 (measured, and does not hold)")
    assert starts.index("failed") < starts.index("to")
    assert any(line.startswith("  reproduce: fi-doctor check") for line in lines)
    assert not any("left out" in line for line in lines)


def test_of_a_check_that_passes_no_failure_is_told():
    assert "failed first" not in render(all_good(), "termination-log")


@pytest.mark.parametrize("letter", ["x", "é", "宽", "\U0001f600"])
def test_what_does_not_fit_is_counted_and_no_character_is_cut(letter):
    text = render(failing(60, f"because {letter * 90}"), "termination-log")
    size = len(text.encode())
    assert 3000 < size <= 4096
    *lines, last = text.splitlines()
    shown = [line for line in lines if line.startswith("norm.n")]
    assert int(LEFT_OUT.fullmatch(last)[1]) == 60 - len(shown)
    assert all(line.endswith(letter) for line in shown)


def test_a_line_that_is_there_to_be_copied_is_whole_or_not_there():
    command = "export X=" + "y" * 1200
    [first, *_] = broken_toolkit().recommendations
    text = render(replace(broken_toolkit(), recommendations=(replace(first, line=command),)), "termination-log")
    assert f"to do: {command} (" in text


def test_what_decided_is_told_before_what_else_failed():
    first, other = outcome("a.a", ending=Ending.RAISED), outcome("b.b", ending=Ending.RAISED)
    rows = (row("a.a", Verdict.BROKEN, Evidence.RAN), row("b.b", Verdict.BROKEN, Evidence.RAN))
    rulings = [
        Ruling(requirement="x", source="s", holds=Holds.NO, rows=("a.a on SM90",)),
        Ruling(requirement="y", source="s", holds=Holds.NO, rows=("b.b on SM90",), decides=True),
    ]
    done = report(rows, outcomes=(first, other))
    done = replace(done, gate=replace(done.gate, requirements=tuple(rulings)))
    assert "failed first: b.b on SM90" in render(done, "termination-log")
    excused = tuple(replace(ruling, holds=Holds.ALLOWED) for ruling in rulings)
    assert "failed first" not in render(replace(done, gate=replace(done.gate, requirements=excused)), "termination-log")
