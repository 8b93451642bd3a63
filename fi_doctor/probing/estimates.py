"""Rough seconds and MiB that modules take to build: for the order of builds, for what a budget leaves out and carries.

By what was measured elsewhere (measured.py). What modules took on this machine before, by ninja's log, is preferred,
and makes the rest slower or faster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fi_doctor.model import Data, Facts, Missing, ProbeSpec
from fi_doctor.probing.headline import PLACES
from fi_doctor.probing.measured import (
    BUILD_S,
    FA3_MIB,
    FA3_S,
    FA3_SHARE,
    OBJECTS,
    PART_S,
    PEAK_MIB,
    SHARE,
    SHARES,
    UNKNOWN_MIB,
    UNKNOWN_S,
)

IMPORT_S = 7
RUN_S = 5
_MOST_RATIO = 20.0  # between this machine and the one that was measured; more is an error of some kind
LEAST = 0.5  # of an estimate: what does not even fit so is not begun
NEARLY = 1.25  # of the time that is left: estimates are no better than that
LITTLE = 0.015  # of all that is to be compiled

_FA3 = re.compile(r"_prefill_.*(?:_sm90(?:\.|$)|_fa3(?:_|\.|$))")  # or a part of it, named after it


class Taken(Data, frozen=True):
    """What the objects of a module took on this machine, as far as ninja's log knows."""

    objects: int = 0
    slowest_s: float = 0.0
    total_s: float = 0.0


class Here(NamedTuple):
    """This machine."""

    taken: Mapping[str, Taken] = {}
    ratio: float = 1.0  # how much longer than estimated modules took, by their slowest objects
    cpus: int = 0  # that compilers may use; 0: any number
    memory_mib: int = 0  # for all compilers together; 0: any amount


ANYWHERE = Here()


class Build(NamedTuple):
    """A module that has something to compile."""

    objects: int
    rank: int  # by headline.ranks, the lowest first


def learn(taken: Mapping[str, Taken], here: Here = ANYWHERE) -> Here:
    """This machine, by what modules took on it; the median decides, since one object may have waited for others.

    Parts of modules tell of themselves only: a run that looks at no parts knows nothing of them, and is to estimate the
    same.
    """
    usable = {name: one for name, one in taken.items() if one.objects > 0 and one.slowest_s > 0 and one.total_s > 0}
    ratios = [
        one.slowest_s / object_seconds(name) for name, one in usable.items() if _is_known(name) and "." not in name
    ]
    import statistics  # noqa: PLC0415 - it imports fractions, decimal and random

    ratio = min(max(statistics.median(ratios), 1 / _MOST_RATIO), _MOST_RATIO) if ratios else 1.0
    return here._replace(taken=usable, ratio=ratio)


def object_seconds(module: str, here: Here = ANYWHERE) -> float:
    """What the slowest object of a module takes."""
    if module in here.taken:
        return here.taken[module].slowest_s
    if _FA3.search(module):
        return FA3_S * here.ratio
    prefix = _prefix(module, BUILD_S)
    return (BUILD_S[prefix] if prefix else UNKNOWN_S) * here.ratio


def core_seconds(module: str, objects: int, here: Here = ANYWHERE) -> float:
    """What all of its objects take together, on one core."""
    slowest = object_seconds(module, here)
    known = here.taken.get(module)
    if known is None and module.startswith("fused_moe_90."):
        return min(PART_S * here.ratio, slowest * objects)
    share = FA3_SHARE if _FA3.search(module) else SHARES.get(_prefix(module, SHARES), SHARE)
    usual = known.total_s / known.objects if known else share * slowest
    return slowest + usual * max(0, objects - 1)


def peak_mib(module: str) -> int:
    """What one compile command of a module takes at most."""
    if _FA3.search(module):
        return FA3_MIB
    prefix = _prefix(module, PEAK_MIB)
    return PEAK_MIB[prefix] if prefix else UNKNOWN_MIB


def most_mib(kind: str) -> int:
    """The same of any module whose name begins so: of prefill's some are for SM90, which the rest of a name tells."""
    return max(peak_mib(kind), FA3_MIB if kind.startswith("batch_prefill") else 0)


def objects(module: str) -> int:
    """How many objects a module has, roughly."""
    return OBJECTS.get(_prefix(module, OBJECTS), 1)


def wall_seconds(modules: Mapping[str, int], jobs: int, here: Here = ANYWHERE) -> float:
    """For modules (name -> objects) that share so many jobs."""
    slowest = max((object_seconds(name, here) for name, objects in modules.items() if objects), default=0.0)
    total = sum(core_seconds(name, objects, here) for name, objects in modules.items() if objects)
    return max(slowest, total / usable_jobs(modules, jobs, here))


