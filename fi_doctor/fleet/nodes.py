"""Which reports are of one node: the newest of them counts, and two nodes of one name are told apart."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from fi_doctor.fleet.reading import Reading
from fi_doctor.reports.text import clean

_MOST_NOTED = 20


def distinct(readings: Sequence[Reading]) -> tuple[list[Reading], tuple[str, ...]]:
    """One reading for each node and interpreter, by name, and what was made of the others, in sentences."""
    by_machine: dict[Hashable, list[Reading]] = defaultdict(list)
    for one in readings:
        by_machine[_machine(one), one.executable].append(one)
    kept, notes = [], []
    for of in by_machine.values():
        newest = max(of, key=lambda one: (one.created, one.source))
        kept.append(newest)
        if len(of) > 1:
            left = ", ".join(_told(one) for one in of if one is not newest)
            notes.append(
                f"{_named(newest)}: its newest report counts, of {newest.created or 'no day'}; left out: {left}"
            )
    kept, told = _with_names(kept)
    notes.sort()
    more = [f"and {len(notes) - _MOST_NOTED} more nodes of which the newest report counts"] if len(notes) > 20 else []
    return sorted(kept, key=lambda one: (natural(one.name), one.source)), (*notes[:_MOST_NOTED], *more, *told)


def natural(name: str) -> tuple[str | int, ...]:
    """What names are sorted by: numbers in them by their amount, node-9 before node-10."""
    return tuple(int(part) if number % 2 else part for number, part in enumerate(re.split(r"([0-9]{1,18})", name)))


def _machine(one: Reading) -> Hashable:
    """What tells a machine from others: who asked it, its GPUs, how it calls itself, else how it is called here."""
    if one.identity:
        return ("asked", one.identity)
    if one.serials:
        return one.serials
    return ("host", one.hostname) if one.hostname and _is_name(one.hostname) else ("name", one.name)


def _is_name(hostname: str) -> bool:
    """Whether it can be the name of one machine only; what stands for a name that was taken out cannot."""
    return hostname not in ("localhost", "localhost.localdomain") and not hostname.startswith("<")


def _with_names(kept: list[Reading]) -> tuple[list[Reading], list[str]]:
    """The same with a name each of its own: where several have one, what tells them apart stands behind it."""
    counts = Counter(one.name for one in kept)
    hosts: dict[str, list[Reading]] = defaultdict(list)
    for one in kept:
        if one.hostname and _is_name(one.hostname):
            hosts[one.hostname].append(one)
    notes = [
        f"{clean(name, 100)} is the name of {len(of)} machines with other GPUs: {', '.join(sorted(map(_told, of)))}"
        for name, of in sorted(hosts.items())
        if len({one.serials for one in of if one.serials}) > 1
    ][:_MOST_NOTED]
    named, pythons = [], defaultdict(set)
    for one in kept:
        pythons[one.name].add(one.executable)
    for number, one in enumerate(kept):
        if counts[one.name] > 1:
            apart = one.executable if len(pythons[one.name]) == counts[one.name] else one.source
            named.append(one._replace(name=f"{one.name} ({apart or number + 1})"))
        else:
            named.append(one)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        notes.append(f"Several nodes are called {', '.join(clean(name, 100) for name in repeated[:5])}: told apart")
    return named, notes


def _told(one: Reading) -> str:
    return clean(one.source or one.name, 200) + (f" of {clean(one.created, 40)}" if one.created else "")


def _named(one: Reading) -> str:
    return clean(one.name, 200)
