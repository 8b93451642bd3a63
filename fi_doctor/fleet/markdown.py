"""A fleet as Markdown, for a merge request, an issue or a job's summary."""

from __future__ import annotations

from collections.abc import Iterator

from fi_doctor.fleet.console import standing
from fi_doctor.fleet.explaining import group_name
from fi_doctor.model.fleet import FleetReport, NodeGroup
from fi_doctor.reports.markdown import code, words
from fi_doctor.reports.text import amount

_MOST = 50
_MOST_NODES = 200


def render(fleet: FleetReport) -> str:
    """The whole of it; what stands in it is data, and no markup of it is obeyed."""
    parts = (
        [f"# fi-doctor: exit {fleet.gate.code}", "", words(fleet.gate.reason)],
        _odd(fleet),
        _list("No value is that of most nodes", [one.said for one in fleet.splits]),
        _list("Variables of the driver and of its workers", [one.said for one in fleet.variables]),
        _groups(fleet),
        _nodes(fleet),
        _list("Not read", [f"{one.name}: {one.what}{f' ({one.why})' if one.why else ''}" for one in fleet.unread]),
        _list("Notes", list(fleet.notes)),
    )
    return "\n\n".join("\n".join(lines) for lines in map(list, parts) if lines) + "\n"


def _odd(fleet: FleetReport) -> Iterator[str]:
    odd = [one for one in fleet.groups if one.is_odd]
    if odd:
        yield from ("## What sets nodes apart", "")
    for group in odd[:_MOST]:
        yield f"- **{words(group_name(group.nodes, 60))}**: {words(standing(group, fleet))}"
        yield from _drifts(group)
    if len(odd) > _MOST:
        yield f"- and {len(odd) - _MOST} more groups"


def _drifts(group: NodeGroup) -> Iterator[str]:
    if not group.drifts:
        yield from (f"  - {words(line)}" for line in group.said)
    for one in group.drifts:
        rests = [*one.rows, *one.findings]
        depends = f": {', '.join(code(name) for name in rests[:5])}" if rests else ""
        yield f"  - {words(one.said)} ({code(one.fact)}, depends on it: {words(one.weight)}{depends})"


def _groups(fleet: FleetReport) -> Iterator[str]:
    yield from ("## Groups of equal nodes", "", "| nodes | | stands |", "| --- | --- | --- |")
    for group in fleet.groups[:_MOST]:
        who = f"{amount(len(group.nodes), 'node')}: {group_name(group.nodes, 60)}"
        yield f"| {words(who)} | {'odd' if group.is_odd else ''} | {words(standing(group, fleet))} |"


def _nodes(fleet: FleetReport) -> Iterator[str]:
    yield from ("## Nodes", "", "| node | exit | worst row | verdict |", "| --- | --- | --- | --- |")
    for node in sorted(fleet.nodes, key=lambda one: one.code == 0)[:_MOST_NODES]:
        yield f"| {words(node.name)} | {node.code} | {words(node.row)} | {node.verdict} ({node.evidence}) |"
    if len(fleet.nodes) > _MOST_NODES:
        yield f"| and {len(fleet.nodes) - _MOST_NODES} more | | | |"


def _list(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield from (f"## {title}", "", *(f"- {words(line)}" for line in lines[:_MOST]))
    if len(lines) > _MOST:
        yield f"- and {len(lines) - _MOST} more"
