"""The report as a person reads it: the answer, what to set, the matrix, then the details."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from fi_doctor.model import ActionKind, Finding, Outcome, Recommendation, Report, Severity, Verdict
from fi_doctor.reports import failures
from fi_doctor.reports.answer import basis, by_sm, exit_line, headline
from fi_doctor.reports.document import in_order
from fi_doctor.reports.table import VERDICT_STYLES, matrix
from fi_doctor.reports.text import clean, names, pack, wrap

MIN_WIDTH = 60  # below this the table is unreadable; a terminal wraps by itself
_SEVERITY_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def render(report: Report, *, width: int = 80, color: bool = False) -> str:
    """The whole report as text for `width` columns; plain words, and ASCII apart from data, unless `color`.

    Nothing of the environment is read and no markup is interpreted: what stands in a report is data.
    """
    console = Console(
        file=io.StringIO(),
        width=max(width, MIN_WIDTH),
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        for part in _parts(in_order(report), console.width):
            console.print(part, soft_wrap=isinstance(part, Text))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    """The sections in reading order, a line or a table at a time."""
    yield from _answer(report, width)
    yield from _settings(report, width)
    if report.features:
        yield Text()
        yield matrix(report.features, width)
        yield from _vllm(report, width)
    yield from _findings(report.findings, width)
    yield from _failures(failures.failed(report), width)
    yield from _open_questions(report, width)


def _answer(report: Report, width: int) -> Iterator[Text]:
    yield from _plain(wrap(headline(report), width), style="bold")
    for line in by_sm(report):
        yield from _plain(wrap(line, width, "  ", "    "))
    yield from _plain(wrap(exit_line(report), width), style=_gate_style(report.gate.code))
    known, unknown = basis(report)
    yield Text()
    yield from _plain(pack(known, width, "Judged on ", "  "))
    if unknown:
        yield from _plain(pack(unknown, width, "Not known: ", "  "))


def _gate_style(code: int) -> str:
    return "green" if code == 0 else VERDICT_STYLES[Verdict.UNKNOWN if code == 3 else Verdict.BROKEN]


def _settings(report: Report, width: int) -> Iterator[Text]:
    """Lines to paste, each under a comment that says why: the block can be copied whole."""
    if not report.recommendations:
        all_work = all(row.verdict is Verdict.WORKS for row in report.features)
        yield from _section("Nothing to set." if all_work else "Nothing to set: no known setting mends this.")
        return
    yield from _section("What to do (the lines can be pasted):")
    for recommendation in report.recommendations:
        asked_by = names(clean(finding, 100) for finding in recommendation.findings)
        why = f"{clean(recommendation.why)}{f' [{asked_by}]' if asked_by else ''}"
        yield from _plain(wrap(why, width, "  # "), style="dim")
        yield from _action(recommendation, width)


def _action(recommendation: Recommendation, width: int) -> Iterator[Text]:
    line = clean(recommendation.line)
    match recommendation.kind:
        case ActionKind.SET | ActionKind.RUN | ActionKind.INSTALL:
            yield Text(f"  {line}", style="bold")
        case ActionKind.FLAG:
            command = f'vllm serve "$MODEL" {line}' if line.startswith("-") else line
            yield Text(f"  {command}", style="bold")
        case ActionKind.NOTE | ActionKind.REPORT:
            label = "report upstream: " if recommendation.kind is ActionKind.REPORT else ""
            yield from _plain(wrap(f"{label}{line}", width, "  # "), style="bold")


def _vllm(report: Report, width: int) -> Iterator[Text]:
    """What vLLM does with the rows, once for all rows of which it is true."""
    told: dict[str, list[str]] = {}
    for row in report.features:
        if row.feature not in told.setdefault(clean(row.vllm), []):
            told[clean(row.vllm)].append(clean(row.feature, 100))
    yield from _section("What vLLM does with them:")
    for said, features in told.items():
        yield from _plain(wrap(f"{names(features)}: {said}", width, "  ", "    "))


def _findings(findings: tuple[Finding, ...], width: int) -> Iterator[Text]:
    if not findings:
        return
    yield from _section("Findings:")
    for finding in findings:
        name = clean(finding.id, 100)
        line = wrap(f"{finding.severity} {name}: {clean(finding.title)}", width, "  ", "    ")
        yield from _plain(line, style=_SEVERITY_STYLES[finding.severity])
        yield from _labelled("why", finding.why, width)
        for fix in finding.fix:
            yield from _labelled("fix", fix, width)
        yield Text(f"    more: fi-doctor explain {shlex.quote(name)}")


def _failures(outcomes: list[Outcome], width: int) -> Iterator[Text]:
    if not outcomes:
        return
    yield from _section("Probes that failed:")
    shown: dict[tuple[str, ...], str] = {}
    for outcome in outcomes:
        yield from _plain(wrap(failures.summary(outcome), width, "  ", "    "), style="red")
        lines = tuple(failures.deciding_lines(outcome))
        if lines in shown:
            lines = (f"(the same lines as {shown[lines]})",)
        elif lines:
            shown[lines] = failures.title(outcome)
        for line in lines:
            yield from _plain(wrap(line, width, "    | ", "    |   "))
        if outcome.reproduce:
            yield Text(f"    reproduce: {clean(outcome.reproduce, 4000)}", style="bold")


def _open_questions(report: Report, width: int) -> Iterator[Text]:
    rows = failures.open_rows(report)
    if not rows:
        return
    yield from _section("Not settled:")
    for why, features in rows.items():
        yield from _plain(pack(features, width, "  ", "  "))
        yield from _plain(wrap(why, width, "    "))
    for sentence, command in failures.how_to_settle(report):
        yield from _plain(wrap(f"To settle it, {sentence}{':' if command else '.'}", width, "  ", "    "))
        if command:
            yield Text(f"    {command}", style="bold")


def _labelled(label: str, text: str, width: int) -> Iterator[Text]:
    if text.strip():
        yield from _plain(wrap(f"{label}: {clean(text)}", width, "    ", "      "))


def _section(title: str) -> Iterator[Text]:
    yield Text()
    yield Text(title, style="bold")


def _plain(lines: Iterable[str], style: str = "") -> Iterator[Text]:
    return (Text(line, style=style) for line in lines)
