"""What differs from the lock and which rows that touches: sets, and nothing is read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fi_doctor.locking.model import NOT_KNOWN, UNREADABLE, Key, Lock, rests_on

# What tells most comes first; one file of many that a new version brings tells least.
_ORDER = (
    "gpu",
    "driver",
    "python",
    "package",
    "startup",
    "loads",
    "nvcc",
    "host-compiler",
    "library",
    "variable",
    "knowledge",
    "probe",
)
_MOST_WORDS = 3  # inputs that a reason names


def names(lock: Lock) -> frozenset[str]:
    """Every input that some row rests on; what else the lock holds does not matter."""
    return frozenset().union(*(rests_on(row, lock) for row in lock.rows))


def changed(lock: Lock, now: Mapping[str, str]) -> frozenset[str]:
    """The inputs that are not as they were locked.

    One that the lock has no value for was never the same, nor one that cannot be read or that is not known here.
    """
    return frozenset(name for name in names(lock) if not _is_the_same(lock.inputs.get(name), now.get(name)))


def touched(lock: Lock, names: Iterable[str]) -> dict[Key, tuple[str, ...]]:
    """The rows that rest on one of these inputs, each with those that it rests on, what tells most first."""
    different = frozenset(names)
    found = {row.key: different & rests_on(row, lock) for row in lock.rows}
    return {key: tuple(sorted(inputs, key=_place)) for key, inputs in found.items() if inputs}


def reasons(lock: Lock, now: Mapping[str, str], when: str) -> dict[Key, str]:
    """Why rows hold no more: what is not as it was locked, and when that came about."""
    rows = touched(lock, changed(lock, now))
    return {key: f"{when}: {words(inputs, lock, now)}" for key, inputs in rows.items()}


def words(inputs: Iterable[str], lock: Lock, now: Mapping[str, str]) -> str:
    """What changed, in one line: "driver 580.1 -> 590.2, package:flashinfer-python:norm/__init__.py and 3 more"."""
    ordered = sorted(inputs, key=_place)
    said = [_word(name, lock.inputs.get(name, "not locked"), now.get(name, "")) for name in ordered[:_MOST_WORDS]]
    rest = len(ordered) - len(said)
    return ", ".join(said) + (f" and {rest} more" if rest else "")


def _is_the_same(before: str | None, after: str | None) -> bool:
    return before is not None and before == after and before != NOT_KNOWN and not before.startswith(UNREADABLE)


def _word(name: str, before: str, after: str) -> str:
    """A version is told, of a file only that it differs."""
    if before.startswith("sha256:") and after.startswith("sha256:"):
        return _shown(name)
    return f"{_shown(name)} {_value(before)} -> {_value(after)}"


def _shown(name: str) -> str:
    """`loads:torch:numpy` in words; other names are words."""
    kind, _, rest = name.partition(":")
    package, _, loaded = rest.partition(":")
    return f"{loaded} as {package} loads it" if kind == "loads" and loaded else name


def _value(value: str) -> str:
    return "(another)" if value.startswith("sha256:") else value.removeprefix("=") or "empty"


def _place(name: str) -> tuple[bool, int, str]:
    """Versions before files, kinds in their order."""
    kind, _, rest = name.partition(":")
    return ":" in rest, _ORDER.index(kind) if kind in _ORDER else len(_ORDER), name
