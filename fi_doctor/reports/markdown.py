"""The report as Markdown, for a step's summary, a merge request or an issue: the answer, the gate, the matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fi_doctor.model import ActionKind, FeatureRow, Report, Scope, Verdict
from fi_doctor.reports import binaries, expected, failures, proofs, upgrades
from fi_doctor.reports.answer import basis, headline, meanings, not_installed
from fi_doctor.reports.built import compiling
from fi_doctor.reports.document import in_order
from fi_doctor.reports.rulings import others
from fi_doctor.reports.table import evidence, group_cells
from fi_doctor.reports.text import add_to, clean, names, reason
from fi_doctor.reports.used import LEANS, USES, by_measurement, by_use

_WHY = 400  # characters in the table; the machine formats have all of it
_WHOLE = 8000  # of what was cut already
_OTHERS = 2000  # of the names of what fails beside the first
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~@&])")
_PASTED = (ActionKind.SET, ActionKind.RUN, ActionKind.INSTALL)


def render(report: Report) -> str:
    """The whole report; what stands in it is data, and no markup of it is obeyed."""
    report = in_order(report)
    sections = (_answer, _gate, _settings, _rows, _expected, _findings, _upgrade, _failures, _binaries)
    parts = (list(section(report)) for section in sections)
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _answer(report: Report) -> Iterator[str]:
    code = report.gate.code
    known, unknown = basis(report)
    yield f"# fi-doctor: exit {code}, {meanings(report).get(code, 'could not tell')}"
    yield ""
    yield f"**{words(headline(report))}**"
    yield ""
    yield words(report.gate.reason)
    yield ""
    yield f"Judged on {words(', '.join(known), 2000)}."
    if unknown:
        yield ""
        yield f"Not known: {words(', '.join(unknown), 2000)}."
    for line in compiling(report):
        yield ""
        yield words(line)


def _gate(report: Report) -> Iterator[str]:
    gate = report.gate
    if not gate.requirements:
        return
    yield "## What was asked for"
    yield ""
    yield "| holds | requirement | asked by | why |"
    yield "| --- | --- | --- | --- |"
    for ruling in gate.requirements:
        holds = f"**{ruling.holds}** (decides)" if ruling.decides else str(ruling.holds)
        why = _why(ruling.why) + words(others(ruling), _OTHERS)
        yield f"| {holds} | {words(ruling.requirement)} | {words(ruling.source)} | {why} |"
    for excuse in gate.allowed:
        said = f"allowed until {excuse.expires}: {excuse.reason}"
        yield f"| {words(excuse.state)} | {words(excuse.what)} | allow | {words(said, _WHY)} |"
    if gate.warnings:
        yield ""
        yield from (f"- warning: {words(warning)}" for warning in gate.warnings)


def _settings(report: Report) -> Iterator[str]:
    if report.recommendations:
        yield "## What to do"
        yield ""
    for one in report.recommendations:
        flag = one.kind is ActionKind.FLAG and one.line.startswith("-")
        line = code(one.line) if flag or one.kind in _PASTED else words(one.line)
        off = "works here and is off by default; " if one.optional else ""
        yield f"- {add_to(one)}{line} ({off}{words(one.why)})"
        yield from (f"  - {words(said)}" for said in proofs.told(one.proof))
    if report.disproved:
        yield ""
        yield proofs.DISPROVED
        yield ""
    for one in report.disproved:
        yield f"- {code(one.line)}"
        yield from (f"  - {words(said)}" for said in proofs.told(one.proof))


def _rows(report: Report) -> Iterator[str]:
    if not report.features:
        return
    yield "## Features"
    yield ""
    yield "| feature | verdict | evidence | why |"
    yield "| --- | --- | --- | --- |"
    for row in report.features:
        verdict = str(row.verdict) if row.verdict is Verdict.WORKS else f"**{row.verdict}**"
        scope = ", subset" if row.scope is Scope.SUBSET and row.verdict is Verdict.WORKS else ""
        yield f"| {words(row.name)} | {verdict} | {evidence(row)}{scope} | {_why(row.why)} |"
        yield from _cells(row)
    uses = {} if not_installed(report) else by_use(report.features)
    for title, told in {USES: uses, LEANS: by_measurement(report)}.items():
        if told:
            yield ""
            yield title
            yield ""
            yield from (f"- {words(said)}: {words(names(features))}" for said, features in told.items())


def _cells(row: FeatureRow) -> Iterator[str]:
    """The variants that do not stand as their row does, those of one judgement together."""
    groups = group_cells(row)
    for cells in groups if len(groups) > 1 else ():
        first = cells[0]
        if first.verdict is not row.verdict:
            named = ", ".join(words(cell.variant or cell.probe, 60) for cell in cells)
            yield f"| &nbsp;&nbsp;{named} | {first.verdict} | {first.evidence} | {_why(first.why)} |"


def _findings(report: Report) -> Iterator[str]:
    if not report.findings:
        return
    yield "## Findings"
    yield ""
    for finding in report.findings:
        fix = "".join(f"; fix: {words(line)}" for line in finding.fix[:1])
        yield f"- **{finding.severity}** {code(finding.id)} {words(finding.title)}. {words(finding.why)}{fix}"


def _expected(report: Report) -> Iterator[str]:
    if told := expected.lines(report):
        yield f"## {expected.TITLE}"
        yield ""
        yield from (f"- {words(line)}" for line in told)


def _upgrade(report: Report) -> Iterator[str]:
    command, lines = upgrades.told(report)
    if command:
        yield f"## {upgrades.TITLE}"
        yield ""
        yield code(command)
        yield ""
        yield from (f"- {words(line, 2000)}" for line in lines)


def _failures(report: Report) -> Iterator[str]:
    failed = failures.failed(report)
    if not failed:
        return
    yield "## Probes that failed"
    for outcome in failed:
        yield ""
        yield f"- {words(failures.summary(outcome, report))}"
        lines = failures.deciding_lines(outcome)
        lines += [f"reproduce: {clean(outcome.reproduce, 4000)}"] if outcome.reproduce else []
        if lines:
            fence = "`" * (1 + max((len(run) for line in lines for run in re.findall(r"`+", line)), default=2))
            yield from ("", f"  {fence}text", *(f"  {line}" for line in lines), f"  {fence}")


def _binaries(report: Report) -> Iterator[str]:
    told = binaries.lines(report.facts)
    if told:
        yield f"## {binaries.TITLE}"
        yield ""
        yield from (f"- {words(line)}" for line in told)


def _why(text: str) -> str:
    return words(reason(text, _WHY), _WHOLE)


def words(text: str, limit: int = 1000) -> str:
    """Words in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", clean(text, limit))


def code(text: str) -> str:
    """The text as code, to be copied."""
    line = clean(text)
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    space = " " if "`" in line else ""
    return f"{fence}{space}{line}{space}{fence}"
