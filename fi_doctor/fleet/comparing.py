"""What most nodes have, fact by fact, and what each kind of node has otherwise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from fi_doctor.diagnosis.fact_changes import Told
from fi_doctor.fleet import identity
from fi_doctor.fleet.reading import NONE, Reader, Reading

ABSENT = "not there"
# Most nodes are at least two thirds of those that tell; of fewer nobody can say which are the odd ones.
_MOST = 2 / 3
# Tables of which every schema writes all: what is not in them is not there. A fact that an older report lacks
# elsewhere was not told by it.
_TABLES = ("environment.", "libraries.")

_Value = TypeVar("_Value")


class Apart(NamedTuple):
    """A fact that a node has otherwise than most."""

    fact: str
    here: Told
    others: Told
    is_rest: bool  # whether all other nodes that tell have that value, and not most of them


class Compared(NamedTuple):
    """All that is not the same on every node."""

    drifts: dict[int, tuple[Apart, ...]]  # number of a section -> what it has otherwise than most
    sides: dict[int, tuple[tuple[str, Told], ...]]  # number of a section -> its values of facts without a majority
    split: dict[str, Counter[Told]]  # fact without a majority -> how many nodes have which value


def compare(readings: Sequence[Reading], reader: Reader) -> Compared:
    """What differs; each kind of section is looked at once, however many nodes have it."""
    drifts: dict[int, list[Apart]] = defaultdict(list)
    sides: dict[int, list[tuple[str, Told]]] = defaultdict(list)
    split: dict[str, Counter[Told]] = {}
    newest = max((one.minor for one in readings), default=0)
    for column in zip(*(one.sections for one in readings), strict=True):
        numbers = Counter(column)
        del numbers[NONE]
        if len(numbers) < 2:
            continue
        told = _without_hosts({number: reader.sections[number] for number in numbers}, column, readings)
        for fact, values in _differing(told, reader, newest):
            counts: Counter[Told] = Counter()
            for number, value in values.items():
                counts[value] += numbers[number]
            found = usual_of(counts)
            if found is None:
                split[fact] = counts
                for number, value in values.items():
                    sides[number].append((fact, value))
                continue
            usual, most = found
            for number, value in values.items():
                if value != usual:
                    is_rest = counts[value] + most == counts.total()
                    drifts[number].append(Apart(fact, value, usual, is_rest))
    return Compared(
        {number: tuple(found) for number, found in drifts.items()},
        {number: tuple(found) for number, found in sides.items()},
        split,
    )


def usual_of(counts: Counter[_Value]) -> tuple[_Value, int] | None:
    """What at least two thirds have, and how many these are; None where nothing is."""
    (usual, most), *_ = counts.most_common(1)
    return (usual, most) if most >= _MOST * counts.total() else None


def _without_hosts(
    sections: dict[int, dict[str, Told]], column: Sequence[int], readings: Sequence[Reading]
) -> dict[int, dict[str, Told]]:
    """The sections without the names of their nodes, as in a folder for each: /scratch/node-3/cache.

    A name stays where another section has the same, as that of a node from which all of them mount something.
    """
    nodes: dict[int, list[Reading]] = defaultdict(list)
    for number, one in zip(column, readings, strict=True):
        if len(nodes[number]) < 2:
            nodes[number].append(one)
    own = {
        number: identity.names(of[0].hostname, of[0].name)
        for number, of in nodes.items()
        if len(of) == 1 and number in sections
    }
    names = {number: found for number, found in own.items() if any(map(found.search, _words(sections[number])))}
    if not names:
        return sections
    shared = Counter(item for section in sections.values() for item in section.items())
    return {
        number: dict(
            item if shared[item] > 1 else identity.without_names(item, names[number]) for item in section.items()
        )
        if number in names
        else section
        for number, section in sections.items()
    }


def _words(section: dict[str, Told]) -> Iterator[str]:
    for fact, told in section.items():
        yield fact
        yield from (told,) if isinstance(told, str) else told


def _differing(told: dict[int, dict[str, Told]], reader: Reader, newest: int) -> Iterator[tuple[str, dict[int, Told]]]:
    """Each fact of which these sections have more than one value -> the value of each that tells it."""
    wholes = {number: {whole for fact in section for whole in _wholes(fact)} for number, section in told.items()}
    for fact in sorted({fact for section in told.values() for fact in section}):
        values = {}
        for number, section in told.items():
            value = section.get(fact)
            if value is not None:
                values[number] = value
            elif fact in wholes[number]:
                continue  # told by its parts, which differ too
            elif identity.is_untold(fact, section):
                continue
            elif reader.section_minor[number] == newest or fact.startswith(_TABLES):
                values[number] = _lack(fact, section)
        if len(set(values.values())) > 1:
            yield fact, values


def _lack(fact: str, section: dict[str, Told]) -> Told:
    """What stands for a fact that is not there: the reason of what it would be a part of, if that has one."""
    said = next((section[whole] for whole in _wholes(fact) if whole in section), ABSENT)
    return said if isinstance(said, str) else ABSENT


def _wholes(fact: str) -> Iterator[str]:
    """What a fact is a part of, the nearest first."""
    while fact := fact.rpartition(".")[0]:
        yield fact
