"""The report as annotations of a GitHub workflow: what fails, what cannot be told, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fi_doctor.model import FeatureRow, Holds, Recommendation, Report, Severity, Verdict
from fi_doctor.reports import proofs
from fi_doctor.reports.answer import meanings
from fi_doctor.reports.document import in_order
from fi_doctor.reports.standing import Outcomes, State, of_row
from fi_doctor.reports.text import clean

MOST = 10  # of each kind: GitHub shows no more of a step
_WORST = (Verdict.WRONG_RESULT, Verdict.BROKEN, Verdict.UNSUPPORTED, Verdict.UNKNOWN, Verdict.WORKS)


class _Note(NamedTuple):
    """An annotation."""

    kind: str  # error, warning, notice
    title: str
    text: str


def render(report: Report) -> str:
    """A workflow command a line; of each kind the worst first, and no more than GitHub shows."""
    notes = list(_notes(in_order(report)))
    lines = [line for kind in ("error", "warning", "notice") for line in _kind(kind, notes)]
    return "\n".join(lines) + "\n"


def _notes(report: Report) -> Iterator[_Note]:
    gate = report.gate
    meaning = meanings(report).get(gate.code, "could not tell")
    yield _Note("notice" if gate.code == 0 else "error", f"fi-doctor: exit {gate.code}, {meaning}", gate.reason)
    yield from _rows(report)
    for ruling in gate.requirements:
        # What the one that decides has to say stands in the first line.
        if ruling.holds not in (Holds.YES, Holds.ALLOWED) and not ruling.decides:
            kind = "error" if ruling.holds is Holds.NO else "warning"
            yield _Note(kind, f"{ruling.requirement} ({ruling.source})", f"{ruling.holds}: {ruling.why}")
    yield from _findings(report)
    yield from (_Note("warning", "fi-doctor: policy", text) for text in gate.warnings)
    yield from (
        _Note("notice", f"allowed to fail: {one.what}", f"until {one.expires}: {one.reason}")
        for one in gate.allowed
        if one.rows or one.findings
    )
    for one in report.recommendations:
        yield _Note("notice", "works here and is off" if one.optional else "to do", _to_do(one))
    for one in report.disproved:
        yield _Note("notice", "does not help here", _to_do(one))


def _to_do(one: Recommendation) -> str:
    return "; ".join((f"{one.line} ({one.why})", *proofs.told(one.proof)))


def _rows(report: Report) -> Iterator[_Note]:
    """Rows that fail are errors, those of which nobody can tell what was asked warnings."""
    kinds = {State.FAILED: "error", State.ERROR: "warning"}
    outcomes = Outcomes(report)
    for row in sorted(report.features, key=_badness):
        standing = of_row(report, row, outcomes)
        if standing.state in kinds:
            # Of a row that works, what is missing is what has to be said.
            why = standing.why if row.verdict is Verdict.WORKS else row.why
            yield _Note(kinds[standing.state], f"{row.name}: {row.verdict} ({row.evidence})", why)


def _badness(row: FeatureRow) -> tuple[int, bool, str]:
    """Wrong numbers, which nothing else tells, before crashes; what vLLM calls before what it does not."""
    return (_WORST.index(row.verdict), not row.vllm_calls, row.name)


def _findings(report: Report) -> Iterator[_Note]:
    """A finding is an error only where it fails the gate; else a job that passed would show red."""
    failing = {name for ruling in report.gate.requirements for name in ruling.findings}
    for finding in report.findings:
        fails = finding.id in failing
        kind = "error" if fails else "notice" if finding.severity is Severity.INFO else "warning"
        grave = finding.severity is Severity.ERROR and not fails
        severity = f"{finding.severity} that does not fail this gate" if grave else finding.severity
        fix = f" | fix: {finding.fix[0]}" if finding.fix else ""
        yield _Note(
            kind,
            f"{finding.id} ({severity})",
            f"{finding.title}: {finding.why}{fix}",
        )


def _kind(kind: str, notes: Iterable[_Note]) -> Iterator[str]:
    """The annotations of one kind; where there are too many, the last says how many are left out."""
    of_kind = [note for note in notes if note.kind == kind]
    shown = of_kind if len(of_kind) <= MOST else of_kind[: MOST - 1]
    for note in shown:
        yield f"::{kind} title={_property(note.title)}::{_data(note.text)}"
    if len(shown) < len(of_kind):
        yield f"::{kind} title=fi-doctor::{len(of_kind) - len(shown)} more; the summary and the other formats have all"


def _data(text: str) -> str:
    return clean(text).replace("%", "%25")  # of what must be escaped, `clean` leaves only this


def _property(text: str) -> str:
    return clean(text, 200).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
