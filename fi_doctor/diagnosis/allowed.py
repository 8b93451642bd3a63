"""What a policy allows to fail, and what became of that: used, unused, or expired."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from msgspec.structs import replace

from fi_doctor.diagnosis.rulings import Judged
from fi_doctor.model import Allowance, Excuse, FeatureRow, Holds, Request, Ruling


def excuses(request: Request, chosen: tuple[FeatureRow, ...], troubled: Sequence[Judged]) -> tuple[Excuse, ...]:
    """For each thing that is allowed what it excuses.

    troubled: what does not hold where nothing is allowed.
    """
    rows = {row.name: row for one in troubled for row in one.rows}
    findings = {finding.id for one in troubled for finding in one.findings}
    return tuple(_excuse(one, request, chosen, rows, findings) for one in request.policy.allowed)


def as_allowed(ruling: Ruling, without: Ruling) -> Ruling:
    """A ruling that holds, as allowed where it does not without what is allowed to fail, which is the second one."""
    if ruling.holds is not Holds.YES or without.holds is Holds.YES:
        return ruling
    return replace(ruling, holds=Holds.ALLOWED, why=without.why)


def warnings(request: Request, judged: tuple[Excuse, ...]) -> tuple[str, ...]:
    """A sentence for each that has expired, and for each that excused nothing."""
    where = f" in {request.policy.file}" if request.policy.file else ""
    said = {
        "expired": "expired on {0.expires} and allows nothing any more: {0.reason}",
        "unused": "excused nothing; allowed until {0.expires}: {0.reason}",
    }
    return tuple(
        f"allow{where}: {excuse.what} {said[excuse.state].format(excuse)}" for excuse in judged if excuse.state in said
    )


def said(judged: tuple[Excuse, ...]) -> str:
    """The end of the deciding line where all holds because something was excused; else ""."""
    names = [name for excuse in judged for name in (*excuse.rows, *excuse.findings)]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"; allowed to fail: {', '.join(names[:3])}{more}" if names else ""


def _excuse(
    one: Allowance,
    request: Request,
    chosen: tuple[FeatureRow, ...],
    rows: dict[str, FeatureRow],
    findings: set[str],
) -> Excuse:
    names = tuple(name for name, row in rows.items() if one.feature and _covers(one, row))
    ids = tuple(sorted(findings & {one.finding}))
    if request.policy.day > one.expires:
        return _said(one, "expired")
    if names or ids:
        return _said(one, "used", names, ids)
    # Of rows that were not selected nobody can say whether they fail.
    is_selected = not one.feature or any(fnmatch.fnmatchcase(row.feature, one.feature) for row in chosen)
    return _said(one, "unused" if is_selected else "not selected")


def _covers(one: Allowance, row: FeatureRow) -> bool:
    return fnmatch.fnmatchcase(row.feature, one.feature) and (not one.verdicts or row.verdict.value in one.verdicts)


def _said(one: Allowance, state: str, rows: tuple[str, ...] = (), findings: tuple[str, ...] = ()) -> Excuse:
    return Excuse(what=one.what, state=state, reason=one.reason, expires=one.expires, rows=rows, findings=findings)
