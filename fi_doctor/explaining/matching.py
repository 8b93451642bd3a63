"""Which faults' signs stand in the lines that were found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.patterns import every, search
from fi_doctor.model import Fault, Sign

_NEAR = 200  # lines
_RANK = r"(?P<kind>TP|DP|PP|EP|CP|rank)[ =_]?(?P<number>\d+)"
_OWN = "/flashinfer/"
# What CUDA tells of a crash at a later call: where that was raised without FlashInfer, its name in a line near it says
# nothing.
_LATER = (
    r"illegal memory access|misaligned address|launch failure|illegal instruction"
    r"|cudaError(?:IllegalAddress|MisalignedAddress|LaunchFailure|IllegalInstruction)"
)
_PROCESS = re.compile(r"[\s,]*(?:pid=)?\d+")


class Match(NamedTuple):
    """A sign in a line."""

    sign: Sign
    line: Line
    captured: dict[str, str]


def matches(fault: Fault, lines: Mapping[str, Sequence[Line]]) -> tuple[Match, ...]:
    """Each sign of a fault in each of the lines that have it, in the order of the log.

    lines: for each literal those in which it stands.
    """
    found = [
        match
        for sign in fault.signs
        for line in lines.get(sign.text, ())
        if (match := _match(sign, line, lines)) is not None
    ]
    return tuple(sorted(found, key=lambda match: (match.line.place, match.line.number)))


def _match(sign: Sign, line: Line, lines: Mapping[str, Sequence[Line]]) -> Match | None:
    if sign.text not in line.text or (sign.frame and not line.frame):
        return None
    captured = search(sign.pattern, line.text) if sign.pattern else {}
    if captured is None or (sign.without and search(sign.without, line.text) is not None):
        return None
    if sign.frame and search(sign.frame, line.frame) is None:
        return None
    if sign.near == _OWN and line.frame and not line.is_own and search(_LATER, line.text) is not None:
        return None
    if sign.near and not any(is_near(line, other, sign.within) for other in lines.get(sign.near, ())):
        return None
    return Match(sign, line, captured)


def is_near(line: Line, other: Line, within: int = _NEAR) -> bool:
    """Whether two lines are of one file, not far apart and not of two ranks or containers."""
    is_close = line.file == other.file and abs(line.number - other.number) <= within
    return is_close and not _are_apart(line.rank, other.rank) and not are_of_two(line, other)


def are_of_two(line: Line, other: Line) -> bool:
    """Whether two lines are of two containers that a collector names."""
    return bool(line.origin and other.origin) and line.origin != other.origin


def is_same_rank(one: str, other: str) -> bool:
    """Whether two names are of one rank: "Worker_TP1 pid=7" and "TP1" are."""
    shared = _ranks(one).items() & _ranks(other).items()
    return bool(one) and (one == other or (bool(shared) and not _are_apart(one, other)))


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
