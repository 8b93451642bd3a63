"""What is known so far of the modules that are being built, for the probes that wait for them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from fi_doctor.model import Missing, PlannedProbe

# A state in which a module can be loaded -> where it came from.
THERE = {"prebuilt": "jit-cache", "up to date": "cache", "built": "built"}
LATE = "not begun"  # there was no time for it, and it is not tried again


class Known(Protocol):
    """A module."""

    @property
    def users(self) -> Sequence[tuple[str, str]]:
        """The probes and their variants that need it."""

    @property
    def state(self) -> str:
        """How it stands in the words of the process that builds; "" while it is not settled."""

    @property
    def library(self) -> str:
        """The file that it is loaded from; "" where that is not known."""


class Board:
    """Written by the thread that builds, read by others: what is told at once replaces what was told before."""

    def __init__(self) -> None:
        self.news = threading.Event()  # set whenever something is told
        self._modules: dict[int | None, dict[str, Known]] = {}

    def tell(self, kind: int | None, modules: Mapping[str, Known]) -> None:
        """How the modules for GPUs of this kind stand."""
        self._modules[kind] = dict(modules)
        self.news.set()

    def source(self, probe: PlannedProbe, variant: str, *, otherwise: str, loaded: bool) -> str:
        """CellOutcome.module_from of a variant that was tried; otherwise: where nobody asked which modules it needs.

        loaded: whether its build() got through, so that what was not there before it built for itself.
        """
        states = self.states(probe, variant)
        if not states:
            return otherwise if kind_of(probe) not in self._modules and loaded else ""
        words = {THERE.get(state, "built" if loaded else "") for state in states}
        return ", ".join(sorted(words - {""}))

    def is_ready(self, probe: PlannedProbe) -> bool:
        """Whether all that it needs can be loaded or is left out for want of time.

        What failed or was left will be compiled by the probe itself, which has to wait until there are jobs for it. So
        does a probe of which no module is known. A variant without one compiles nothing before it is called.
        """
        states = [state for name in probe.variants for state in self.states(probe, name)]
        return bool(states) and all(state in THERE or state == LATE for state in states)

    def late(self, probe: PlannedProbe) -> tuple[str, ...]:
        """The variants for whose modules there was no time."""
        return tuple(name for name in probe.variants if LATE in self.states(probe, name))

    def compiles(self, probe: PlannedProbe) -> bool:
        """Whether it still has something to compile for which it was not too late."""
        wanted = [state for name in probe.variants for state in self.states(probe, name)]
        return any(state not in THERE and state != LATE for state in wanted)

    def libraries(self, probe: PlannedProbe) -> dict[str, str]:
        """The files of those modules that a probe needs and that are there, by the modules' names."""
        modules = self._modules.get(kind_of(probe), {})
        wanted = {(probe.spec.id, name) for name in probe.variants}
        return {
            name: known.library
            for name, known in sorted(modules.items())
            if known.state in THERE and known.library and wanted.intersection(known.users)
        }

    def states(self, probe: PlannedProbe, variant: str) -> list[str]:
        """Of the modules that a variant needs; none where that is not known, or there are none."""
        modules = self._modules.get(kind_of(probe), {})
        return [known.state for known in modules.values() if (probe.spec.id, variant) in known.users]


def kind_of(probe: PlannedProbe) -> int | None:
    """Of the GPU: those of another kind have modules of their own."""
    return None if isinstance(probe.sm, Missing) else probe.sm
