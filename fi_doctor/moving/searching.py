"""The smallest change of a move that keeps what is required: other releases, toolkits and drivers, nearest first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace
from packaging.version import Version

from fi_doctor import upgraded
from fi_doctor.conditions.compilers import TOOLKITS
from fi_doctor.conditions.drivers import BRANCHES
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.knowledge import pins as pinned
from fi_doctor.model import Facts, Holds, Report, Severity
from fi_doctor.model.numbers import whole
from fi_doctor.model.plans import Alternative, Kept, Pin, Search
from fi_doctor.model.targets import Target
from fi_doctor.moving import ends, judging, pins
from fi_doctor.moving.keeping import kept
from fi_doctor.moving.standing import Stand, stands

MOST = 250  # combinations, of about 16 ms each
_SHOWN = 4
_KEYS = {"vllm": "vllm", "flashinfer-python": "flashinfer", "nvcc": "cuda", "driver": "driver"}


class Asked(NamedTuple):
    """The move that was asked for, and what it has to keep."""

    begin: Facts
    report: Report  # of where it begins
    end: ends.End
    before: dict[str, Stand]
    after: dict[str, Stand]
    required: tuple[str, ...]
    is_here: bool


class _Candidate(NamedTuple):
    target: Target
    changes: tuple[Pin, ...]
    distance: int  # how many releases further than the nearest, of all changes together
    values: tuple[tuple[str, str], ...]  # what is changed, and to what

    def __hash__(self) -> int:
        return hash(self.values)

    @property
    def kind(self) -> tuple[str, ...]:
        """What it changes."""
        return tuple(pin.what for pin in self.changes)


def search(asked: Asked, lost: Sequence[Kept], known: judging.Known) -> Search:
    """All single changes, then the pairs of which either mends what the other leaves; then the GPU of before.

    Of each kind of change the nearest, and one further off that brings fewer problems. Releases of which nothing is
    shipped are counted, and not tried.
    """
    every = {name: of for name in _KEYS if (of := _values(name, asked))}
    values = {name: [one for one in of if _is_told(name, one)] for name, of in every.items()}
    usual = _problems(judging.glance(asked.begin, known))
    tried, bound = 0, ""
    memo: ends.Memo = {}
    left: dict[_Candidate, frozenset[tuple[str, str]]] = {}
    nearest: dict[tuple[str, ...], Alternative] = {}
    found: dict[tuple[str, ...], Alternative] = {}  # of each kind the one with the fewest problems
    for candidate in itertools.chain(_singles(asked, values), _pairs(asked, left)):
        if found and len(candidate.changes) > min(map(len, found)):
            break
        if candidate.kind in found and not found[candidate.kind].problems:
            continue
        if tried == MOST:
            bound = f"it stopped after {MOST}"
            break
        tried += 1
        end = ends.end(asked.begin, candidate.target, is_here=asked.is_here, memo=memo)
        left[candidate] = _left(end, asked, known)
        if not left[candidate]:
            one = _alternative(candidate, end, asked, known, usual)
            nearest.setdefault(candidate.kind, one)
            if candidate.kind not in found or len(one.problems) < len(found[candidate.kind].problems):
                found[candidate.kind] = one
    every_one = {one.words: one for one in (*nearest.values(), *found.values())}
    best = sorted(every_one.values(), key=lambda one: (len(one.overrides), len(one.problems), one.distance, one.words))
    if not found and asked.end.target.sm and (stays := _on_gpu_of_before(asked, known, usual)) is not None:
        tried, best = tried + 1, [stays]
    never = set.intersection(*({feature for feature, _ in of} for of in left.values())) if left else set()
    return Search(
        tried=tried,
        untold=sum(len(of) for of in every.values()) - sum(len(of) for of in values.values()),
        dimensions=tuple(f"{name} ({len(of)})" for name, of in values.items()),
        bound=bound,
        found=tuple(best[:_SHOWN]),
        why_none=()
        if best
        else tuple(f"{one.feature}: {one.why}" for one in lost if not never or one.feature in never),
    )


def _left(end: ends.End, asked: Asked, known: judging.Known) -> frozenset[tuple[str, str]]:
    """What still stands against required rows there: the row, and each of the causes."""
    there = stands(judging.glance(end.facts, known, asked.required), known.kb, before=asked.report)
    of_required = kept(asked.required, asked.before, there, end.facts, known.kb)
    return frozenset(
        (one.feature, cause)
        for one in of_required
        if one.holds is not Holds.YES
        for cause in (there[one.feature].causes if one.feature in there else ()) or {"not called, or not known"}
    )


def _on_gpu_of_before(asked: Asked, known: judging.Known, usual: Mapping[str, str]) -> Alternative | None:
    """The move without its GPU, where that keeps what is required."""
    facts = asked.end.facts
    target = replace(asked.end.target, sm=0, name="", gpus=1)
    change = _change("GPU", pins.gpus_told(facts), pins.gpus_told(asked.begin))
    end = ends.end(asked.begin, target, is_here=asked.is_here)
    if _left(end, asked, known):
        return None
    return _alternative(_Candidate(target, (change,), 0, ()), end, asked, known, usual)


def _is_told(name: str, version: str) -> bool:
    """Whether the FlashInfer that a value brings is in the shipped data."""
    if name == pins.VLLM:
        lines = pinned.load()[name][version]
        version = next((pinned.exact(line) or "" for line in lines if line.startswith(pins.FLASHINFER)), "")
    elif name != pins.FLASHINFER:
        return True
    return not upgraded.unshipped({pins.FLASHINFER: version}) if version else False


def _problems(judged: judging.Judged) -> dict[str, str]:
    """What counts of what is found, by id."""
    return {one.id: f"{one.id}: {one.title}" for one in judged.findings if one.severity is not Severity.INFO}


def _values(name: str, asked: Asked) -> list[str]:
    """The other values of one dimension, the nearest first; none where it plays no part."""
    facts = asked.end.facts
    if name in ("vllm", "flashinfer-python"):
        now, known = pins.installed(name, facts), list(pinned.load()[name])
        return _nearest(now, known) if parse_version(now) is not None else []
    if name == "nvcc":
        now = pins.nvcc_of(facts)
        nearest = _nearest(now, list(TOOLKITS))
        # What an older toolkit does a newer one does too, as a rule.
        return sorted(nearest, key=lambda one: Version(one) < (parse_version(now) or Version("0")))
    branch = whole(pins.driver_of(facts).partition(".")[0])
    return [one for one in BRANCHES if branch is not None and int(one) > branch]


def _nearest(now: str, known: list[str]) -> list[str]:
    if parse_version(now) is None:
        return list(reversed(known))
    place = sum(Version(one) < Version(now) for one in known)
    others = [one for one in known if one != now]
    # Of two that are as near the newer one comes first.
    return sorted(others, key=lambda one: (abs(known.index(one) - place), known.index(one) < place))


def _singles(asked: Asked, values: Mapping[str, list[str]]) -> Iterator[_Candidate]:
    """Every single change, the nearest first."""
    places = [(place, name, value) for name, of in values.items() for place, value in enumerate(of)]
    for place, name, value in sorted(places, key=lambda one: one[0]):
        yield _candidate(asked, {name: value}, place)


def _pairs(asked: Asked, left: Mapping[_Candidate, frozenset[tuple[str, str]]]) -> Iterator[_Candidate]:
    """Of the single changes that were tried those that leave nothing in common, the nearest first."""
    combined = [
        (one.distance + other.distance, {**dict(one.values), **dict(other.values)})
        for (one, after), (other, beside) in itertools.combinations([*left.items()], 2)
        # A vLLM that is moved brings the FlashInfer that it requires.
        if one.kind != other.kind and {*one.kind, *other.kind} != {pins.VLLM, pins.FLASHINFER} and not after & beside
    ]
    for distance, changed in sorted(combined, key=lambda one: one[0]):
        yield _candidate(asked, {name: changed[name] for name in _KEYS if name in changed}, distance)


def _candidate(asked: Asked, changed: dict[str, str], distance: int) -> _Candidate:
    target, facts = asked.end.target, asked.end.facts
    versions = {name: version for name, version in target.versions.items() if name not in changed}
    versions |= {name: version for name, version in changed.items() if name in ("vllm", "flashinfer-python")}
    now = {"nvcc": pins.nvcc_of(facts), "driver": pins.driver_of(facts)}
    moved = replace(
        target,
        versions=versions,
        cuda=changed.get("nvcc", target.cuda),
        driver=changed.get("driver", target.driver),
    )
    before = {name: now.get(name, pins.installed(name, facts)) for name in changed}
    changes = tuple(_change(name, before[name], to) for name, to in changed.items())
    return _Candidate(moved, changes, distance, tuple(changed.items()))


def _change(what: str, before: str, after: str) -> Pin:
    why = "it keeps what is required"
    return Pin(what=what, before=before, after=after, is_asked=False, why=why, source="the shipped data")


def _alternative(
    candidate: _Candidate, end: ends.End, asked: Asked, known: judging.Known, usual: Mapping[str, str]
) -> Alternative:
    judged = judging.glance(end.facts, known)
    there = stands(judged, known.kb, before=asked.report)
    costs = (
        name
        for name, one in asked.after.items()
        if not one.standing.is_against and name in there and there[name].standing.is_against
    )
    return Alternative(
        words=words_of(candidate.target),
        changes=candidate.changes,
        distance=candidate.distance,
        overrides=tuple(pin.overrides for pin in end.pins if pin.overrides),
        costs=tuple(sorted(costs)),
        problems=tuple(told for name, told in sorted(_problems(judged).items()) if name not in usual),
    )


def words_of(target: Target) -> str:
    """The target as --to takes it."""
    names = {"flashinfer-python": "flashinfer", "flashinfer-cubin": "cubin", "flashinfer-jit-cache": "jit-cache"}
    gpu = target.name.removeprefix("NVIDIA ").lower().replace(" ", "-") or (f"sm={target.sm}" if target.sm else "")
    parts = [gpu, f"gpus={target.gpus}" if target.sm and target.gpus > 1 else ""]
    parts += [f"{key}={value}" for key, value in (("driver", target.driver), ("cuda", target.cuda)) if value]
    parts += [f"{names.get(name, name)}={version}" for name, version in target.versions.items()]
    return ",".join(part for part in parts if part)
