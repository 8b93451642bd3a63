"""The report as SARIF 2.1.0, for code scanning: a result for each finding, and for all that the gate refuses.

Results are about a machine and lie in no source file. They are placed on what asked for them, the policy, or else the
lock: GitHub takes no result without a file. Where there is neither they are placed on fi-doctor.toml, where a policy
would stand, and a notification says so.
Source: sarif-schema-2.1.0.json of OASIS, and GitHub's "SARIF support for code scanning".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from fi_doctor.model import Cell, FeatureRow, Finding, Holds, Missing, Report, Ruling, Severity, Verdict
from fi_doctor.reports.answer import EXIT_MEANINGS, headline
from fi_doctor.reports.beside import NOTHING, Anchor, Beside
from fi_doctor.reports.document import in_order
from fi_doctor.reports.standing import Outcomes, State, differ, of_cell, of_row
from fi_doctor.reports.text import clean

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_NOWHERE = "fi-doctor.toml"
_GATE = "gate"
_KINDS = {
    Verdict.BROKEN: "a kernel does not compile, load or run here",
    Verdict.WRONG_RESULT: "a kernel gives wrong numbers here",
    Verdict.UNSUPPORTED: "the installed packages do not have what is required",
    Verdict.UNKNOWN: "it cannot be told whether what is required works",
    Verdict.WORKS: "a row works, and less is known of it than is required",
}


class _Result(NamedTuple):
    """A result, and what makes it the same one in the next run."""

    rule: str
    title: str  # of the rule, where no text of it is at hand
    level: str  # error, warning, note
    text: str
    line: int | None
    feature: str = ""
    sm: str = ""
    variant: str = ""


def render(report: Report, beside: Beside = NOTHING) -> str:
    """One run; its rules are those that have results."""
    report = in_order(report)
    anchor = beside.anchor or _named(report) or Anchor(_NOWHERE)
    results = [*_rows(report, anchor), *_others(report, anchor), *_findings(report, anchor)]
    rules = sorted({one.rule for one in results})
    titles = {one.rule: one.title for one in reversed(results)}
    run = {
        "tool": {
            "driver": {
                "name": "fi-doctor",
                "semanticVersion": clean(report.doctor.version, 100),
                "rules": [_rule(name, titles[name], beside) for name in rules],
                "properties": {"knowledge": clean(report.doctor.knowledge, 100)},
            }
        },
        "invocations": [_invocation(report, is_placed=anchor.uri != _NOWHERE or beside.anchor is not None)],
        "results": [_result(one, rules.index(one.rule), anchor) for one in results],
        "columnKind": "unicodeCodePoints",
        "properties": {"created": clean(report.created, 100), "answer": headline(report)},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _named(report: Report) -> Anchor | None:
    """The policy by the name that the report has of it, which is an absolute one; None without a policy."""
    file = report.request.policy.file
    return Anchor(f"file://{quote(file, errors='replace')}") if file.startswith("/") else None


def _rows(report: Report, anchor: Anchor) -> Iterator[_Result]:
    """What the gate refuses is an error, what it cannot tell a warning; of a row that fails each variant that does."""
    outcomes = Outcomes(report)
    for row in report.features:
        standing = of_row(report, row, outcomes)
        asking = [one for one in report.gate.requirements if row.name in one.rows]
        if not asking or standing.state not in (State.FAILED, State.ERROR):
            continue
        asked = min(asking, key=lambda one: len(one.rows))  # what asks for this row goes before what asks for all
        level = "error" if standing.state is State.FAILED else "warning"
        cells = [cell for cell in row.cells if of_cell(cell, row, standing).state is State.FAILED]
        for one in cells if differ(row) and cells else [None]:
            yield _of_row(row, one, level, asked, anchor)


def _others(report: Report, anchor: Anchor) -> Iterator[_Result]:
    """Requirements that do not hold because of no row and no finding: a version, or that anything was measured."""
    for one in report.gate.requirements:
        if one.holds in (Holds.NO, Holds.CANNOT_TELL) and not one.rows and not one.findings:
            yield _Result(
                rule=_GATE,
                title="what was asked for does not hold, or cannot be told",
                level="error" if one.holds is Holds.NO else "warning",
                text=f"{clean(one.requirement)}: {clean(one.why)} ({clean(one.source)})",
                line=_line(one, anchor),
                variant=one.requirement,
            )


def _of_row(row: FeatureRow, cell: Cell | None, level: str, asked: Ruling, anchor: Anchor) -> _Result:
    judged = row if cell is None else cell
    variant = "" if cell is None else cell.variant or cell.probe
    name = f"{row.name}, {variant}" if variant else row.name
    said = f"{name}: {judged.verdict} ({judged.evidence}): {judged.why}"
    return _Result(
        rule=judged.verdict,
        title=_KINDS[judged.verdict],
        level=level,
        text=f"{clean(said)}. Asked for: {clean(asked.requirement)} ({clean(asked.source)})",
        line=_line(asked, anchor),
        feature=row.feature,
        sm="" if isinstance(row.sm, Missing) or not row.needs_gpu else f"SM{row.sm}",
        variant=variant,
    )


def _line(asked: Ruling, anchor: Anchor) -> int | None:
    """Where the policy asks for it, if it does and that is known."""
    key = asked.source.rpartition(": ")[2]
    word = asked.requirement.partition(":")[0].partition(" ")[0]
    return anchor.lines.get(f"{key}.{word}", anchor.lines.get(key))


def _findings(report: Report, anchor: Anchor) -> Iterator[_Result]:
    """A finding is an error only where it fails the gate; those of one rule about one row are one result."""
    failing = {name: one for one in report.gate.requirements if one.holds is Holds.NO for name in one.findings}
    together: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        feature = finding.features[0] if len(finding.features) == 1 else ""
        together.setdefault((finding.id, feature), []).append(finding)
    for (name, feature), several in together.items():
        first = several[0]
        asked = failing.get(name)
        level = "error" if asked else "note" if first.severity is Severity.INFO else "warning"
        yield _Result(
            rule=name,
            title=first.title,
            level=level,
            text="\n\n".join(_told(finding) for finding in several),
            line=_line(asked, anchor) if asked else None,
            feature=feature,
        )


def _told(finding: Finding) -> str:
    said = f"{clean(finding.title)}. {clean(finding.why)}".strip()
    return "\n".join([said, *(f"Fix: {clean(line, 4000)}" for line in finding.fix[:1])])


def _rule(name: str, title: str, beside: Beside) -> dict[str, Any]:
    shown = clean(name, 200) or "unnamed"
    text = beside.texts.get(name, "")
    rule: dict[str, Any] = {
        "id": shown,
        "shortDescription": {"text": clean(title) or shown},
        "help": {"text": text or f"fi-doctor explain {shown}"},
    }
    if name in beside.pages:
        rule["helpUri"] = beside.pages[name]
    return rule


def _result(one: _Result, index: int, anchor: Anchor) -> dict[str, Any]:
    named = {"feature": one.feature, "sm": one.sm, "variant": one.variant}
    same = repr((one.rule, *named.values())).encode("utf-8", "backslashreplace")
    digest = hashlib.sha256(same).hexdigest()
    artifact: dict[str, Any] = {"uri": anchor.uri}
    if not anchor.uri.startswith("file:"):
        artifact["uriBaseId"] = "%SRCROOT%"
    place: dict[str, Any] = {"artifactLocation": artifact}
    if one.line is not None:
        place["region"] = {"startLine": one.line}
    return {
        "ruleId": clean(one.rule, 200) or "unnamed",
        "ruleIndex": index,
        "level": one.level,
        "message": {"text": one.text},
        "locations": [{"physicalLocation": place}],
        # GitHub looks at the second alone, and would make one of the line's text, which all results share.
        "partialFingerprints": {"fiDoctor/v1": digest[:32], "primaryLocationLineHash": f"{digest[:16]}:1"},
        "properties": {key: clean(value, 200) for key, value in named.items() if value},
    }


def _invocation(report: Report, *, is_placed: bool) -> dict[str, Any]:
    gate = report.gate
    notes = [("warning", clean(text)) for text in gate.warnings]
    if not is_placed:
        notes.append(("note", f"no policy and no lock was used: results are placed on {_NOWHERE}"))
    return {
        "executionSuccessful": gate.code in (0, 1, 3),
        "exitCode": gate.code,
        "exitCodeDescription": f"{EXIT_MEANINGS.get(gate.code, 'could not tell')}: {clean(gate.reason)}",
        "toolExecutionNotifications": [{"level": level, "message": {"text": text}} for level, text in notes],
    }
