"""Which faults' signs stand in the lines that were found."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.patterns import every, search
from fi_doctor.model import Fault, Sign

_NEAR = 200  # lines
_RANK = r"(?P<kind>TP|DP|PP|EP|CP|rank)[ =_]?(?P<number>\d+)"
_PROCESS = re.compile(r"[\s,]*(?:pid=)?\d+")


class Match(NamedTuple):
    """A sign in a line."""

    sign: Sign
    line: Line
    captured: dict[str, str]


def matches(fault: Fault, lines: Iterable[Line]) -> tuple[Match, ...]:
    """Each sign of a fault in each of the lines that have it, in the order of the log."""
    those = list(lines)
    places = _places(fault, those)
    found = (_match(sign, line, places) for line in those for sign in fault.signs)
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
    if sign.frame and search(sign.frame, line.frame) is None:
        return None
    if sign.near and not any(_is_near(line, other) for other in places[sign.near]):
        return None
    return Match(sign, line, captured)


def _is_near(line: Line, other: Line) -> bool:
    is_close = line.file == other.file and abs(line.number - other.number) <= _NEAR
    return is_close and not _are_apart(line.rank, other.rank)


def _are_apart(one: str, other: str) -> bool:
    """Whether two names are of two ranks: "Worker_TP0 pid=7" and "TP1" are, "EngineCore_DP0" goes with both."""
    if not one or not other or one == other:
        return False
    left, right = _ranks(one), _ranks(other)
    if shared := left.keys() & right.keys():
        return any(left[kind] != right[kind] for kind in shared)
    return _PROCESS.sub("", one) == _PROCESS.sub("", other)  # the same kind of process, of another number


def _ranks(name: str) -> dict[str, str]:
    return {found["kind"]: found["number"] for found in every(_RANK, name)}
