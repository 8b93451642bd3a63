"""Which verdict most nodes have of a row, by the measure of facts; where none is that of most, all sides are told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fi_doctor.fleet.comparing import MOST

NOT_THERE = ""  # what stands for a row or a finding that a node has not


class RowApart(NamedTuple):
    """A row, or a finding, that nodes have otherwise than most."""

    name: str
    here: str
    others: str
    is_rest: bool  # whether all other nodes have that, and not most of them


class RowSplit(NamedTuple):
    """Rows of which no verdict is that of most nodes, and that the same nodes have alike."""

    names: tuple[str, ...]
    sides: tuple[tuple[str, tuple[int, ...]], ...]  # verdict, and which of the standings have it


def compare(
    standings: Sequence[tuple[Mapping[str, str], int]],
) -> tuple[tuple[tuple[RowApart, ...], ...], tuple[RowSplit, ...]]:
    """What each has otherwise than most, in their order, and what has no majority.

    standings: name of a row or finding -> what it is, and how many nodes have it so.
    """
    aparts: list[list[RowApart]] = [[] for _ in standings]
    splits: dict[tuple[tuple[str, tuple[int, ...]], ...], list[str]] = defaultdict(list)
    for name in sorted({name for standing, _ in standings for name in standing}):
        values = [standing.get(name, NOT_THERE) for standing, _ in standings]
        counts: Counter[str] = Counter()
        for value, (_, many) in zip(values, standings, strict=True):
            counts[value] += many
        if len(counts) == 1:
            continue
        (usual, most), *_ = counts.most_common(1)
        if most < MOST * counts.total():
            at = {value: tuple(at for at, one in enumerate(values) if one == value) for value in counts}
            splits[tuple(sorted(at.items(), key=lambda item: (-counts[item[0]], item[1])))].append(name)
            continue
        for of, value in zip(aparts, values, strict=True):
            if value != usual:
                of.append(RowApart(name, value, usual, counts[value] + most == counts.total()))
    return tuple(map(tuple, aparts)), tuple(RowSplit(tuple(names), sides) for sides, names in splits.items())
