"""What a server's first start would compile, by what is known of the modules that its kernels need. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fi_doctor.model import Facts, FirstStart, PlannedProbe, Request
from fi_doctor.probing import budget, estimates, memory
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
    jobs, seconds = memory.makespan(needed, jobs, memory.budget_mib(facts, request), here)
    return FirstStart(
        modules=tuple(needed),
        objects=sum(needed.values()),
        jobs=jobs,
        estimated_seconds=seconds,
        command=budget.warm(facts, request),
    )
