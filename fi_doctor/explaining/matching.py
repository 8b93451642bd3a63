"""Which faults' signs stand in the lines that were found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.patterns import search
from fi_doctor.model import Fault, Sign

_NEAR = 200  # lines


class Match(NamedTuple):
    """A sign in a line."""

    sign: Sign
    line: Line
    captured: dict[str, str]


def matches(fault: Fault, lines: Iterable[Line]) -> tuple[Match, ...]:
    """Each sign of a fault in each of the lines that have it, in the order of the log."""
    every = list(lines)
    places = _places(fault, every)
    found = (_match(sign, line, places) for line in every for sign in fault.signs)
    return tuple(match for match in found if match is not None)


def _places(fault: Fault, lines: list[Line]) -> dict[str, list[Line]]:
    """Where what must stand near a sign does."""
    places: dict[str, list[Line]] = defaultdict(list)
    wanted = {sign.near for sign in fault.signs if sign.near}
    for line in lines:
        for near in wanted:
            if near in line.text:
                places[near].append(line)
    return places


def _match(sign: Sign, line: Line, places: dict[str, list[Line]]) -> Match | None:
    if sign.text not in line.text:
        return None
    captured = search(sign.pattern, line.text) if sign.pattern else {}
    if captured is None or (sign.without and search(sign.without, line.text) is not None):
        return None
    if sign.near and not any(is_near(line, other, sign.within) for other in places[sign.near]):
        return None
    return Match(sign, line, captured)


def is_near(line: Line, other: Line, within: int = _NEAR) -> bool:
    """Whether two lines are of one file and rank, and not far apart."""
    are_apart = line.rank and other.rank and line.rank != other.rank
    return line.file == other.file and not are_apart and abs(line.number - other.number) <= within
