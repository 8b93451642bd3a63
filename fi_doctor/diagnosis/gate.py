"""The gate: whether what was asked for holds, and the exit code that says so. Nothing else decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor.diagnosis import allowed, rulings
from fi_doctor.diagnosis.findings import is_measured
from fi_doctor.diagnosis.rulings import Judged
from fi_doctor.model import (
    Evidence,
    Facts,
    FeatureRow,
    Finding,
    Gate,
    Holds,
    Policy,
    Request,
    Requirement,
    Scope,
    Verdict,
    as_predicted,
    selects,
)
from fi_doctor.model.phrases import short

HOLDS, FAILS, CANNOT_TELL = 0, 1, 3
ALL, CALLED = "all", "called"  # of the policy's rows
_SAID = {  # in the order of the report's first line
    Verdict.WORKS: ("works", "work"),
    Verdict.WRONG_RESULT: ("gives wrong results", "give wrong results"),
    Verdict.BROKEN: ("broken", "broken"),
    Verdict.UNKNOWN: ("unknown", "unknown"),
    Verdict.UNSUPPORTED: ("unsupported", "unsupported"),
}


def decide(  # noqa: PLR0913 - all that a gate looks at
    request: Request,
    rows: tuple[FeatureRow, ...],
    found: tuple[Finding, ...],
    facts: Facts,
    *,
    missed: tuple[FeatureRow, ...] | None = None,
    foretold: bool = False,
) -> Gate:
    """What holds of the selected and the required rows, of the versions and of the findings.

    foretold: whether what is predicted counts as what was measured, since nothing can be measured: with --target.
    missed: the rows of which a lock says that they work and of which nothing is known any more; None without a lock.
    1: one of them was measured and does not hold. 3: nothing that counts was measured, a required or a locked row could
    not be told, or a failure is only predicted. 1 beats 3.
    """
    chosen = tuple(row for row in rows if selects(request.features, row.feature))
    troubled = [*_judge(request, rows, found, facts, foretold=foretold), *_by_lock(missed)]
    excuses = allowed.excuses(request, chosen, troubled)
    excused = frozenset(name for excuse in excuses for name in excuse.rows)
    left = tuple(one for one in found if not any(one.id in excuse.findings for excuse in excuses))
    judged = [
        one._replace(ruling=allowed.as_allowed(one.ruling, before.ruling))
        for one, before in zip(
            [*_judge(request, rows, left, facts, excused=excused, foretold=foretold), *_by_lock(missed, excused)],
            troubled,
            strict=True,
        )
    ]
    decider = _decider(judged)
    code = {None: HOLDS, Holds.NO: FAILS}.get(decider and decider.ruling.holds, CANNOT_TELL)
    looked_at = _looked_at(request, chosen, facts).rows
    unmeasured = _unmeasured(looked_at, foretold=foretold)
    return Gate(
        code=code,
        reason=_summary(chosen) + (decider.said if decider else unmeasured + allowed.said(excuses)),
        counts={verdict.value: sum(row.verdict is verdict for row in chosen) for verdict in _SAID},
        measured=sum(is_measured(row.verdict, row.evidence) for row in rulings.counted_of(looked_at)),
        failed_required=_failed_required(request, judged),
        requirements=tuple(replace(one.ruling, decides=one is decider) for one in judged),
        allowed=excuses,
        warnings=allowed.warnings(request, excuses),
    )


def asked_rows(request: Request, *, foretold: bool = False) -> tuple[Requirement, ...]:
    """What the options and the policy require of rows, in that order."""
    typed = (
        Requirement(
            feature=name,
            verdict=Verdict.WORKS,
            evidence=Evidence.PREDICTED if foretold else Evidence.RAN,
            scope=Scope.SUBSET,
            source=request.policy.sources.get("require", rulings.REQUIRE),
        )
        for name in request.required
    )
    return (*typed, *request.policy.requirements)


def _judge(  # noqa: PLR0913 - as decide
    request: Request,
    rows: tuple[FeatureRow, ...],
    found: tuple[Finding, ...],
    facts: Facts,
    excused: frozenset[str] = frozenset(),
    *,
    foretold: bool,
) -> list[Judged]:
    """All that is asked, in the order in which what fails is named."""
    policy = request.policy
    chosen = tuple(row for row in rows if selects(request.features, row.feature))
    looked_at = _looked_at(request, chosen, facts)
    failing = tuple(row for row in looked_at.rows if row.name not in excused)
    written = policy.sources.get("fail-on", "")
    is_default = not policy.names_verdict or (not written and policy.fail_on == Policy().fail_on)
    passed_over = {row.feature for row in chosen} - {row.feature for row in looked_at.rows}
    told = tuple(one for one in found if not one.features or not passed_over.issuperset(one.features))
    by_finding = rulings.no_failing_finding(told, policy.fail_on, written or rulings.FAIL_ON)
    return [
        rulings.no_failing_row(
            failing,
            policy.fail_on,
            rulings.DEFAULT if is_default else written or rulings.FAIL_ON,
            looked_at.said,
            looked_at.uncalled,
            foretold=foretold,
        ),
        rulings.something_measured(
            looked_at.rows,
            looked_at.said,
            asks_build=any(one.asks_build for one in asked_rows(request)),
            foretold=foretold,
            refused=tuple(one.feature for one in asked_rows(request) if one.verdict is Verdict.UNSUPPORTED),
        ),
        *(rulings.required(asked, rows, excused) for asked in asked_rows(request, foretold=foretold)),
        *(
            rulings.version(facts, name, wanted, f"{PurePath(policy.file).name}: versions")
            for name, wanted in sorted(policy.versions.items())
        ),
        *([by_finding] if by_finding else []),
    ]


class _LookedAt(NamedTuple):
    """The rows that may fail by their verdict, and what sentences call one of them."""

    rows: tuple[FeatureRow, ...]
    said: str
    uncalled: str = ""  # said of those that vLLM does not call, where they count all the same


def _looked_at(request: Request, chosen: tuple[FeatureRow, ...], facts: Facts) -> _LookedAt:
    """All that are selected, or of these what the installed vLLM can call and what is required.

    Without a word on it all where rows were selected by name: who asks for one wants to know of it.
    """
    wanted = request.policy.rows or (ALL if request.features else CALLED)
    if wanted != CALLED or not facts.vllm_version:
        is_named = bool(request.features and facts.vllm_version and not request.policy.rows)
        uncalled = f"vLLM {short(facts.vllm_version)} calls none of those that fail"
        return _LookedAt(chosen, "selected row", f"{uncalled}: they were selected by name" if is_named else "")
    globs = tuple(asked.feature for asked in asked_rows(request))
    rows = tuple(row for row in chosen if row.vllm_calls or (globs and selects(globs, row.feature)))
    said = f"selected row that vLLM {short(facts.vllm_version)} can call"
    return _LookedAt(rows, f"{said} or that is required" if globs else said)


def _by_lock(missed: tuple[FeatureRow, ...] | None, excused: frozenset[str] = frozenset()) -> list[Judged]:
    """What a lock asks, where there is one."""
    return [] if missed is None else [rulings.still_known([row for row in missed if row.name not in excused])]


def _decider(judged: Sequence[Judged]) -> Judged | None:
    """The first that was measured and does not hold, else the first that cannot be told; None where all hold.

    That a failure is only predicted is the least of what cannot be told.
    """
    no = [one for one in judged if one.ruling.holds is Holds.NO]
    untold = [one for one in (*judged[1:], judged[0]) if one.ruling.holds is Holds.CANNOT_TELL]
    return next(iter((*no, *untold)), None)


def _failed_required(request: Request, judged: Sequence[Judged]) -> tuple[str, ...]:
    """The required features that fail or cannot be told; the glob itself where it names no row."""
    asked = asked_rows(request)
    names: set[str] = set()
    for requirement, one in zip(asked, judged[2 : 2 + len(asked)], strict=True):
        if one.ruling.holds not in (Holds.YES, Holds.ALLOWED):
            names |= {row.feature for row in one.rows} or {requirement.feature}
    return tuple(sorted(names))


def _unmeasured(rows: Sequence[FeatureRow], *, foretold: bool) -> str:
    """The end of the deciding line where all that was asked for holds and nothing was measured; else ""."""
    counted = rulings.counted_of(rows)
    if any(is_measured(row.verdict, row.evidence) for row in counted):
        return ""
    if foretold:
        return "; none was measured: what was asked for is foretold"
    number = sum(rulings.is_built(row) for row in counted)
    return f"; {number} of {rulings.out_of(rows)} compiled and loaded, which is what was asked for; none was measured"


def _summary(rows: tuple[FeatureRow, ...]) -> str:
    """Every verdict that occurs, unknown among them, and what was not measured now: "5 rows work, 2 broken"."""
    if not rows:
        return "no row is selected"
    parts: list[str] = []
    for verdict, (one, many) in _SAID.items():
        meant = [row for row in rows if row.verdict is verdict]
        if number := len(meant):
            noun = (" row" if number == 1 else " rows") if not parts else ""
            parts.append(f"{number}{noun} {one if number == 1 else many}{as_predicted(meant)}")
    locked = sum(bool(row.locked) for row in rows)
    return ", ".join([*parts, *([f"{locked} of these locked"] if locked else [])])
