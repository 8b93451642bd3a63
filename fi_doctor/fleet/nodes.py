"""Which reports are of one node: the newest of them counts, and two nodes of one name are told apart."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence

from fi_doctor.fleet import ages
from fi_doctor.fleet.reading import Reading
from fi_doctor.reports.redaction import host_names
from fi_doctor.reports.text import clean

_MOST_NOTED = 20
_LABEL = 150  # characters of a name that every format shows


def distinct(readings: Sequence[Reading]) -> tuple[list[Reading], tuple[str, ...]]:
    """One reading for each node and interpreter, by name, and what was made of the others, in sentences."""
    by_machine: dict[Hashable, list[Reading]] = defaultdict(list)
    whole = _whole(readings)
    for one in readings:
        by_machine[_machine(one, whole), one.executable].append(one)
    kept, notes = [], []
    for of in by_machine.values():
        newest = max(of, key=lambda one: (ages.instant(one.created), one.source))
        kept.append(newest)
        if len(of) > 1:
            left = ", ".join(_told(one) for one in of if one is not newest)
            notes.append(f"{_named(newest)}: {_counts(newest)}; left out: {left}")
    kept, told = _with_names(kept)
    notes.sort()
    more = [f"and {len(notes) - _MOST_NOTED} more nodes of which the newest report counts"] if len(notes) > 20 else []
    return sorted(kept, key=lambda one: (natural(one.name), one.source)), (*notes[:_MOST_NOTED], *more, *told)


def natural(name: str) -> tuple[str | int, ...]:
    """What names are sorted by: numbers in them by their amount, node-9 before node-10."""
    return tuple(int(part) if number % 2 else part for number, part in enumerate(re.split(r"([0-9]{1,18})", name)))


def _whole(readings: Sequence[Reading]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Name of a host and one of its GPUs -> the most GPUs that it had: one may have failed."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for one in readings:
        for serial in one.serials:
            if len(one.serials) > len(found.get((one.hostname, serial), ())):
                found[one.hostname, serial] = one.serials
    return found


def _machine(one: Reading, whole: Mapping[tuple[str, str], tuple[str, ...]]) -> Hashable:
    """What tells a machine from others: who asked it, its GPUs, how it calls itself, else how it is called here."""
    if one.identity:
        return ("asked", one.identity)
    if one.serials:
        return whole[one.hostname, one.serials[0]]
    return ("host", one.hostname) if one.hostname and _is_name(one.hostname) else ("name", one.name)


def _is_name(hostname: str) -> bool:
    """Whether it can be the name of one machine only; what stands for a name that was taken out cannot."""
    return not hostname.startswith("<") and any(host_names(hostname.partition(".")[0]))


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
    return _apart(named), notes


def _apart(named: list[Reading]) -> list[Reading]:
    """The same, by names that are each its own as they are shown, too: without secrets, and not longer than a label."""
    shown = Counter(clean(one.name, _LABEL) for one in named)
    return [
        one if shown[name := clean(one.name, _LABEL)] == 1 else one._replace(name=f"{name[:_LABEL]} ({number})")
        for number, one in enumerate(named, 1)
    ]


def _counts(newest: Reading) -> str:
    """Why it is the one of its node that counts."""
    if ages.instant(newest.created) == ages.UNKNOWN:
        return f"none of its reports tells when it was made; the last by name counts, {_told(newest)}"
    return f"its newest report counts, of {clean(newest.created, 40)}"


def _told(one: Reading) -> str:
    if not one.created:
        return clean(one.source or one.name, 200)
    if ages.instant(one.created) != ages.UNKNOWN:
        why = ""
    else:
        why = ", which is to come" if ages.is_to_come(one.created) else ", which is no time"
    return f"{clean(one.source or one.name, 200)} of {clean(one.created, 40)}{why}"


def _named(one: Reading) -> str:
    return clean(one.name, 200)
