"""How a row stands where results are counted: passed, failed, in error, or skipped, and the sentence that says why."""

from __future__ import annotations

import enum
from typing import NamedTuple

from fi_doctor.model import Cell, Evidence, FeatureRow, Gate, Holds, Missing, Outcome, Report, Verdict


class State(enum.Enum):
    """The four results that a test can have."""

    PASSED = "passed"
    FAILED = "failed"  # measured, and what was asked does not hold
    ERROR = "error"  # the probe broke or timed out, or nobody can tell what was required
    SKIPPED = "skipped"  # not applicable, not asked, or allowed to fail


class Standing(NamedTuple):
    """A state, why, and the word of it: a verdict, or whether a requirement holds."""

    state: State
    why: str = ""
    word: str = ""


def of_row(report: Report, row: FeatureRow, outcomes: Outcomes) -> Standing:
    """How a row stands: what the gate found of it, and else what became of its probes."""
    said = f"{row.verdict} ({row.evidence}): {row.why}"
    blamed = [ruling for ruling in report.gate.requirements if row.name in ruling.rows]
    excuse = next((one for one in report.gate.allowed if row.name in one.rows), None)
    if blamed:
        is_false = _is_known(row) and any(ruling.holds is Holds.NO for ruling in blamed)
        if row.verdict is Verdict.WORKS:
            said = f"{said}; asked for is {blamed[0].requirement}"
        return Standing(State.FAILED if is_false else State.ERROR, said, row.verdict)
    if excuse is not None:
        return Standing(State.SKIPPED, f"allowed until {excuse.expires}, {excuse.reason}: {said}", row.verdict)
    if row.verdict is Verdict.WORKS:
        return Standing(State.PASSED, said if row.locked else "")
    if row.verdict is Verdict.UNKNOWN and any(map(_broke, outcomes.of(row))):
        return Standing(State.ERROR, said, row.verdict)
    return Standing(State.SKIPPED, said, row.verdict)


def of_cell(cell: Cell, row: FeatureRow, of_its_row: Standing) -> Standing:
    """How a variant stands: one that does not decide its row fails nothing, however it ended."""
    said = f"{cell.verdict} ({cell.evidence}): {cell.why}"
    if cell.verdict is Verdict.WORKS:
        return Standing(State.PASSED, said if row.locked else "")
    if cell.verdict.is_failure and of_its_row.state is State.FAILED:
        return Standing(State.FAILED, said, cell.verdict)
    if cell.verdict.is_failure and row.verdict is Verdict.WORKS:
        return Standing(State.SKIPPED, f"it does not decide the row, which works; {said}", cell.verdict)
    return Standing(State.SKIPPED, said, cell.verdict)


def of_gate(gate: Gate) -> Standing:
    """How all that was asked for stands, by the exit code."""
    state = {0: State.PASSED, 1: State.FAILED}.get(gate.code, State.ERROR)
    if state is State.PASSED and any(ruling.holds is Holds.ALLOWED for ruling in gate.requirements):
        return Standing(State.SKIPPED, gate.reason, str(Holds.ALLOWED))
    return Standing(state, "" if state is State.PASSED else gate.reason, f"exit {gate.code}")


def of_ruling(holds: Holds, why: str) -> Standing:
    """How one requirement stands."""
    match holds:
        case Holds.YES:
            return Standing(State.PASSED, why)
        case Holds.NO:
            return Standing(State.FAILED, why, holds)
        case Holds.ALLOWED:
            return Standing(State.SKIPPED, f"allowed: {why}", holds)
        case _:
            return Standing(State.ERROR, why, holds)


class Outcomes:
    """What happened to the probes of each row on its GPU."""

    def __init__(self, report: Report) -> None:
        self._by_row: dict[tuple[str, int | Missing], list[Outcome]] = {}
        for outcome in report.outcomes:
            self._by_row.setdefault((outcome.feature, outcome.sm), []).append(outcome)

    def of(self, row: FeatureRow) -> list[Outcome]:
        """Those of a row, in the order of the report."""
        return self._by_row.get((row.feature, row.sm), [])


def differ(row: FeatureRow) -> bool:
    """Whether its variants do not all stand alike."""
    return len({cell.verdict for cell in row.cells}) > 1


def _is_known(row: FeatureRow) -> bool:
    """Whether its verdict is more than a prediction that it fails."""
    is_predicted = row.verdict.is_failure and row.evidence.rank < Evidence.BUILT.rank
    return row.verdict is not Verdict.UNKNOWN and not is_predicted


def _broke(outcome: Outcome) -> bool:
    return outcome.ending.is_bad or any(cell.ending.is_bad for cell in outcome.cells)
