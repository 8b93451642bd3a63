"""Running a plan: what nvcc compiles is built first, then probes run side by side, within one budget of time.

Without a prebuild, probes of one module run one after the other, since they would wait for the same build, and the
longest module starts first. Where FlashInfer's builds would spoil one another's log they go one at a time
(objects.build_lock).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from msgspec.structs import replace

from fi_doctor.model import (
    Builds,
    CellOutcome,
    Depth,
    Ending,
    Facts,
    Missing,
    Outcome,
    PlannedProbe,
    Request,
    Stage,
    Watch,
)
from fi_doctor.probing import estimates, objects, prebuild, record, surroundings, template
from fi_doctor.probing.attempt import Bench, leave_out, out_of_budget, try_probe

MOST_AT_ONCE = 8  # each imports torch: more processes cost more memory than they save time
# Probes on a GPU at a time: one was seen to take 0.5 GiB for its CUDA context and up to 0.6 GiB more (H200), and the
# whole check is to leave a GPU of 80 GiB with a server on it alone: 4 GiB.
GPU_SLOTS = 3
JOB_MIB = 2048  # what one nvcc on a CUTLASS source takes; most take less


def run_all(
    planned: Sequence[PlannedProbe], *, facts: Facts, request: Request, watch: Watch, environ: Mapping[str, str]
) -> tuple[tuple[Outcome, ...], Builds]:
    """An outcome for every planned probe, in the plan's order, and what was built before; who is not tried has one too.

    Takes at most request.budget_s: what does not fit is not run, and says so. On KeyboardInterrupt every child is
    killed first. The machine's own caches grow, unless request.fresh_cache is set or they belong to another user.
    """
    tried = [probe for probe in planned if probe.depth is not Depth.STATIC]
    outcomes = {id(probe): record.outcome(probe, {}) for probe in planned}
    built = prebuild.Prebuilt()
    if tried:
        foreign = surroundings.foreign_cache(facts)
        if foreign and not request.fresh_cache:
            watch.note(foreign)
        with (
            surroundings.scratch(facts, request) as base,
            surroundings.own_folder(environ) as variables,
            template.started(tried, facts, variables, base) as forker,
        ):
            bench = replace(_bench(facts, request, watch, variables, base), template=forker)
            # As they are before anything is built: a module that is compiled in this check was not cached.
            modules = {id(probe): objects.module_of(probe.spec.module, facts.flashinfer, base) for probe in tried}
            # Imports need neither a module nor a GPU: they run beside the builds.
            jobs = usable_jobs(facts, request)
            imports = [probe for probe in tried if jobs > 1 and not probe.spec.gpus and not probe.spec.has_build]
            rest = [probe for probe in tried if probe not in imports]
            with _beside(imports, bench) as imported:
                built = prebuild.build_all(rest, bench, jobs)
                ran = _run_built(rest, built, bench) if built.happened else _run_groups(_groups(rest, bench), bench)
                outcomes |= ran | imported()
            for probe in tried:
                if outcomes[id(probe)].cached and not modules[id(probe)].was_finished():
                    outcomes[id(probe)] = replace(outcomes[id(probe)], cached=False)
    return tuple(outcomes[id(probe)] for probe in planned), built.builds


def group(
    probes: Sequence[PlannedProbe], facts: Facts, *, fresh: bool, is_short: bool = False
) -> list[list[PlannedProbe]]:
    """What has to run one after the other, in the order to start: imports, then the longest build first.

    Where builds go one at a time, or the budget is short, the shortest goes first: more fits the budget.
    """
    sign = 1 if _one_build_at_a_time(facts) or is_short else -1
    groups: dict[str, list[PlannedProbe]] = {}
    for probe in probes:
        key = probe.spec.module or f"probe {probe.spec.id}"
        groups.setdefault(key, []).append(probe)

    def order(members: list[PlannedProbe]) -> tuple[bool, int, str]:
        first = members[0].spec
        seconds = estimates.build_seconds(first.module, facts, fresh=fresh)
        return bool(first.module) or first.gpus > 0, sign * seconds, first.id

    return sorted(groups.values(), key=order)


def usable_jobs(facts: Facts, request: Request) -> int:
    """How many compilers may run at once: as asked for, else by CPUs and free memory."""
    if request.jobs > 0:
        return request.jobs
    jobs = facts.system.cpus
    if not isinstance(facts.system.memory_available_mib, Missing):
        jobs = min(jobs, facts.system.memory_available_mib // JOB_MIB)
    return max(1, jobs)


def _one_build_at_a_time(facts: Facts) -> bool:
    return not isinstance(facts.flashinfer, Missing) and facts.flashinfer.shared_ninja_log


def _bench(facts: Facts, request: Request, watch: Watch, environ: Mapping[str, str], base: Path | None) -> Bench:
    return Bench(
        facts=facts,
        request=request,
        watch=watch,
        environ=environ,
        scratch=base,
        deadline=time.monotonic() + request.budget_s,
        stop=threading.Event(),
        talk=threading.Lock(),
        told_paths=threading.Event(),
        gpu_slots=threading.Semaphore(GPU_SLOTS),
    )


def _groups(tried: Sequence[PlannedProbe], bench: Bench) -> list[list[PlannedProbe]]:
    fresh = bench.request.fresh_cache
    longest_s = max(
        (estimates.build_seconds(probe.spec.module, bench.facts, fresh=fresh) for probe in tried), default=0
    )
    return group(tried, bench.facts, fresh=fresh, is_short=bench.request.budget_s < longest_s)


def _run_groups(groups: Sequence[Sequence[PlannedProbe]], bench: Bench) -> dict[int, Outcome]:
    """Probes that build for themselves."""
    jobs = usable_jobs(bench.facts, bench.request)
    workers = max(1, min(len(groups), jobs, MOST_AT_ONCE))
    share = _Share(jobs, 1 if _one_build_at_a_time(bench.facts) else workers, len(groups))
    return _run_pool(groups, bench, share, workers)


def _run_built(tried: Sequence[PlannedProbe], built: prebuild.Prebuilt, bench: Bench) -> dict[int, Outcome]:
    """Probes whose modules are built: all side by side, without the variants for whose modules there was no time."""
    late = {id(probe): _late(probe, built, bench) for probe in tried}
    reduced = [
        replace(probe, variants=tuple(name for name in probe.variants if name not in late[id(probe)]))
        for probe in tried
    ]
    ready = [probe for probe in reduced if probe.variants]
    jobs = usable_jobs(bench.facts, bench.request)
    ready.sort(key=lambda probe: -probe.spec.gpus)  # several ranks take the longest
    workers = max(1, min(len(ready), jobs, prebuild.AT_ONCE))
    share = _Share(jobs, max(1, min(workers, len(built.to_build))), len(ready))
    ran = _run_pool([[probe] for probe in ready], bench, share, workers) if ready else {}
    outcomes = {}
    for probe, rest in zip(tried, reduced, strict=True):
        outcomes[id(probe)] = _completed(probe, late[id(probe)], ran.get(id(rest)))
        if id(rest) not in ran:
            with bench.talk:
                bench.watch.ended(probe, outcomes[id(probe)])
    return outcomes


def _late(probe: PlannedProbe, built: prebuild.Prebuilt, bench: Bench) -> dict[str, CellOutcome]:
    """The variants of a probe for whose modules there was no time, each with these words."""
    why = out_of_budget(probe, bench, where="before its module was compiled")
    return {
        name: CellOutcome(variant=name, stage=Stage.NONE, ending=Ending.NOT_RUN, detail=why)
        for name in probe.variants
        if (probe.spec.id, name) in built.unfinished
    }


def _completed(probe: PlannedProbe, late: dict[str, CellOutcome], ran: Outcome | None) -> Outcome:
    """The outcome of all variants from that of those that were tried."""
    if ran is not None and not late:
        return ran
    tried = {cell.variant: cell for cell in ran.cells if cell.variant in probe.variants} if ran else {}
    whole = record.outcome(probe, {**tried, **late})
    if ran is None:
        return whole
    return replace(
        whole, seconds=ran.seconds, output=ran.output, reproduce=ran.reproduce, cached=ran.cached, started=ran.started
    )


@contextlib.contextmanager
def _beside(probes: Sequence[PlannedProbe], bench: Bench) -> Iterator[Callable[[], dict[int, Outcome]]]:
    """Run these probes while the block does something else; their outcomes, once they are asked for."""
    share = _Share(1, 1, len(probes))
    pool = ThreadPoolExecutor(max_workers=MOST_AT_ONCE, thread_name_prefix="import")
    futures = [pool.submit(_run_group, [probe], bench, share) for probe in probes]
    try:
        yield lambda: {key: outcome for future in futures for key, outcome in future.result().items()}
    except BaseException:
        bench.stop.set()  # they end at their next poll
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _run_pool(
    groups: Sequence[Sequence[PlannedProbe]], bench: Bench, share: _Share, workers: int
) -> dict[int, Outcome]:
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="probe")
    try:
        futures = [pool.submit(_run_group, members, bench, share) for members in groups]
        wait(futures, return_when=FIRST_EXCEPTION)
        return {key: outcome for future in futures if future.done() for key, outcome in future.result().items()}
    except BaseException:
        bench.stop.set()  # children are killed at their next poll; nothing else is left running
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _run_group(members: Sequence[PlannedProbe], bench: Bench, share: _Share) -> dict[int, Outcome]:
    outcomes = {}
    for probe in members:
        with bench.gpu_slots if probe.gpu_uuids else contextlib.nullcontext():
            outcomes[id(probe)] = _run_one(probe, bench, share)
    share.give_back()
    return outcomes


def _run_one(probe: PlannedProbe, bench: Bench, share: _Share) -> Outcome:
    if time.monotonic() < bench.deadline:
        return try_probe(probe, bench, share.of_one())
    outcome = leave_out(probe, bench)
    with bench.talk:
        bench.watch.ended(probe, outcome)
    return outcome


class _Share:
    """How many of the compile jobs a group may use: the fewer groups are left, the more each gets."""

    def __init__(self, jobs: int, builders: int, groups: int) -> None:
        self._jobs = jobs
        self._builders = builders  # groups that build at the same time, at most
        self._left = groups
        self._lock = threading.Lock()

    def of_one(self) -> int:
        with self._lock:
            return max(1, self._jobs // max(1, min(self._builders, self._left)))

    def give_back(self) -> None:
        with self._lock:
            self._left -= 1
