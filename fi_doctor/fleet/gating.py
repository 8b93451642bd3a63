"""The gate of a fleet: what was asked for holds where it holds on every node, and every node told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from fi_doctor.diagnosis.gate import CANNOT_TELL, FAILS, HOLDS
from fi_doctor.fleet.explaining import group_name
from fi_doctor.model import Gate, Holds, Policy, Report, Ruling
from fi_doctor.model.fleet import Node, NodeGroup, Split, Unread
from fi_doctor.model.policy import DRIFT
from fi_doctor.reports.text import amount


def of_fleet(  # noqa: PLR0913, PLR0917 - all that a gate looks at
    nodes: Sequence[Node],
    reports: Sequence[Report],
    unread: Sequence[Unread],
    groups: Sequence[NodeGroup],
    splits: Sequence[Split],
    policy: Policy,
) -> Gate:
    """1 where a node fails or, if asked for, where they differ; 3 where one cannot be told or is not read; else 0."""
    codes = Counter(one.code for one in nodes)
    alike = are_alike(unread, groups, splits, policy) if DRIFT in policy.fail_on else None
    if codes[FAILS] or (alike and alike.holds is Holds.NO):
        code = FAILS
    elif not nodes or unread or codes[CANNOT_TELL] or set(codes) - {HOLDS}:
        code = CANNOT_TELL
    else:
        code = HOLDS
    counts: Counter[str] = Counter()
    for number, many in Counter(one.judged for one in nodes).items():
        counts.update({verdict: many * count for verdict, count in reports[number].gate.counts.items()})
    failed = {name for number in {one.judged for one in nodes} for name in reports[number].gate.failed_required}
    reason = _reason(nodes, reports, unread, groups, splits, code)
    if alike and alike.holds is Holds.NO:
        alike = replace(alike, decides=not codes[FAILS])
        reason = f"{reason}; they differ, which fails ({alike.source}): {alike.why}"
    return Gate(
        code=code,
        reason=reason,
        requirements=(alike,) if alike else (),
        counts=dict(counts),
        measured=sum(reports[one.judged].gate.measured for one in nodes),
        failed_required=tuple(sorted(failed)),
        warnings=tuple(sorted({line for one in reports for line in one.gate.warnings})),
    )


def are_alike(unread: Sequence[Unread], groups: Sequence[NodeGroup], splits: Sequence[Split], policy: Policy) -> Ruling:
    """Whether all nodes are: in what configures them, and in their verdicts. One that was not read may be otherwise."""
    holds = Holds.NO if len(groups) > 1 else Holds.CANNOT_TELL if unread or not groups else Holds.YES
    told = [" ".join(line.strip() for line in one.said) for one in groups if one.said]
    told += [one.said for one in splits]
    if len(told) > 1:
        told[1:] = [f"and {amount(len(told) - 1, 'more difference')}"]
    why = "; ".join(told) or f"{group_name(groups[-1].nodes)} has other verdicts" if holds is Holds.NO else ""
    if holds is Holds.CANNOT_TELL:
        why = f"{group_name([one.name for one in unread])} not read" if unread else "there is no node"
    source = policy.sources.get("fail-on", "fail-on")
    return Ruling(requirement="no node differs from another", source=f"{source} {DRIFT}", holds=holds, why=why)


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
    of = "verdict" if splits and all(one.rows for one in splits) else "fact"
    parts += [f"{odd} odd"] if odd else [f"no {of} decides who is odd" if splits else "none is odd"]
    decisive = [one for one in nodes if one.code == code] if code != HOLDS else []
    if not decisive:
        return ", ".join(parts)
    reason = reports[decisive[0].judged].gate.reason
    alike = [one.name for one in decisive if reports[one.judged].gate.reason == reason]
    others = f"; {len(decisive) - len(alike)} otherwise" if len(alike) < len(decisive) else ""
    return f"{', '.join(parts)}; {group_name(alike)}: {reason}{others}"
