"""What came of filling the cache, from what the processes that built said. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from fi_doctor.model import WARMING_SCHEMA, Builds, Missing, Place, PlannedProbe, Warming, WarmModule
from fi_doctor.probing import estimates, sizes
from fi_doctor.probing.told import Told

_PLACES = {"jit-cache": Place.IN_JIT_CACHE, "cache": Place.UP_TO_DATE, "built": Place.BUILT}


class Attempt(Protocol):
    """What is needed of prebuild.Attempt."""

    modules: dict[str, Told] | None
    raised: dict[tuple[str, str], str]
    here: estimates.Here


def told(  # noqa: PLR0913 - all that is known
    attempts: Sequence[Attempt],
    builds: Builds,
    planned: Sequence[PlannedProbe],
    here: estimates.Here,
    *,
    memory_mib: int,
    is_dry: bool,
) -> Warming:
    """All but the folder, what it has on the disk, the command and the time from the beginning to the end.

    memory_mib: as it was asked for, which may be more than there is here.
    """
    users = [(probe.spec.id, name) for probe in planned if probe.builds_module for name in probe.variants]
    asked = {user for made in attempts for one in (made.modules or {}).values() for user in one.users}
    raised = {user: why for made in attempts for user, why in made.raised.items()}
    silent = [user for user in users if user not in asked]
    modules = _modules(attempts, builds, planned, is_dry=is_dry)
    done = Warming(
        schema=WARMING_SCHEMA,
        dry_run=is_dry,
        folder="",
        jobs=_usable(modules, builds.jobs, here) if is_dry else builds.jobs,
        memory_mib=here.memory_mib if is_dry else memory_mib,
        modules=modules,
        skipped={
            probe.spec.id: probe.skip
            for probe in planned
            if probe.skip and not probe.is_tried and not probe.spec.gate_only  # which never has anything to compile
        },
        unasked={" ".join(user).strip(): raised[user] for user in silent if user in raised},
        without_module=tuple(" ".join(user).strip() for user in silent if user not in raised),
        build_seconds=builds.build_seconds,
        cpu_seconds=builds.cpu_seconds,
        least_seconds=round(builds.least_seconds, 1),
        longest=builds.longest,
        peak_mib=builds.peak_mib,
        disk_mib=_disk_mib(modules),
    )
    here = attempts[0].here if attempts else here
    return replace(done, code=_code(done), estimated_seconds=_makespan_s(done, here) if is_dry else 0.0)


def is_open(done: Warming) -> bool:
    """Whether there are modules that another run would compile."""
    return any(one.place in (Place.TO_COMPILE, Place.NOT_BEGUN, Place.CUT_OFF) for one in done.modules)


def is_all_in(done: Warming, places: Collection[Place]) -> bool:
    """Whether that is where all modules are; not where it is not known which ones there are."""
    return not done.unasked and all(one.place in places for one in done.modules)


def failed(done: Warming, planned: Sequence[PlannedProbe]) -> tuple[str, ...]:
    """The rows of which another run would compile no more: a module failed, or a build() raised."""
    features = {feature for one in done.modules if one.place is Place.FAILED for feature in one.features}
    raised = {name.partition(" ")[0] for name in done.unasked}
    return tuple(sorted(features | {probe.spec.feature for probe in planned if probe.spec.id in raised}))


def _code(done: Warming) -> int:
    """The exit code. What is to be compiled in a dry run is no failure, what is not known is one there too."""
    if done.unasked:
        return 1 if done.modules else 3
    return int(not done.dry_run and any(not one.place.is_there for one in done.modules))


def _modules(
    attempts: Sequence[Attempt], builds: Builds, planned: Sequence[PlannedProbe], *, is_dry: bool
) -> tuple[WarmModule, ...]:
    features = {probe.spec.id: probe.spec.feature for probe in planned}
    found: dict[str, WarmModule] = {}
    for made in attempts:
        for name, one in (made.modules or {}).items():
            module = _module(name, one, builds, made.here, is_dry=is_dry)
            found[name] = replace(module, features=tuple(sorted({features[probe] for probe, _ in one.users})))
    return tuple(one for _, one in sorted(found.items()))


def _module(name: str, known: Told, builds: Builds, here: estimates.Here, *, is_dry: bool) -> WarmModule:
    state, _, why = builds.modules.get(name, "").partition(": ")
    place = _PLACES.get(state) or Place(state)
    if is_dry and not known.state:
        place, why = Place.TO_COMPILE, ""
    if place in (Place.UP_TO_DATE, Place.IN_JIT_CACHE):
        return WarmModule(name=name, place=place)
    cost = builds.costs.get(name)
    return WarmModule(
        name=name,
        place=place,
        why=why.removeprefix("left to its probe: "),
        objects=known.objects,
        seconds=cost.seconds if cost else 0.0,
        cpu_seconds=cost.cpu_seconds if cost else 0.0,
        estimated_seconds=round(estimates.wall_seconds({name: max(1, known.objects)}, builds.jobs, here), 1),
        peak_job_mib=cost.peak_job_mib if cost else estimates.peak_mib(name),
        disk_mib=sizes.disk_mib(name),
    )


def _usable(modules: Sequence[WarmModule], jobs: int, here: estimates.Here) -> int:
    """Of so many jobs those that the heaviest of what is to be compiled leaves."""
    return estimates.usable_jobs([one.name for one in modules if not one.place.is_there], jobs, here)


def _makespan_s(done: Warming, here: estimates.Here) -> float:
    """What compiling all of it takes."""
    stale = {one.name: max(1, one.objects) for one in done.modules if not one.place.is_there}
    return round(estimates.wall_seconds(stale, done.jobs, here), 1)


def _disk_mib(modules: Sequence[WarmModule]) -> float | Missing:
    known = [one.disk_mib for one in modules if not one.place.is_there]
    sizes_mib = [size for size in known if not isinstance(size, Missing)]
    if len(sizes_mib) < len(known):
        return Missing(reason=f"{len(known) - len(sizes_mib)} of {len(known)} modules were never measured")
    return round(sum(sizes_mib), 1)
