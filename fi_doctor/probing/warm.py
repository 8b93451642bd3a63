"""Filling FlashInfer's own cache with whole modules, where a server looks for them; or what there would be to do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from fi_doctor.errors import CannotTellError
from fi_doctor.model import (
    WARMING_SCHEMA,
    Builds,
    Facts,
    FlashInfer,
    Missing,
    Place,
    PlannedProbe,
    Request,
    Warming,
    WarmModule,
    Watch,
)
from fi_doctor.probing import ahead, estimates, memory, mirrored, prebuild, sizes, surroundings, template
from fi_doctor.probing.bench import Bench
from fi_doctor.probing.ledger import joined
from fi_doctor.probing.told import Told

_PLACES = {"jit-cache": Place.IN_JIT_CACHE, "cache": Place.UP_TO_DATE, "built": Place.BUILT}


def fill(  # noqa: PLR0913 - which modules, where, how, and who hears of it
    planned: Sequence[PlannedProbe],
    *,
    facts: Facts,
    request: Request,
    watch: Watch,
    environ: Mapping[str, str],
    is_dry: bool = False,
    command: str = "",
) -> Warming:
    """Compile the modules of these probes' variants that are stale, as wholes, within request.budget_s.

    Ninja decides what is stale, so that what a killed run has finished is not compiled again. is_dry: nothing is
    compiled, and nothing is written in the cache. command: what does the rest, in the answer where there is a rest.
    Raises CannotTellError where nobody comes to know the modules.
    """
    begun = time.monotonic()
    folder = _cache(facts)
    before_kib = 0 if is_dry else _used_kib(folder)
    tried = [probe for probe in planned if probe.builds_module]
    attempts = [
        *_attempts(tried, facts=facts, request=request, watch=watch, environ=environ, cache=folder if is_dry else None)
    ]
    builds: Builds | None = None
    for made in attempts:
        builds = joined(builds, made.result())
    builds = builds or Builds()
    watch.prebuilt(builds)
    jobs = memory.usable_jobs(facts, request)
    modules = _modules(attempts, builds, tried, jobs, is_dry=is_dry)
    asked = {user for made in attempts for told in (made.modules or {}).values() for user in told.users}
    done = Warming(
        schema=WARMING_SCHEMA,
        dry_run=is_dry,
        folder=str(folder),
        jobs=builds.jobs or jobs,
        memory_mib=memory.budget_mib(facts, request),
        modules=modules,
        skipped={probe.spec.id: probe.skip for probe in planned if probe.skip and not probe.is_tried},
        without_module=tuple(
            f"{probe.spec.id} {name}".strip()
            for probe in tried
            for name in probe.variants
            if (probe.spec.id, name) not in asked
        ),
        seconds=round(time.monotonic() - begun, 1),
        build_seconds=builds.build_seconds,
        cpu_seconds=builds.cpu_seconds,
        least_seconds=round(builds.least_seconds, 1),
        longest=builds.longest,
        peak_mib=builds.peak_mib,
        disk_mib=_planned_mib(modules) if is_dry else round((_used_kib(folder) - before_kib) / 1024, 1),
        command=command if any(not one.place.is_there for one in modules) else "",
        code=int(not is_dry and any(not one.place.is_there for one in modules)),
    )
    return replace(done, estimated_seconds=_makespan_s(attempts, done)) if is_dry else done


def _attempts(  # noqa: PLR0913 - as fill
    tried: Sequence[PlannedProbe],
    *,
    facts: Facts,
    request: Request,
    watch: Watch,
    environ: Mapping[str, str],
    cache: Path | None,
) -> Iterator[prebuild.Attempt]:
    """One for each kind of GPU. cache: it is only looked at."""
    scratched = replace(request, fresh_cache=cache is not None)
    jobs = memory.usable_jobs(facts, request)
    with (
        surroundings.scratch(facts, scratched) as base,
        surroundings.own_folder(environ) as variables,
        template.started(tried, facts, variables, base) as forker,
    ):
        if cache is not None and base is not None:
            mirrored.seed(cache, base)
        bench = Bench(
            facts=facts,
            request=request,
            watch=watch,
            environ=variables,
            scratch=base,
            deadline=time.monotonic() + request.budget_s,
            stop=threading.Event(),
            talk=threading.Lock(),
            told_paths=threading.Event(),
            template=forker,
        )
        for members in ahead.by_kind(tried).values():
            made = prebuild.attempt(members, bench, jobs, bench.deadline, is_whole=True, cache=cache)
            if made.modules is None:
                raise _untold(made)
            yield made


def _modules(
    attempts: Sequence[prebuild.Attempt], builds: Builds, tried: Sequence[PlannedProbe], jobs: int, *, is_dry: bool
) -> tuple[WarmModule, ...]:
    features = {probe.spec.id: probe.spec.feature for probe in tried}
    found = {
        name: _module(name, told, builds, made.here, jobs, is_dry=is_dry)
        for made in attempts
        for name, told in (made.modules or {}).items()
    }
    users = {name: told.users for made in attempts for name, told in (made.modules or {}).items()}
    return tuple(
        replace(one, features=tuple(sorted({features[probe] for probe, _ in users[name] if probe in features})))
        for name, one in sorted(found.items())
    )


def _module(  # noqa: PLR0913 - all that is known of it
    name: str, told: Told, builds: Builds, here: estimates.Here, jobs: int, *, is_dry: bool
) -> WarmModule:
    words = builds.modules.get(name, "")
    state, _, why = words.partition(": ")
    place = _PLACES.get(state) or Place(state)
    if is_dry and not told.state:
        place, why = Place.TO_COMPILE, ""
    cost = builds.costs.get(name)
    is_stale = place not in (Place.UP_TO_DATE, Place.IN_JIT_CACHE)
    estimated_s = estimates.wall_seconds({name: max(1, told.objects)}, jobs, here) if is_stale else 0.0
    return WarmModule(
        name=name,
        place=place,
        why=why.removeprefix("left to its probe: "),
        objects=told.objects,
        seconds=cost.seconds if cost else 0.0,
        cpu_seconds=cost.cpu_seconds if cost else 0.0,
        estimated_seconds=round(estimated_s, 1),
        peak_job_mib=cost.peak_job_mib if cost else estimates.peak_mib(name) if is_stale else 0,
        disk_mib=sizes.disk_mib(name) if is_stale else Missing(reason="nothing is to be compiled"),
    )


def _makespan_s(attempts: Sequence[prebuild.Attempt], done: Warming) -> float:
    """What compiling all of it takes with the jobs that memory carries: the heaviest module counts, as in a build."""
    stale = {one.name: max(1, one.objects) for one in done.modules if not one.place.is_there}
    heaviest = max((one.peak_job_mib for one in done.modules if one.name in stale), default=0)
    carried = done.memory_mib // heaviest if done.memory_mib and heaviest else done.jobs
    here = attempts[0].here if attempts else estimates.ANYWHERE
    return round(estimates.wall_seconds(stale, max(1, min(done.jobs, carried)), here), 1)


def _planned_mib(modules: Sequence[WarmModule]) -> float | Missing:
    known = [one.disk_mib for one in modules if not one.place.is_there]
    sizes_mib = [size for size in known if not isinstance(size, Missing)]
    if len(sizes_mib) < len(known):
        return Missing(reason=f"{len(known) - len(sizes_mib)} of {len(known)} modules were never measured")
    return round(sum(sizes_mib), 1)


def _cache(facts: Facts) -> Path:
    if isinstance(facts.flashinfer, FlashInfer) and isinstance(facts.flashinfer.cache_dir, str):
        return Path(facts.flashinfer.cache_dir)
    raise CannotTellError("FlashInfer's cache is not known", todo="fi-doctor check --depth static")


def _used_kib(folder: Path) -> int:
    """What all files below take on the disk. Files of compilers come and go meanwhile."""
    blocks = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            blocks += path.lstat().st_blocks
    return blocks // 2


def _untold(made: prebuild.Attempt) -> CannotTellError:
    """What the process printed last says most."""
    lines = [line.strip() for line in made.output.splitlines() if line.strip()]
    asking = f" while it asked {made.asking}" if made.asking else ""
    return CannotTellError(
        f"the process that asks FlashInfer for modules ended{asking}",
        why=lines[-1][:400] if lines else "it said nothing",
        todo="fi-doctor check",
    )
