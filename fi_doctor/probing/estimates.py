"""Rough seconds and MiB that modules take to build: for the order of builds, for what a budget leaves out and carries.

Measured on one Hopper machine with 16 to 64 vCPU, FlashInfer 0.5.3 and 0.7.2.post1, a cold cache: orders of magnitude,
not benchmarks. With a core for each object a module takes as long as its slowest object; the others take less. What
modules took on this machine before, by ninja's log, is preferred, and makes the rest slower or faster.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from fi_doctor.model import Data, Facts, Missing, ProbeSpec
from fi_doctor.probing.headline import PLACES

# Module -> seconds with more cores than objects, which is what the slowest object takes.
BUILD_S = {
    "fused_moe": 350,  # with all cores at work; 145 of 242 objects took 18 minutes of 64 jobs
    "fused_moe_90.": 150,  # a part of it (inside/units.py) is named after it, with a dot
    "trtllm_comm": 300,
    "batch_prefill": 60,
    "batch_decode": 60,
    "sampling": 160,
    "rope": 80,
    "norm": 70,
    "gemm": 36,
    "page": 35,
    "batch_mla": 35,
    "silu_and_mul": 24,
    "xqa": 10,
}
FA3_S = 145  # attention written for SM90
UNKNOWN_S = 60
PART_S = 450  # what all objects of a part take together: most of them are small
IMPORT_S = 7
RUN_S = 5
SHARE = 0.7  # of the slowest object's time that an object takes on average
_MOST_RATIO = 20.0  # between this machine and the one that was measured; more is an error of some kind
LEAST = 0.5  # of an estimate: what does not even fit so is not begun

_OBJECTS = {
    "fused_moe": 250,
    "fused_moe_90.": 17,
    "batch_prefill": 10,
    "batch_decode": 3,
    "trtllm_comm": 3,
    "sampling": 3,
    "rope": 2,
    "norm": 2,
    "page": 2,
}
# Module -> the most that one compile command takes, in MiB. Measured with nvcc 13.0 for sm_90a, one command at a time,
# the larger of FlashInfer 0.5.3 and 0.7.2.post1, by the objects that seemed the largest, and rounded up.
PEAK_MIB = {
    "fused_moe": 4600,  # an instance for weights of four bits; fp8_blockscale_gemm.cu takes 3900
    "fused_moe_90.": 2000,
    "fused_moe_90.mxfp4_bf16": 4600,
    "fused_moe_90.fp8_block": 3900,
    "trtllm_comm": 1700,
    "batch_prefill": 500,
    "batch_decode": 450,
    "sampling": 1000,
    "norm": 950,
    "page": 500,
    "silu_and_mul": 400,
}
FA3_MIB = 3600
UNKNOWN_MIB = 3072
_FA3 = re.compile(r"_prefill_.*(?:_sm90$|_fa3(?:_|$))")


class Taken(Data, frozen=True):
    """What the objects of a module took on this machine, as far as ninja's log knows."""

    objects: int = 0
    slowest_s: float = 0.0
    total_s: float = 0.0


class Here(NamedTuple):
    """This machine."""

    taken: Mapping[str, Taken] = {}
    ratio: float = 1.0  # how much longer than estimated modules took, by their slowest objects


ANYWHERE = Here()


class Build(NamedTuple):
    """A module that has something to compile."""

    objects: int
    rank: int  # by headline.ranks, the lowest first


def learn(taken: Mapping[str, Taken]) -> Here:
    """This machine, by what modules took on it; the median decides, since one object may have waited for others."""
    usable = {name: one for name, one in taken.items() if one.objects > 0 and one.slowest_s > 0 and one.total_s > 0}
    ratios = [one.slowest_s / object_seconds(name) for name, one in usable.items() if _is_known(name)]
    return Here(usable, min(max(statistics.median(ratios), 1 / _MOST_RATIO), _MOST_RATIO) if ratios else 1.0)


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
    usual = known.total_s / known.objects if known else SHARE * slowest
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


def wall_seconds(modules: Mapping[str, int], jobs: int, here: Here = ANYWHERE) -> float:
    """For modules (name -> objects) that share so many jobs."""
    slowest = max((object_seconds(name, here) for name, objects in modules.items() if objects), default=0.0)
    total = sum(core_seconds(name, objects, here) for name, objects in modules.items() if objects)
    return max(slowest, total / max(1, jobs))


def batches(
    builds: Mapping[str, Build], *, jobs: int, seconds: float, here: Here = ANYWHERE
) -> tuple[list[list[str]], dict[str, str]]:
    """The order to build in, and why what surely does not fit into so many seconds is not begun.

    All at once and the longest first when everything fits. Else what decides rows comes first: the longest first where
    at least that fits, or else by rank, the cheapest first, in batches that keep all jobs at work, so that something is
    finished instead of everything half done. The rest follows in that manner.
    """
    early = {name for name, build in builds.items() if build.rank < PLACES}
    for chosen in (set(builds), early):
        if chosen and wall_seconds({name: builds[name].objects for name in chosen}, jobs, here) <= seconds:
            first = sorted(chosen, key=lambda name: (-object_seconds(name, here), -builds[name].objects, name))
            break
    else:
        first = []
    alone_s = {name: wall_seconds({name: build.objects}, jobs, here) for name, build in builds.items()}
    rest = builds.keys() - set(first)
    ordered: list[list[str]] = [first, []]
    for name in sorted(
        rest, key=lambda name: (builds[name].rank, core_seconds(name, builds[name].objects, here), name)
    ):
        if LEAST * alone_s[name] > seconds:
            continue
        if sum(builds[one].objects for one in ordered[-1]) >= 2 * jobs:
            ordered.append([])
        ordered[-1].append(name)
    begun = {name for batch in ordered for name in batch}
    words = {
        name: f"estimated {needed_s:.0f} s with {jobs} jobs, {seconds:.0f} s were left for building"
        for name, needed_s in alone_s.items()
        if name not in begun
    }
    return [batch for batch in ordered if batch], words


def build_seconds(module: str, facts: Facts, *, fresh: bool) -> int:
    """For one module on this machine by itself; 0 when it need not be built."""
    if not module:
        return 0
    flashinfer = facts.flashinfer
    if not isinstance(flashinfer, Missing):
        there = flashinfer.jit_cache_modules if fresh else (*flashinfer.cached_modules, *flashinfer.jit_cache_modules)
        if module in there:
            return 0
    objects = _OBJECTS.get(_prefix(module, _OBJECTS), 1)
    return round(wall_seconds({module: objects}, facts.system.cpus))


def probe_seconds(spec: ProbeSpec, facts: Facts, *, fresh: bool) -> int:
    """For one probe in a process of its own."""
    module = f"{spec.module}.{spec.subset.units}" if spec.subset is not None else spec.module
    return IMPORT_S + RUN_S + build_seconds(module, facts, fresh=fresh)


def _is_known(module: str) -> bool:
    return bool(_FA3.search(module) or _prefix(module, BUILD_S))


def _prefix(module: str, known: Mapping[str, int]) -> str:
    """The longest known name that the module's name begins with; "" for none."""
    return max((prefix for prefix in known if module.startswith(prefix)), key=len, default="")
