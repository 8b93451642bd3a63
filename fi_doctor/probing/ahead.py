"""Building what the probes will need ahead of them, all in one go.

A probe need not wait for all of it. Whatever goes wrong here decides nothing: what is not built is built by the probe
that needs it, as if there were no such step. Only what this step had no time for is not tried again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from fi_doctor.model import Builds, Depth, Missing, PlannedProbe, ProbeSpec
from fi_doctor.probing import prebuild
from fi_doctor.probing.bench import Bench
from fi_doctor.probing.board import kind_of
from fi_doctor.probing.ledger import joined

AT_ONCE = 6  # probes afterwards: each has a CUDA context of about 0.5 GiB, and a check stays below 4 GiB
LEAST_S = 20.0  # what is kept for running
PROBE_S = 5.0  # the same, for each probe: most of them run while others are being built
LOAD_S = 5.0  # the same where nothing runs
SHARE = 0.25  # of the budget, at most


def build_all(tried: Sequence[PlannedProbe], bench: Bench, jobs: int) -> Builds | None:
    """Build what these probes need, with so many jobs, in the time that the runs leave over; the board hears of it.

    None where there was no such step: the probes build for themselves.

    GPUs of another kind have modules of their own: one process for each kind, one after the other.
    """
    kinds = by_kind(tried)
    kept_s = kept_for_runs_s(tried, bench.request.budget_s, jobs)
    done: Builds | None = None
    if all(is_there(probe.spec, bench) for members in kinds.values() for probe in members):
        return done
    for members in kinds.values():
        deadline = bench.deadline - kept_s
        if deadline - time.monotonic() > 0:
            done = joined(done, _build_kind(members, bench, jobs, deadline))
    if done is not None:
        with bench.talk:
            bench.watch.prebuilt(done)
    return done


def kept_for_runs_s(tried: Sequence[PlannedProbe], budget_s: float, jobs: int) -> float:
    """What is kept for running of the budget; loading what was compiled takes less."""
    if all(probe.depth is not Depth.RUN for probe in tried if probe.builds_module):
        return min(LOAD_S, SHARE * budget_s)
    return min(max(LEAST_S, PROBE_S * len(tried) / max(1, min(AT_ONCE, jobs))), SHARE * budget_s)


def by_kind(tried: Sequence[PlannedProbe]) -> dict[int | None, list[PlannedProbe]]:
    """Those that build a module, by the kind of GPU that they build for."""
    kinds: dict[int | None, list[PlannedProbe]] = {}
    for probe in tried:
        if probe.builds_module:
            kinds.setdefault(kind_of(probe), []).append(probe)
    return kinds


def is_there(spec: ProbeSpec, bench: Bench) -> bool:
    """Whether a library of exactly this name is in the cache that is used, so that asking would be a waste of time.

    By ninja's rules it may be stale all the same; its probe then builds it, unless a part would do. Attention's names
    go on with dtypes and sizes, and say nothing here.
    """
    module, flashinfer = spec.module, bench.facts.flashinfer
    if isinstance(flashinfer, Missing):
        return True
    if spec.subset is not None and module not in flashinfer.jit_cache_modules:
        return False
    return module in flashinfer.jit_cache_modules or (bench.scratch is None and module in flashinfer.cached_modules)


def _build_kind(members: Sequence[PlannedProbe], bench: Bench, jobs: int, deadline: float) -> Builds | None:
    try:
        made = prebuild.attempt(members, bench, jobs, deadline)
    except OSError:  # no descriptors, no memory: the probes will say so
        return None
    return made.result() if made.modules is not None else None
