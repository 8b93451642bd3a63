"""What a server's first start would compile, by what is known of the modules that its kernels need. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fi_doctor.model import Facts, FirstStart, PlannedProbe, Request
from fi_doctor.probing import budget, estimates
from fi_doctor.probing.told import LATE, WHOLE, Told

_STALE = ("", WHOLE, LATE, "failed", "cut off")


def first_start(  # noqa: PLR0913 - all that an estimate and its command rest on
    modules: Mapping[str, Told],
    members: Sequence[PlannedProbe],
    *,
    facts: Facts,
    request: Request,
    jobs: int,
    here: estimates.Here,
) -> FirstStart:
    """Of the rows that were asked for, the modules of served variants that are not there: as wholes, never as parts."""
    served = {(probe.spec.id, name) for probe in members for name in probe.served}
    users: dict[str, set[tuple[str, str]]] = {}
    for name, told in modules.items():
        users.setdefault(told.part_of or name, set()).update(told.users)
    needed = {
        name: max(1, told.objects)
        for name, told in sorted(modules.items())
        if told.state in _STALE and not told.part_of and users[name] & served
    }
    if not needed:
        return FirstStart()
    features = {probe.spec.feature for probe in members if any(_needs(probe, users[name]) for name in needed)}
    return FirstStart(
        modules=tuple(needed),
        objects=sum(needed.values()),
        jobs=estimates.usable_jobs(needed, jobs, here),
        estimated_seconds=round(estimates.wall_seconds(needed, jobs, here), 1),
        command=budget.warm(facts, replace(request, features=tuple(sorted(features)) if request.features else ())),
        caller=members[0].caller,
    )


def _needs(probe: PlannedProbe, users: set[tuple[str, str]]) -> bool:
    """Whether a server that calls the probe's row needs a module of these users."""
    return any((probe.spec.id, name) in users for name in probe.served)
