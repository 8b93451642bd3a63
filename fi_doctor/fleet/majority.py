"""Which verdict most nodes have of a row, by the measure of facts; where none is that of most, all sides are told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fi_doctor.fleet.comparing import usual_of

NOT_THERE = ""  # what stands for a row or a finding that a node has not
# Name of a row or finding -> what it is, and how many nodes have it so.
Standing = tuple[Mapping[str, str], int]


class RowApart(NamedTuple):
    """A row, or a finding, that nodes have otherwise than most."""

    name: str
    here: str
    others: str
    who: str  # has `others`: "the others"


class RowSplit(NamedTuple):
    """Rows of which no verdict is that of most nodes, and that the same nodes have alike."""

    names: tuple[str, ...]
    sides: tuple[tuple[str, tuple[int, ...]], ...]  # verdict, and which of the standings have it


def compare(
    standings: Sequence[Standing], every: Sequence[Standing]
) -> tuple[tuple[tuple[RowApart, ...], ...], tuple[RowSplit, ...]]:
    """What each has otherwise than most, in their order, and what has no majority.

    standings: of nodes on one side of what splits the facts. every: of all nodes; what most of these have counts where
    most on that side have nothing.
    """
    aparts: list[list[RowApart]] = [[] for _ in standings]
    splits: dict[tuple[tuple[str, tuple[int, ...]], ...], list[str]] = defaultdict(list)
    for name in sorted({name for standing, _ in standings for name in standing}):
        counts = _counts(name, standings)
        if len(counts) == 1:
            continue
        everywhere = _counts(name, every)
        found = usual_of(counts) or usual_of(everywhere)
        values = [standing.get(name, NOT_THERE) for standing, _ in standings]
        if found is None:
            at = {value: tuple(at for at, one in enumerate(values) if one == value) for value in counts}
            splits[tuple(sorted(at.items(), key=lambda item: (-counts[item[0]], item[1])))].append(name)
            continue
        usual, _ = found
        for of, value in zip(aparts, values, strict=True):
            if value != usual:
                of.append(RowApart(name, value, usual, _who(value, usual, everywhere)))
    return tuple(map(tuple, aparts)), tuple(RowSplit(tuple(names), sides) for sides, names in splits.items())


def _counts(name: str, standings: Sequence[Standing]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for standing, many in standings:
        counts[standing.get(name, NOT_THERE)] += many
    return counts


def _who(here: str, usual: str, everywhere: Counter[str]) -> str:
    if everywhere[here] + everywhere[usual] == everywhere.total():
        return "the others"
    found = usual_of(everywhere)
    return "most" if found is not None and found[0] == usual else "most that are configured so"
