"""The report as a person reads it: the answer, what to set, the matrix, then the details."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace
from rich.text import Text

from fi_doctor.model import Evidence, FeatureRow, Report, Verdict
from fi_doctor.reports import binaries, deployed, expected, failures, upgrades
from fi_doctor.reports.answer import basis, by_sm, exit_line, headline, not_installed
from fi_doctor.reports.built import compiling
from fi_doctor.reports.document import in_order
from fi_doctor.reports.found import findings
from fi_doctor.reports.settings import settings
from fi_doctor.reports.table import VERDICT_STYLES, matrix
from fi_doctor.reports.text import clean, names, pack, wrap
from fi_doctor.reports.used import LEANS, USES, by_measurement, by_use

_MOST_BINARIES = 20
MIN_WIDTH = 60  # below this the table is unreadable; a terminal wraps by itself


def render(
    report: Report, *, width: int = 80, color: bool = False, pages: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The whole report as text for `width` columns; plain words, and ASCII apart from data, unless `color`.

    pages: id of a finding -> address of the page about it, to which a terminal that has colour links the id.

    Nothing of the environment is read and no markup is interpreted: what stands in a report is data.
    """
    width = max(width, MIN_WIDTH)
    parts = _parts(in_order(report), width, pages)
    text = _colored(parts, width) if color else "\n".join(part.plain for part in parts)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _colored(parts: Iterable[Text], width: int) -> str:
    from rich.console import Console  # noqa: PLC0415 - with what it prints it takes an eighth of a static check

    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="standard",
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        for part in parts:
            console.print(part, soft_wrap=True)
    return capture.get()


def _parts(report: Report, width: int, pages: Mapping[str, str]) -> Iterator[Text]:
    """The sections in reading order, a line at a time."""
    yield from deployed.answer(report, width)
    yield from _answer(report, width)
    yield from deployed.details(report, width)
    yield from settings(report, width)
    # Where a package is missing and nothing was found out, the first line has said what every row would say.
    if not not_installed(report) or any(row.evidence is not Evidence.NONE for row in report.features):
        yield from _rows(report, width)
    yield from _expected(report, width)
    yield from findings(report, width, pages)
    yield from _upgrade(report, width)
    yield from _failures(report, width)
    yield from _binaries(report, width)
    yield from _to_settle(report, width)


def _rows(report: Report, width: int) -> Iterator[Text]:
    if not report.features:
        return
    yield Text()
    yield from matrix(_without_interpreter(report), width)
    if not not_installed(report):
        yield from _by(USES, by_use(report.features), width)
        yield from _by(LEANS, by_measurement(report), width)


def _without_interpreter(report: Report) -> tuple[FeatureRow, ...]:
    """The rows; what their reasons say of the examined interpreter without its name, which is said further up."""
    name = f" in {report.facts.interpreter.executable}"
    return tuple(
        replace(
            row,
            why=row.why.replace(name, ""),
            cells=tuple(replace(cell, why=cell.why.replace(name, "")) for cell in row.cells),
        )
        for row in report.features
    )


def _answer(report: Report, width: int) -> Iterator[Text]:
    yield from _plain(wrap(headline(report), width), style="bold")
    if not_installed(report):
        yield Text("--python PATH names the interpreter that serves:")
        yield Text("  fi-doctor check --python /path/to/venv/bin/python", style="bold")
    for line in by_sm(report):
        yield from _plain(wrap(line, width, "  ", "    "))
    yield from _plain(wrap(exit_line(report), width), style=_gate_style(report.gate.code))
    known, unknown = basis(report)
    yield Text()
    yield from _plain(pack(known, width, "Judged on ", "  "))
    if unknown:
        yield from _plain(pack(unknown, width, "Not known: ", "  "))
    for line in compiling(report):
        yield from _plain(wrap(line, width, "", "  "))


def _gate_style(code: int) -> str:
    return "green" if code == 0 else VERDICT_STYLES[Verdict.UNKNOWN if code == 3 else Verdict.BROKEN]


def _by(title: str, told: Mapping[str, list[str]], width: int) -> Iterator[Text]:
    """What is true of several rows, once for all of them."""
    if not told:
        return
    yield from _section(title)
    for said, features in told.items():
        yield from _plain(wrap(f"{said}: {names(clean(feature, 100) for feature in features)}", width, "  ", "    "))


def _binaries(report: Report, width: int) -> Iterator[Text]:
    told = binaries.lines(report.facts)
    if not told:
        return
    yield from _section(f"{binaries.TITLE}:")
    for line in told[:_MOST_BINARIES]:
        yield from _plain(wrap(line, width, "  ", "    "))
    if len(told) > _MOST_BINARIES:
        yield Text(f"  {len(told) - _MOST_BINARIES} more lines: --format json and yaml have every file")


def _expected(report: Report, width: int) -> Iterator[Text]:
    told = expected.lines(report)
    if told:
        yield from _section(f"{expected.TITLE}:")
        for line in told:
            yield from _plain(wrap(line, width, "  ", "    "))


def _upgrade(report: Report, width: int) -> Iterator[Text]:
    command, lines = upgrades.told(report)
    if command:
        yield from _section(f"{upgrades.TITLE}:")
        for line in lines:
            yield from _plain(wrap(line, width, "  # ", "  #   "), style="dim")
        yield Text(f"  {command}", style="bold")


def _failures(report: Report, width: int) -> Iterator[Text]:
    outcomes = failures.failed(report)
    if not outcomes:
        return
    yield from _section("Probes that failed:")
    shown: dict[tuple[str, ...], str] = {}
    for outcome in outcomes:
        yield from _plain(wrap(failures.summary(outcome, report), width, "  ", "    "), style="red")
        lines = tuple(failures.deciding_lines(outcome))
        if lines in shown:
            lines = (f"(the same lines as {shown[lines]})",)
        elif lines:
            shown[lines] = failures.title(outcome)
        for line in lines:
            yield from _plain(wrap(line, width, "    | ", "    |   "))
        if outcome.reproduce:
            yield Text(f"    reproduce: {failures.again(outcome, report)}", style="bold")
    if any(outcome.reproduce for outcome in outcomes):
        said = "The probe alone, without fi-doctor: the whole line is in --format json and yaml, its script is what"
        yield from _plain(wrap(f"{said} fi-doctor probes show ID prints", width, "  "))


def _to_settle(report: Report, width: int) -> Iterator[Text]:
    for number, (sentence, command) in enumerate(failures.how_to_settle(report)):
        if number == 0:
            yield Text()
        yield from _plain(wrap(f"To settle what is unknown, {sentence}{':' if command else '.'}", width, "", "  "))
        if command:
            yield Text(f"  {command}", style="bold")


def _section(title: str) -> Iterator[Text]:
    yield Text()
    yield Text(title, style="bold")


def _plain(lines: Iterable[str], style: str = "") -> Iterator[Text]:
    return (Text(line, style=style) for line in lines)
