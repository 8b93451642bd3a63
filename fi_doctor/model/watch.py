"""The one-way progress sink: stages tell it what happens, and it tells them nothing."""

from __future__ import annotations

from typing import Protocol

from fi_doctor.model.probes import Outcome, PlannedProbe, Stage
from fi_doctor.model.report import Builds, FirstStart


class Watch(Protocol):
    """What a check says while it works; every call returns at once and never raises."""

    def note(self, text: str) -> None:
        """Something worth a line: the budget, a cache that is used, a warning."""

    def planned(self, probes: tuple[PlannedProbe, ...], budget_s: float) -> None:
        """The plan is made; said once, before anything runs."""

    def building(self, modules: int, done: int, total: int, jobs: int, left_s: float) -> None:
        """For all probes: so many modules are being built, of whose `total` objects `done` are compiled."""

    def first_start(self, found: FirstStart) -> None:
        """The modules are known: what a server's first start would compile as it stands."""

    def begun(self, modules: tuple[str, ...]) -> None:
        """Compilers start for these modules."""

    def settled(self, module: str, words: str, done: int, total: int) -> None:
        """One module is over, in words; so are `done` of `total` that were to be built."""

    def prebuilt(self, builds: Builds) -> None:
        """What was to be built beforehand is built."""

    def started(self, probe: PlannedProbe) -> None:
        """A probe's process starts."""

    def reached(self, probe: PlannedProbe, stage: Stage) -> None:
        """A probe came this far."""

    def objects(self, probe: PlannedProbe, done: int, total: int) -> None:
        """Its module has `done` of `total` objects compiled."""

    def ended(self, probe: PlannedProbe, outcome: Outcome) -> None:
        """A probe is over."""


class Silent:
    """A watch that says nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def planned(self, probes: tuple[PlannedProbe, ...], budget_s: float) -> None:
        """Say nothing."""

    def building(self, modules: int, done: int, total: int, jobs: int, left_s: float) -> None:
        """Say nothing."""

    def first_start(self, found: FirstStart) -> None:
        """Say nothing."""

    def begun(self, modules: tuple[str, ...]) -> None:
        """Say nothing."""

    def settled(self, module: str, words: str, done: int, total: int) -> None:
        """Say nothing."""

    def prebuilt(self, builds: Builds) -> None:
        """Say nothing."""

    def started(self, probe: PlannedProbe) -> None:
        """Say nothing."""

    def reached(self, probe: PlannedProbe, stage: Stage) -> None:
        """Say nothing."""

    def objects(self, probe: PlannedProbe, done: int, total: int) -> None:
        """Say nothing."""

    def ended(self, probe: PlannedProbe, outcome: Outcome) -> None:
        """Say nothing."""
