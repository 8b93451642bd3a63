"""A fleet for people: whether it holds, what sets the odd nodes apart, then who is like whom."""

from __future__ import annotations

from collections.abc import Iterator

from fi_doctor.fleet.explaining import group_name
from fi_doctor.model.fleet import FleetReport, NodeGroup
from fi_doctor.reports.text import amount, clean, wrap

_MOST = 30  # odd groups, and nodes that were not read
_MOST_GROUPS = 10


def render(fleet: FleetReport, *, width: int = 80) -> str:
    """The whole of it; ends with a newline."""
    parts = (
        _section("What sets nodes apart, that on which most depends first", _odd(fleet, width)),
        _section("No value is that of most nodes, and nobody is odd by it", _splits(fleet, width)),
        _section("Variables of the driver and of its workers", _variables(fleet, width)),
        _section("Groups of equal nodes, the largest first", _groups(fleet, width)),
        _section("Not read", _unread(fleet, width)),
        _section("Notes", (line for note in fleet.notes for line in wrap(clean(note, 2000), width, "  ", "    "))),
    )
    lines = [*wrap(fleet.gate.reason, width), *(line for part in parts for line in part)]
    return "\n".join(lines) + "\n"


def standing(group: NodeGroup, fleet: FleetReport) -> str:
    """How the nodes of a group stand: "exit 1, worst moe.bf16 on SM90 broken (ran)"."""
    node = next(one for one in fleet.nodes if one.name == group.nodes[0])
    row = f", worst {node.row} {node.verdict} ({node.evidence})" if node.row else ", no row"
    return clean(f"exit {node.code}{row}")


def _section(title: str, lines: Iterator[str]) -> list[str]:
    found = list(lines)
    return ["", title, *found] if found else []


def _odd(fleet: FleetReport, width: int) -> Iterator[str]:
    odd = [one for one in fleet.groups if one.is_odd]
    for group in odd[:_MOST]:
        if max(map(len, group.said), default=0) <= width:
            yield from group.said
        else:
            yield from wrap(" ".join(group.said), width, "", "  ")
    if len(odd) > _MOST:
        yield f"  and {len(odd) - _MOST} more groups; --format json has all"


def _splits(fleet: FleetReport, width: int) -> Iterator[str]:
    for one in fleet.splits[:_MOST]:
        yield from wrap(one.said, width, "  ", "    ")
    if len(fleet.splits) > _MOST:
        yield f"  and {len(fleet.splits) - _MOST} more; --format json has all"


def _variables(fleet: FleetReport, width: int) -> Iterator[str]:
    for one in fleet.variables[:_MOST]:
        yield from wrap(clean(one.said), width, "  ", "    ")


def _groups(fleet: FleetReport, width: int) -> Iterator[str]:
    first = standing(fleet.groups[0], fleet) if fleet.groups else ""
    for number, group in enumerate(fleet.groups[:_MOST_GROUPS]):
        said = f"{amount(len(group.nodes), 'node')}{', odd' if group.is_odd else ''} ({group_name(group.nodes, 40)})"
        stands = standing(group, fleet)
        yield from wrap(f"{said}: {'as the first' if number and stands == first else stands}", width, "  ", "    ")
    rest = fleet.groups[_MOST_GROUPS:]
    if rest:
        yield f"  and {len(rest)} more groups of {amount(sum(len(one.nodes) for one in rest), 'node')}"


def _unread(fleet: FleetReport, width: int) -> Iterator[str]:
    for one in fleet.unread[:_MOST]:
        yield from wrap(
            f"{one.name}: {one.what}: {one.why}" if one.why else f"{one.name}: {one.what}", width, "  ", "    "
        )
        if one.todo:
            yield from wrap(f"try: {one.todo}", width, "      ", "        ")
    if len(fleet.unread) > _MOST:
        yield f"  and {len(fleet.unread) - _MOST} more; --format json has all"
