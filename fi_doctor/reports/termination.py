"""The report as a container's termination message: plain text of at most 4096 bytes for /dev/termination-log.

The answer first, then what failed first, then what to do; what does not fit is counted in the last line.
Source: Kubernetes keeps the last 4096 bytes of a termination message, and 12 KiB of all containers of a pod.
"""

from __future__ import annotations

from collections.abc import Iterator

from fi_doctor.model import Holds, Report, Ruling
from fi_doctor.reports import failures
from fi_doctor.reports.answer import exit_line, headline
from fi_doctor.reports.document import in_order
from fi_doctor.reports.standing import Outcomes, State, of_row
from fi_doctor.reports.text import add_to, amount, clean, reason

MAX_BYTES = 4096
_LINE = 400  # characters of a reason; of a line that is there to be copied there are more


def render(report: Report) -> str:
    """The whole of it, or as many whole lines as fit and how many are left out."""
    lines = list(_lines(in_order(report)))
    shown = _fitting(lines, MAX_BYTES)
    if len(shown) < len(lines):
        last = "{} left out; --format json has everything"
        shown = _fitting(lines, MAX_BYTES - len(last.format(amount(len(lines), "line"))) - 1)
        shown.append(last.format(amount(len(lines) - len(shown), "line")))
    return "".join(f"{line}\n" for line in shown)


def _lines(report: Report) -> Iterator[str]:
    """The most important first: of a pod that did not start this may be all that there is."""
    yield clean(exit_line(report), _LINE)
    yield clean(headline(report), _LINE)
    if report.deployed is not None:
        yield clean(f"{report.deployed.model.name}: {report.deployed.why}", _LINE)
    yield from _first_failure(report)
    for one in report.recommendations:
        if not one.optional:
            yield f"to do: {add_to(one)}{clean(one.line, 1500)} ({reason(one.why, 200)})"
    yield from _refused(report)
    for sentence, command in failures.how_to_settle(report):
        yield f"to settle what is unknown, {clean(sentence)}{f': {clean(command, 1500)}' if command else ''}"


def _refused(report: Report) -> Iterator[str]:
    """All that does not hold."""
    failing = {name for ruling in report.gate.requirements for name in ruling.findings}
    for finding in report.findings:
        if finding.id in failing:
            yield f"finding: {clean(finding.id, 100)}: {clean(finding.title, 200)}"
    for ruling in report.gate.requirements:
        if not _holds(ruling) and not ruling.decides:
            yield f"{ruling.holds}: {clean(ruling.requirement, 200)}: {reason(ruling.why, _LINE)}"
    outcomes = Outcomes(report)
    for row in report.features:
        if of_row(report, row, outcomes).state in (State.FAILED, State.ERROR):
            yield f"{clean(row.name, 100)}: {row.verdict} ({row.evidence}): {reason(row.why, _LINE)}"


def _first_failure(report: Report) -> Iterator[str]:
    """What tells the cause, of the first row that the gate refuses and of which a probe failed; what decided first."""
    asked = sorted(report.gate.requirements, key=lambda ruling: not ruling.decides)
    rows = {row.name: row for row in report.features}
    refused = [rows[name] for ruling in asked if not _holds(ruling) for name in ruling.rows if name in rows]
    failed = {(outcome.feature, outcome.sm): outcome for outcome in reversed(failures.failed(report))}
    outcome = next((failed[row.feature, row.sm] for row in refused if (row.feature, row.sm) in failed), None)
    if outcome is not None:
        yield f"failed first: {clean(failures.summary(outcome, report), _LINE)}"
        yield from (f"  {clean(line, 200)}" for line in failures.deciding_lines(outcome))
        yield f"  reproduce: {failures.again(outcome, report)}"


def _holds(ruling: Ruling) -> bool:
    return ruling.holds not in (Holds.NO, Holds.CANNOT_TELL)


def _fitting(lines: list[str], room: int) -> list[str]:
    """The first lines that fit into so many bytes."""
    shown: list[str] = []
    for line in lines:
        room -= len(line.encode("utf-8", "backslashreplace")) + 1
        if room < 0:
            break
        shown.append(line)
    return shown
