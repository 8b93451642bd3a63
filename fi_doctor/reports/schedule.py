"""Where a check stands and how long the rest may take, from estimates and from what was measured so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct

from fi_doctor.model import Depth, Missing, PlannedProbe, Stage
from fi_doctor.reports.text import amount, clean, clock

_RUN_S = 10.0  # importing torch and flashinfer takes 5-7 s, a run less than the rest
_SHOWN = 3  # modules named in the status
_LANES = 6  # probes side by side once all is built


class _Probe(Struct):
    """A probe that is to be tried."""

    module: str  # the JIT module that it builds here, "" for none
    started: float | None = None
    stage: Stage = Stage.NONE
    is_over: bool = False


class _Build(Struct):
    """A module that some probe builds: probes of one module share it."""

    estimate_s: float | None
    started: float | None = None
    took_s: float | None = None
    done: int = 0
    total: int = 0


class _Prebuild(Struct):
    """What is built for all probes at once, as it was told last."""

    modules: int
    done: int
    total: int
    jobs: int
    left_s: float
    told: float


class Schedule:
    """Probes and module builds, and the time left; told what happens, never deciding anything."""

    def __init__(self, estimates: Mapping[str, float], now: Callable[[], float]) -> None:
        self._estimates = estimates
        self._now = now
        self._probes: dict[tuple[str, int | None], _Probe] = {}
        self._builds: dict[str, _Build] = {}
        self._prebuild: _Prebuild | None = None
        self._begin = self._budget_begin = now()
        self._budget_s = float("inf")

    @property
    def total(self) -> int:
        """Probes that are tried."""
        return len(self._probes)

    @property
    def done(self) -> int:
        """Probes that are over."""
        return sum(probe.is_over for probe in self._probes.values())

    @property
    def is_running(self) -> bool:
        """Whether a started probe is not over, or modules are being built for all of them."""
        return self._prebuild is not None or any(
            probe.started is not None and not probe.is_over for probe in self._probes.values()
        )

    def plan(self, probes: tuple[PlannedProbe, ...], budget_s: float) -> None:
        """Take note of what will be tried; the clock of the budget starts."""
        self._budget_s = budget_s
        self._budget_begin = self._now()
        for probe in probes:
            if probe.is_tried:
                module = _module(probe)
                self._probes[_key(probe)] = _Probe(module=module)
                if module:
                    self._builds.setdefault(module, _Build(estimate_s=self._estimates.get(module)))

    def to_build(self) -> list[str]:
        """Modules, the longest first."""
        return sorted(self._builds, key=lambda name: (-(self._builds[name].estimate_s or 0.0), name))

    def build_first(self, modules: int, done: int, total: int, jobs: int, left_s: float) -> bool:
        """Modules are being built for all probes; whether that is news."""
        is_news = self._prebuild is None
        self._prebuild = _Prebuild(modules, done, total, jobs, left_s, self._now())
        return is_news

    def end_first(self) -> None:
        """That is over: whatever a probe still builds is told by its objects."""
        self._prebuild = None
        for build in self._builds.values():
            build.took_s = build.took_s or 0.0

    def start(self, probe: PlannedProbe) -> None:
        """Its process starts, and with it the build of its module unless that is over."""
        state = self._state(probe)
        state.started = self._now()
        build = self._builds.get(state.module)
        if build and build.started is None:
            build.started = self._now()

    def reach(self, probe: PlannedProbe, stage: Stage) -> bool:
        """Whether that is further than before (every variant passes the stages); `built` ends its module's build."""
        state = self._state(probe)
        is_news = stage.rank > state.stage.rank
        if is_news:
            state.stage = stage
        if stage.rank >= Stage.BUILT.rank:
            self._finish_build(state)
        return is_news

    def count_objects(self, probe: PlannedProbe, done: int, total: int) -> None:
        """Objects of its module."""
        build = self._builds.setdefault(_module(probe) or probe.spec.module, _Build(estimate_s=None))
        build.done, build.total = done, total
        if build.started is None:
            build.started = self._now()
        if done < total:
            build.took_s = None  # a probe that ended early left it to the next one

    def end(self, probe: PlannedProbe) -> float | None:
        """It is over; the seconds since it started, None when it never did."""
        state = self._state(probe)
        state.is_over = True
        self._finish_build(state)
        return None if state.started is None else self._now() - state.started

    def status(self, width: int | None = None) -> str:
        """One line: elapsed and left, how many probes are over, what is building.

        With a width, what does not fit is left out from the end: the names of modules first, then whole parts.
        """
        left = self.left_s()
        first = self._building_first()
        parts = [f"{clock(self._now() - self._begin)} elapsed"]
        parts.append("time left not known" if left is None else f"about {clock(left)} left")
        parts += first
        if self.done or not first:
            parts.append(f"{self.done} of {self.total} probes done")
        lines = [] if first else [", ".join([*parts, building]) for building in self._building()]
        lines += [", ".join(parts[:number]) for number in range(len(parts), 0, -1)]
        return next((line for line in lines if width is None or len(line) <= width), lines[-1][:width])

    def left_s(self) -> float | None:
        """Seconds that the rest may take, never more than the budget has; None without a basis.

        The longest build that is left bounds it from below, all that is left over the probes at work from above.
        """
        budget_left = max(0.0, self._budget_s - (self._now() - self._budget_begin))
        if self._prebuild is not None:
            runs = _RUN_S * math.ceil((self.total - self.done) / _LANES)
            building = self._prebuild.left_s - (self._now() - self._prebuild.told)
            return min(max(building, 0.0) + runs, budget_left)
        builds = [self._build_left(build) for build in self._builds.values() if build.took_s is None]
        known = [seconds for seconds in builds if seconds is not None]
        if len(known) < len(builds):
            return None
        waiting = [probe for probe in self._probes.values() if not probe.is_over]
        lanes = max(1, sum(probe.started is not None for probe in waiting))
        shared = (sum(known) + _RUN_S * len(waiting)) / lanes
        longest = max(known, default=0.0) + (_RUN_S if known else 0.0)
        return min(max(shared, longest), budget_left)

    def _building_first(self) -> list[str]:
        if self._prebuild is None:
            return []
        first = self._prebuild
        objects = f"{first.done} of {amount(first.total, 'object')}"
        return [f"building {amount(first.modules, 'module')}", objects, amount(first.jobs, "job")]

    def _building(self) -> list[str]:
        """What is building in words, the fullest first; nothing when nothing is."""
        modules = [
            clean(name, 40) + (f" {build.done}/{build.total} objects" if build.total else "")
            for name, build in self._builds.items()
            if build.started is not None and build.took_s is None
        ]
        said: list[str] = []
        for shown in range(min(len(modules), _SHOWN), 0, -1):
            more = f" and {len(modules) - shown} more" if len(modules) > shown else ""
            full = f"building {', '.join(modules[:shown])}{more}"
            said += [full, full.replace(" objects", "")]
        return [*said, f"building {amount(len(modules), 'module')}"] if modules else []

    def _build_left(self, build: _Build) -> float | None:
        """Seconds of one build, by the estimate at this machine's pace and more and more by its objects."""
        elapsed = 0.0 if build.started is None else self._now() - build.started
        expected = self._expected_left(build, elapsed)
        if not (build.total and build.done):
            return expected
        by_objects = elapsed * (build.total - build.done) / build.done
        if expected is None:
            return by_objects
        # The first objects of many tell little: they are not of one size, and several are compiled at once.
        share = build.done / build.total
        return by_objects * share + expected * (1 - share)

    def _expected_left(self, build: _Build, elapsed: float) -> float | None:
        if build.estimate_s is None:
            return None
        scale = self._pace() * (1.0 if build.total else self._share_built())
        # A build that is late takes a good while more, rather than none.
        return max(build.estimate_s * scale - elapsed, elapsed / 10)

    def _share_built(self) -> float:
        """How many of the modules that are over were really built: where one was cached, the next one may be."""
        over = [build for build in self._builds.values() if build.took_s is not None]
        return (1 + sum(build.total > 0 for build in over)) / (1 + len(over))

    def _pace(self) -> float:
        """How much slower than estimated the finished builds were, cached ones (no objects) aside; 1 before any is."""
        over = [build for build in self._builds.values() if build.took_s is not None and build.total]
        expected = sum(build.estimate_s or 0.0 for build in over)
        took = sum(build.took_s or 0.0 for build in over if build.estimate_s)
        return took / expected if expected else 1.0

    def _finish_build(self, state: _Probe) -> None:
        build = self._builds.get(state.module)
        if build and build.took_s is None:
            build.took_s = 0.0 if build.started is None else self._now() - build.started

    def _state(self, probe: PlannedProbe) -> _Probe:
        """The probe's state; one that was never planned is taken in, since a watch does not raise."""
        return self._probes.setdefault(_key(probe), _Probe(module=_module(probe)))


def _key(probe: PlannedProbe) -> tuple[str, int | None]:
    return (probe.spec.id, None if isinstance(probe.sm, Missing) else probe.sm)


def _module(probe: PlannedProbe) -> str:
    return probe.spec.module if probe.spec.has_build and probe.depth is not Depth.STATIC else ""
