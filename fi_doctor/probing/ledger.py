"""What builds cost, added up from what the processes that build say."""

from __future__ import annotations

import time

from msgspec.structs import replace

from fi_doctor.model import BuildCost, Builds, FirstStart
from fi_doctor.probing.told import Line


class Ledger:
    """Of one process."""

    def __init__(self, memory_mib: int) -> None:
        self._memory_mib = memory_mib
        self._costs: dict[str, BuildCost] = {}
        self._peak_mib = 0
        self._begun: float | None = None
        self._seconds = 0.0

    def begin(self) -> None:
        """Compilers start from here on."""
        self._begun = time.monotonic()

    def enter(self, line: Line) -> None:
        """A ninja has ended, if that is what the line tells."""
        if line.costs and self._begun is not None:
            self._seconds = time.monotonic() - self._begun
            self._costs.update(line.costs)
            self._peak_mib = max(self._peak_mib, line.peak_mib)

    def filled(self, builds: Builds) -> Builds:
        """The same with what it cost."""
        return replace(
            _added_up(builds, self._costs),
            build_seconds=round(self._seconds, 1),
            peak_mib=self._peak_mib,
            memory_mib=self._memory_mib,
        )


def joined(first: Builds | None, second: Builds | None) -> Builds | None:
    """Two steps, one after the other."""
    if first is None or second is None:
        return first or second
    both = Builds(
        seconds=round(first.seconds + second.seconds, 1),
        jobs=second.jobs,
        modules={**first.modules, **second.modules},
        build_seconds=round(first.build_seconds + second.build_seconds, 1),
        peak_mib=max(first.peak_mib, second.peak_mib),
        memory_mib=second.memory_mib,
        first_start=_both(first.first_start, second.first_start),
    )
    return _added_up(both, {**first.costs, **second.costs})


def _both(one: FirstStart, other: FirstStart) -> FirstStart:
    """A server starts on GPUs of one kind, and here are two: each of them needs its own."""
    if not (one.modules and other.modules):
        return one if one.modules else other
    return replace(
        other,
        modules=tuple(sorted({*one.modules, *other.modules})),
        objects=one.objects + other.objects,
        estimated_seconds=round(one.estimated_seconds + other.estimated_seconds, 1),
        command=" && ".join(dict.fromkeys((one.command, other.command))),
    )


def _added_up(builds: Builds, costs: dict[str, BuildCost]) -> Builds:
    longest = max(costs, key=lambda name: (costs[name].least_seconds, name), default="")
    return replace(
        builds,
        cpu_seconds=round(sum(cost.cpu_seconds for cost in costs.values()), 1),
        longest=longest,
        longest_seconds=costs[longest].least_seconds if longest else 0.0,
        costs=dict(sorted(costs.items())),
    )
