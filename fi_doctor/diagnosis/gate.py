"""The gate: whether what was asked for holds, and the exit code that says so. Nothing else decides."""

from __future__ import annotations

import fnmatch

from fi_doctor.diagnosis.findings import is_measured, row_name
from fi_doctor.model import FeatureRow, Gate, Request, Verdict, selects

HOLDS, FAILS, CANNOT_TELL = 0, 1, 3
_SAID = {
    Verdict.WORKS: ("works", "work"),
    Verdict.WRONG_RESULT: ("gives wrong results", "give wrong results"),
    Verdict.BROKEN: ("broken", "broken"),
    Verdict.UNKNOWN: ("unknown", "unknown"),
    Verdict.UNSUPPORTED: ("unsupported", "unsupported"),
}


def decide(request: Request, rows: tuple[FeatureRow, ...]) -> Gate:
    """What holds of the selected and the required rows.

    1: one of them was measured and does not hold. 3: nothing that counts was measured, a required row could not be
    told, or a failure is only predicted. 1 beats 3.
    """
    chosen = tuple(row for row in rows if selects(request.features, row.feature))
    failed, untold = _required(request, rows)
    counted = [row for row in chosen if row.needs_gpu] or list(chosen)
    code, why = _verdict(chosen, counted, failed, untold)
    return Gate(
        code=code,
        reason=f"{_summary(chosen)}{why}",
        counts={verdict.value: sum(row.verdict is verdict for row in chosen) for verdict in _SAID},
        measured=sum(is_measured(row.verdict, row.evidence) for row in counted),
        failed_required=tuple(sorted({name for name, _ in (*failed, *untold)})),
    )


def _verdict(
    chosen: tuple[FeatureRow, ...],
    counted: list[FeatureRow],
    failed: list[tuple[str, str]],
    untold: list[tuple[str, str]],
) -> tuple[int, str]:
    """The code, and the rest of the sentence that says why."""
    bad = [row for row in chosen if row.verdict.is_failure]
    measured_bad = [row for row in bad if is_measured(row.verdict, row.evidence)]
    if measured_bad:
        # What vLLM calls is what a reader must see first, and of that wrong numbers, which nothing else tells.
        first = min(measured_bad, key=lambda row: (not row.vllm_calls, row.verdict is not Verdict.WRONG_RESULT))
        return FAILS, f": {row_name(first)}: {_short(first.why)}"
    if failed:
        return FAILS, f"; required: {failed[0][1]}"
    if not counted:
        return CANNOT_TELL, ""
    if not any(is_measured(row.verdict, row.evidence) for row in counted):
        what = "nothing that needs a GPU was measured" if counted[0].needs_gpu else "nothing was measured"
        return CANNOT_TELL, f"; {what}: {_short(counted[0].why.rpartition('; not run: ')[2])}"
    if untold:
        return CANNOT_TELL, f"; required: {untold[0][1]}"
    if bad:
        return CANNOT_TELL, f": {row_name(bad[0])} was not measured: {_short(bad[0].why)}"
    return HOLDS, ""


def _required(request: Request, rows: tuple[FeatureRow, ...]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The required rows that fail, and those that cannot be told: names, each with what is said of it."""
    failed: list[tuple[str, str]] = []
    untold: list[tuple[str, str]] = []
    for name in request.required:
        found = [row for row in rows if fnmatch.fnmatchcase(row.feature, name)]
        if not found:
            untold.append((name, f"{name} names no row"))
        for row in found:
            measured = is_measured(row.verdict, row.evidence)
            if row.verdict is Verdict.WORKS and measured:
                continue
            said = (row.feature, f"{row_name(row)} is {row.verdict}: {_short(row.why)}")
            (failed if measured or row.verdict is Verdict.UNSUPPORTED else untold).append(said)
    return failed, untold


def _summary(rows: tuple[FeatureRow, ...]) -> str:
    """Every verdict that occurs, unknown among them: "5 rows work, 2 broken"."""
    if not rows:
        return "no row is selected"
    parts: list[str] = []
    for verdict, (one, many) in _SAID.items():
        number = sum(row.verdict is verdict for row in rows)
        if number:
            noun = (" row" if number == 1 else " rows") if not parts else ""
            parts.append(f"{number}{noun} {one if number == 1 else many}")
    return ", ".join(parts)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:197] + "..."
