"""The gate of a fleet: what was asked for holds where it holds on every node, and every node told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fi_doctor.diagnosis.gate import CANNOT_TELL, FAILS, HOLDS
from fi_doctor.fleet.explaining import group_name
from fi_doctor.model import Gate, Report
from fi_doctor.model.fleet import Node, NodeGroup, Split, Unread
from fi_doctor.reports.text import amount


def of_fleet(
    nodes: Sequence[Node],
    reports: Sequence[Report],
    unread: Sequence[Unread],
    groups: Sequence[NodeGroup],
    splits: Sequence[Split],
) -> Gate:
    """1 where a node fails; 3 where one cannot be told, or is not read, or there is none; else 0."""
    codes = Counter(one.code for one in nodes)
    if codes[FAILS]:
        code = FAILS
    elif not nodes or unread or codes[CANNOT_TELL] or set(codes) - {HOLDS}:
        code = CANNOT_TELL
    else:
        code = HOLDS
    counts: Counter[str] = Counter()
    for number, many in Counter(one.judged for one in nodes).items():
        counts.update({verdict: many * count for verdict, count in reports[number].gate.counts.items()})
    failed = {name for number in {one.judged for one in nodes} for name in reports[number].gate.failed_required}
    return Gate(
        code=code,
        reason=_reason(nodes, reports, unread, groups, splits, code),
        counts=dict(counts),
        measured=sum(reports[one.judged].gate.measured for one in nodes),
        failed_required=tuple(sorted(failed)),
        warnings=tuple(sorted({line for one in reports for line in one.gate.warnings})),
    )


def _reason(  # noqa: PLR0913, PLR0917 - all that the line tells of
    nodes: Sequence[Node],
    reports: Sequence[Report],
    unread: Sequence[Unread],
    groups: Sequence[NodeGroup],
    splits: Sequence[Split],
    code: int,
) -> str:
    """The deciding line: how many nodes hold, fail and cannot be told, who is odd, and what decided."""
    if not nodes:
        return "no node: none of the reports can be read" if unread else "no node: there is no report"
    codes = Counter(one.code for one in nodes)
    holds, fails = codes[HOLDS], codes[FAILS]
    untold = len(nodes) - holds - fails
    parts = [f"{amount(len(nodes), 'node')}: {holds} {'holds' if holds == 1 else 'hold'}"]
    parts += [f"{fails} {'fails' if fails == 1 else 'fail'}"] if fails else []
    parts += [f"{untold} cannot be told"] if untold else []
    parts += [f"{len(unread)} not read"] if unread else []
    odd = sum(len(one.nodes) for one in groups if one.is_odd)
    parts += [f"{odd} odd"] if odd else ["no fact decides who is odd" if splits else "none is odd"]
    decisive = [one for one in nodes if one.code == code] if code != HOLDS else []
    if not decisive:
        return ", ".join(parts)
    names = group_name([one.name for one in decisive])
    return f"{', '.join(parts)}; {names}: {reports[decisive[0].judged].gate.reason}"
