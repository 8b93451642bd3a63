"""The facts that differ between two reports, as words; of lists what is gone and what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from typing import Any

import msgspec

from fi_doctor.model import FactChange, Facts, Missing, Report

# Groups of facts in the order in which they are told; what is in none of them says nothing about verdicts (`sources`).
_GROUPS = (
    "toolkit",
    "packages",
    "environment",
    "gpus",
    "flashinfer",
    "libraries",
    "vllm",
    "interpreter",
    "system",
    "machine",
    "server",
)
# Whole tables of files amount to these: the versions of their packages, and `altered`, are what is compared.
FOLLOWS_FROM_FILES = (
    "flashinfer.symbols",
    "flashinfer.majors",
    "flashinfer.public",
    "flashinfer.admissions",
    "vllm.variables",
    "vllm.flags",
    "vllm.keys",
    "vllm.unread_variables",
    "vllm.other_variables",
)
# Those, and facts that differ from one minute to the next.
_UNTOLD = (
    "gpus.gpus.compute_processes",
    "gpus.gpus.memory_free_mib",
    "machine.folders.free_inodes",
    "machine.folders.free_mib",
    "machine.folders.quota",
    "machine.user.found_by",
    "server.pid",
    "server.parent",
    "server.user",
    "interpreter.serving",
    "system.hostname",
    "system.memory_available_mib",
    "system.memory_left_mib",
    *FOLLOWS_FROM_FILES,
)
# Facts that follow from the ones beside them.
_FOLLOWING = ("kind", "requires", "resolved", "copies", "architectures", "found_by", "build")
# Of what was asked for, what verdicts can rest on.
_ASKED = ("depth", "features", "budget_s", "jobs", "memory_mib", "fresh_cache")
_ABSENT = "not there"
_NOT_INSTALLED = "not known: not installed in "

Told = str | tuple[str, ...]


def changed(before: Facts, after: Facts) -> tuple[FactChange, ...]:
    """Facts that are not the same in both, by group and name: the same whichever of the two comes first."""
    old, new = dict(_told(before)), dict(_told(after))
    _fold(old, new)
    _fold(new, old)
    # An empty list stands for itself, and one of records for each of them: () says no more than that there is none.
    names = [name for name in {*old, *new} if _meant(old.get(name, ())) != _meant(new.get(name, ()))]
    names = [name for name in names if not name.startswith("gpus.gpus[") or (name in old and name in new)]
    names.sort(key=lambda name: (_GROUPS.index(name.partition(".")[0]), name))
    return tuple(change(name, old.get(name, _ABSENT), new.get(name, _ABSENT)) for name in names)


def _meant(value: Told) -> Told:
    """The same for a package that is in neither interpreter, whatever these are called."""
    return _NOT_INSTALLED if isinstance(value, str) and value.startswith(_NOT_INSTALLED) else value


def _fold(one: dict[str, Told], other: dict[str, Told]) -> None:
    """A package that is installed in the other alone is one difference: "not installed" and its version."""
    for name in [name for name in one if name not in other and name.startswith("packages.")]:
        below = [leaf for leaf in other if leaf.startswith(f"{name}.")]
        if below and not any(leaf in one for leaf in below):
            whole = other.get(f"{name}.version", f"{len(below)} facts")
            for leaf in below:
                del other[leaf]
            other[name] = whole


def asked(before: Report, after: Report) -> tuple[FactChange, ...]:
    """What was asked for otherwise, and what it was judged by."""
    pairs = [(f"request.{name}", getattr(before.request, name), getattr(after.request, name)) for name in _ASKED]
    pairs += [("doctor.knowledge", before.doctor.knowledge, after.doctor.knowledge)]
    return tuple(change(name, said(old), said(new)) for name, old, new in pairs if old != new)


def said(value: Any) -> Told:
    """A value in words; a list as its items."""
    if isinstance(value, Missing):
        return f"not known: {value.reason}"
    if isinstance(value, (list, tuple)):
        return tuple(str(one) for one in value)
    return str(value)


def change(name: str, before: Told, after: Told) -> FactChange:
    """The difference of two values; where one is a list and the other is not there, all of it is gone or new."""
    old, new = _items(before), _items(after)
    if old is None or new is None or (isinstance(before, str) and isinstance(after, str)):
        return FactChange(name=name, before=_line(before), after=_line(after))
    gone, came = Counter(old) - Counter(new), Counter(new) - Counter(old)
    if not gone and not came:  # in another order
        return FactChange(name=name, before=_line(before), after=_line(after))
    return FactChange(
        name=name,
        before=_length(before),
        after=_length(after),
        gone=tuple(sorted(gone.elements())),
        new=tuple(sorted(came.elements())),
    )


def leaves(name: str, kind: str, value: Any, untold: Container[str] = _UNTOLD) -> Iterator[tuple[str, Told]]:
    """Each fact below a name. kind: the name without the numbers of lists; untold: kinds that are left out."""
    if kind in untold:
        return
    if isinstance(value, dict) and value.get("kind") == "missing" and "reason" in value:
        yield name, f"not known: {value['reason']}"
    elif isinstance(value, dict):
        for key, one in value.items():
            if key not in _FOLLOWING or name == "flashinfer":
                yield from leaves(f"{name}.{key}", f"{kind}.{key}", one, untold)
    elif isinstance(value, (list, tuple)) and any(isinstance(one, dict) for one in value):
        for number, one in enumerate(value):
            known_by = one.get("path", one.get("uuid", number)) if isinstance(one, dict) else number
            yield from leaves(f"{name}[{known_by}]", kind, one, untold)
    else:
        yield name, said(value)


def _items(value: Told) -> tuple[str, ...] | None:
    if isinstance(value, str):
        return () if value == _ABSENT else None
    return value


def _line(value: Told) -> str:
    return value if isinstance(value, str) else ", ".join(value)


def _length(value: Told) -> str:
    return value if isinstance(value, str) else f"{len(value)} in the list"


def _told(facts: Facts) -> Iterator[tuple[str, Told]]:
    plain = msgspec.to_builtins(facts, order="deterministic")
    for group in _GROUPS:
        yield from leaves(group, group, plain[group])
    yield from _gpus(facts)


def _gpus(facts: Facts) -> Iterator[tuple[str, Told]]:
    """What the GPUs are, whatever their numbers: two machines have no GPU in common."""
    gpus = facts.gpus.gpus
    if isinstance(gpus, Missing):
        return
    yield "gpus.count", str(len(gpus))
    yield "gpus.uuid", tuple(gpu.uuid for gpu in gpus)
    for name in ("name", "sm", "memory_total_mib", "mig"):
        values = {said(getattr(gpu, name)) for gpu in gpus}
        yield f"gpus.{name}", ", ".join(sorted(map(_line, values)))
