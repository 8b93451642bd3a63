"""The findings as the console shows them: one cause once, however many findings it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.text import Text

from fi_doctor.model import Finding, Report, Severity
from fi_doctor.reports import failures
from fi_doctor.reports.text import clean, wrap

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_NO_CAUSE = ("not-known", "contradiction")  # what shares one of these has nothing in common


def findings(report: Report, width: int, pages: Mapping[str, str]) -> Iterator[Text]:
    """Each cause by its gravest finding, the others of that cause below it; a mend that they share is said once.

    pages: id -> address to which the id is a link.
    """
    if not report.findings:
        return
    yield Text()
    yield Text("Findings:", style="bold")
    settles = tuple(command for _, command in failures.how_to_settle(report) if command)  # these stand further down
    for first, *others in _by_cause(report.findings):
        yield from _heading(first, width, "  ", pages)
        yield from _labelled("why", first.why, width, "    ")
        yield from _fixes(first, (*_advised(first, report), *settles), width, "    ")
        told = (*settles, *first.fix)
        for other in others:
            yield from _heading(other, width, "    the same cause: ", pages)
            yield from _labelled("why", other.why, width, "      ")
            yield from _fixes(other, (*told, *_advised(other, report)), width, "      ")
            told += other.fix
    yield Text("  More on each: fi-doctor explain ID")


def _advised(finding: Finding, report: Report) -> tuple[str, ...]:
    """What to do about it that stands further up under its name."""
    return tuple(one.line for one in (*report.recommendations, *report.disproved) if finding.id in one.findings)


def _by_cause(found: tuple[Finding, ...]) -> list[list[Finding]]:
    """The findings in the order given, those of one cause with the first of them."""
    groups: dict[str, list[Finding]] = {}
    for number, finding in enumerate(found):
        shares = finding.cause and finding.cause not in _NO_CAUSE
        groups.setdefault(finding.cause if shares else f"{number} alone", []).append(finding)
    return list(groups.values())


def _heading(finding: Finding, width: int, first: str, pages: Mapping[str, str]) -> Iterator[Text]:
    rest = " " * (len(first) - len(first.lstrip()) + 2)
    said = f"{finding.severity} {clean(finding.id, 100)}: {clean(finding.title)}"
    for line in wrap(said, width, first, rest):
        text = Text(line, style=_STYLES[finding.severity])
        place = line.find(f" {finding.id}:") + 1
        if place and finding.id in pages:
            text.stylize(f"link {pages[finding.id]}", place, place + len(finding.id))
        yield text


def _fixes(finding: Finding, said: tuple[str, ...], width: int, first: str) -> Iterator[Text]:
    for fix in finding.fix:
        if not fix.endswith(said):
            yield from _labelled("fix", fix, width, first)


def _labelled(label: str, text: str, width: int, first: str) -> Iterator[Text]:
    if text.strip():
        for line in wrap(f"{label}: {clean(text)}", width, first, f"{first}  "):
            yield Text(line)