def usable_jobs(modules: Iterable[str], jobs: int, here: Here) -> int:
    """Of so many jobs those that count while these are compiled: as there are CPUs, and as memory carries the heaviest.

    At least one.
    """
    real = min(jobs, here.cpus) if here.cpus > 0 else jobs
    return max(1, carried(real, here.memory_mib, max(map(peak_mib, modules), default=0)))


def carried(jobs: int, memory_mib: int, peak_mib: int) -> int:
    """Of so many jobs those that this much memory carries (0 for any amount), if one takes peak_mib: at least one."""
    return max(1, min(jobs, memory_mib // peak_mib)) if memory_mib > 0 and peak_mib > 0 else jobs


def order(
    builds: Mapping[str, Build], *, jobs: int, seconds: float, here: Here = ANYWHERE
) -> tuple[list[str], dict[str, str]]:
    """The order to build in, and why what surely does not fit into so many seconds is not begun.

    The longest first when everything surely fits. Else what decides rows comes first, and the rest after it in the same
    manner: the longest first where at least that nearly fits, or else by rank and the cheapest first, so that something
    is finished instead of everything half done.
    """
    alone_s = {name: wall_seconds({name: build.objects}, jobs, here) for name, build in builds.items()}
    chosen = [name for name in builds if LEAST * alone_s[name] <= seconds]
    early = [name for name in chosen if builds[name].rank < PLACES]
    halves = [early, [name for name in chosen if builds[name].rank >= PLACES]]
    if NEARLY * wall_seconds({name: builds[name].objects for name in chosen}, jobs, here) <= seconds:
        halves = [chosen]
    ordered: list[str] = []
    for names in halves:
        before_s = _busy_s(ordered, builds, jobs, here)
        if before_s + wall_seconds({name: builds[name].objects for name in names}, jobs, here) <= NEARLY * seconds:
            ordered += _longest_first(names, builds, here)
        else:
            ordered += sorted(names, key=lambda name: (builds[name].rank, _busy_s([name], builds, jobs, here), name))
    words = {
        name: f"estimated {in_words(needed_s)} with {usable_jobs([name], jobs, here)} jobs, "
        f"{in_words(seconds)} were left for building"
        for name, needed_s in alone_s.items()
        if name not in ordered
    }
    return ordered, words


def in_words(seconds: float) -> str:
    """A time that is estimated or left: "90 s", "369 min"."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{math.ceil(seconds / 60)} min"


def _longest_first(names: list[str], builds: Mapping[str, Build], here: Here) -> list[str]:
    """By the slowest object, so that the last jobs end at about the same time; what takes little goes into the middle.

    So it is not what is lost when the time is up a little too early: many rows need modules that take little.
    """
    taken_s = {name: core_seconds(name, builds[name].objects, here) for name in names}
    whole_s = sum(taken_s.values())
    little = [name for name in names if taken_s[name] < LITTLE * whole_s]
    ordered: list[str] = []
    before_s = 0.0

    def place(name: str) -> tuple[float, int, int, str]:
        return -object_seconds(name, here), builds[name].rank, -builds[name].objects, name

    for name in sorted(set(names) - set(little), key=place):
        if before_s >= whole_s / 2 and little:
            ordered += sorted(little, key=place)
            little = []
        ordered.append(name)
        before_s += taken_s[name]
    return ordered + sorted(little, key=place)


def _busy_s(names: list[str], builds: Mapping[str, Build], jobs: int, here: Here) -> float:
    """How long these keep all jobs at work."""
    return sum(core_seconds(name, builds[name].objects, here) for name in names) / usable_jobs(names, jobs, here)


def build_seconds(module: str, facts: Facts, *, fresh: bool) -> int:
    """For one module on this machine by itself; 0 when it need not be built."""
    if not module:
        return 0
    flashinfer = facts.flashinfer
    if not isinstance(flashinfer, Missing):
        there = flashinfer.jit_cache_modules if fresh else (*flashinfer.cached_modules, *flashinfer.jit_cache_modules)
        if module in there:
            return 0
    return round(wall_seconds({module: objects(module)}, facts.system.cpus))


def probe_seconds(spec: ProbeSpec, facts: Facts, *, fresh: bool) -> int:
    """For one probe in a process of its own."""
    subset = spec.subset
    module = f"{spec.module}.{subset.units}" if subset is not None and not subset.if_short else spec.module
    return IMPORT_S + RUN_S + build_seconds(module, facts, fresh=fresh)


def _is_known(module: str) -> bool:
    return bool(_FA3.search(module) or _prefix(module, BUILD_S))


def _prefix(module: str, known: Mapping[str, object]) -> str:
    """The longest known name that the module's name begins with; "" for none."""
    return max((prefix for prefix in known if module.startswith(prefix)), key=len, default="")
