"""The report as JUnit XML: a suite for the gate, one for each family, a case for each row.

failure: measured, and what was asked does not hold. error: the probe broke or timed out, or nobody can tell what was
required. skipped: not applicable, not asked, or allowed to fail. system-out: what is to be said of a case that passed.
The schema is that of Jenkins (xunit's junit-10.xsd).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fi_doctor.model import Outcome, Report
from fi_doctor.reports import failures
from fi_doctor.reports.answer import EXIT_MEANINGS
from fi_doctor.reports.document import in_order
from fi_doctor.reports.standing import Outcomes, Standing, State, differ, of_cell, of_gate, of_row, of_ruling
from fi_doctor.reports.text import clean, reason

_MESSAGE = 300  # characters of the attribute; the text of the element has all of it
_TAGS = {State.FAILED: "failure", State.ERROR: "error", State.SKIPPED: "skipped"}


class Case(NamedTuple):
    """A test: a row, a variant of one, or what the gate was asked."""

    suite: str
    name: str
    standing: Standing
    seconds: float = 0.0
    told: tuple[str, ...] = ()  # lines that tell the cause, and how to see it again


def render(report: Report) -> str:
    """The whole report; never without a case."""
    found = cases(report)
    names = dict.fromkeys(case.suite for case in found)
    return document({name: [case for case in found if case.suite == name] for name in names}, report.created)


def cases(report: Report) -> list[Case]:
    """Those of the gate, then those of the rows."""
    return [*_gate_cases(report), *_row_cases(in_order(report))]


def document(suites: Mapping[str, Sequence[Case]], created: str) -> str:
    """The XML of these suites, by name. created: when what they tell of was made."""
    root = ET.Element("testsuites", {"name": "fi-doctor", **_counts(case for of in suites.values() for case in of)})
    for name, of in suites.items():
        _add_suite(root, name, of, created)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _gate_cases(report: Report) -> Iterator[Case]:
    """The exit code, then each requirement."""
    yield Case("gate", EXIT_MEANINGS[0], of_gate(report.gate))
    for ruling in report.gate.requirements:
        name = f"{ruling.requirement} [{ruling.source}]"
        yield Case("gate", clean(name, _MESSAGE), of_ruling(ruling.holds, ruling.why))


def _row_cases(report: Report) -> Iterator[Case]:
    outcomes = Outcomes(report)
    failed = {id(outcome) for outcome in failures.failed(report)}
    for row in report.features:
        family, name = clean(row.feature.partition(".")[0], 100) or "rows", clean(row.name, 200)
        standing = of_row(report, row, outcomes)
        seconds = sum(sum(out.seconds.values()) for out in outcomes.of(row))
        told = tuple(line for out in outcomes.of(row) if id(out) in failed for line in _told(report, out))
        yield Case(family, name, standing, seconds, told)
        if differ(row):
            for cell in row.cells:
                variant = clean(" ".join(filter(None, (cell.probe, cell.variant))), 200)
                yield Case(family, f"{name}: {variant}", of_cell(cell, row, standing))


def _told(report: Report, outcome: Outcome) -> Iterator[str]:
    """Of a probe that failed the lines that tell the cause, and how to run it by hand."""
    yield failures.summary(outcome, report)
    yield from failures.deciding_lines(outcome)
    if outcome.reproduce:
        yield f"reproduce: {clean(outcome.reproduce, 4000)}"


def _add_suite(root: ET.Element, name: str, cases: Sequence[Case], created: str) -> None:
    skipped = sum(case.standing.state is State.SKIPPED for case in cases)
    attributes = {"name": name, **_counts(cases), "skipped": str(skipped), "timestamp": clean(created, 40)}
    suite = ET.SubElement(root, "testsuite", attributes)
    for case in cases:
        element = ET.SubElement(
            suite,
            "testcase",
            {"name": case.name, "classname": f"fi-doctor.{name}", "time": _seconds(case.seconds)},
        )
        tag = _TAGS.get(case.standing.state)
        if tag is not None:
            why = reason(case.standing.why, _MESSAGE)
            child = ET.SubElement(element, tag, {"type": case.standing.word, "message": why})
            child.text = "\n".join([clean(case.standing.why, 4000), *case.told])
        elif case.standing.why:
            ET.SubElement(element, "system-out").text = clean(case.standing.why, 4000)


def _counts(cases: Iterable[Case]) -> dict[str, str]:
    every = list(cases)
    states = [case.standing.state for case in every]
    return {
        "tests": str(len(every)),
        "failures": str(states.count(State.FAILED)),
        "errors": str(states.count(State.ERROR)),
        "time": _seconds(sum(case.seconds for case in every)),
    }


def _seconds(seconds: float) -> str:
    return f"{max(0.0, min(seconds, 1e9)):.3f}"
