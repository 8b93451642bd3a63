"""What is known so far of the modules that are being built, for the probes that wait for them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from fi_doctor.model import Missing, PlannedProbe

# A state in which a module can be loaded -> where it came from.
THERE = {"prebuilt": "jit-cache", "up to date": "cache", "built": "built"}
LATE = "not begun"  # there was no time for it, and it is not tried again
WHOLE = "whole"  # a part of it stands for the whole, which is not compiled
SUBSET = "subset"  # CellOutcome.module_from of a part


class Known(Protocol):
    """A module."""

    @property
    def users(self) -> Sequence[tuple[str, str]]:
        """The probes and their variants that need it."""

    @property
    def state(self) -> str:
        """How it stands in the words of the process that builds; "" while it is not settled."""

    @property
    def part_of(self) -> str:
        """The module that it is a part of; "" for a whole one."""

    @property
    def library(self) -> str:
        """The file that it is loaded from; "" where that is not known."""

    @property
    def detail(self) -> str:
        """What a compiler said, or why it is not begun."""

    @property
    def objects(self) -> int:
        """How many of it were not compiled at first."""


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
        known = self.known(probe, variant)
        if not known:
            return otherwise if kind_of(probe) not in self._modules and loaded else ""
        words = {SUBSET if one.part_of else THERE.get(one.state, "built" if loaded else "") for one in known.values()}
        return ", ".join(sorted(words - {""}))

    def is_ready(self, probe: PlannedProbe) -> bool:
        """Whether all that it needs can be loaded or is left out for want of time.

        What failed or was left will be compiled by the probe itself, which has to wait until there are jobs for it. So
        does a probe of which no module is known. A variant without one compiles nothing before it is called.
        """
        known = [one for name in probe.variants for one in self.known(probe, name).values()]
        return bool(known) and not any(map(_compiles, known))

    def left_out(self, probe: PlannedProbe) -> dict[str, tuple[str, Known]]:
        """The variants that cannot be tried, since a module is not there that they will not compile for themselves."""
        return {
            variant: (name, one)
            for variant in probe.variants
            for name, one in self.known(probe, variant).items()
            if one.state not in THERE and not _compiles(one)
        }

    def compiles(self, probe: PlannedProbe) -> bool:
        """Whether it still has something to compile for which it was not too late."""
        return any(_compiles(one) for variant in probe.variants for one in self.known(probe, variant).values())

    def libraries(self, probe: PlannedProbe) -> dict[str, str]:
        """The files of those modules that a probe needs and that are there, by the modules' names."""
        modules = self._modules.get(kind_of(probe), {})
        wanted = {(probe.spec.id, name) for name in probe.variants}
        return {
            name: known.library
            for name, known in sorted(modules.items())
            if known.state in THERE and known.library and not known.part_of and wanted.intersection(known.users)
        }

    def whole_of(self, probe: PlannedProbe) -> tuple[str, Known] | None:
        """The module that parts stand for, which a probe would load from as a server does; None where there is none."""
        found = [one for variant in probe.variants for one in self.known(probe, variant).values()]
        names = {one.part_of for one in found if one.part_of}
        modules = self._modules.get(kind_of(probe), {})
        return next(((name, modules[name]) for name in sorted(names & modules.keys())), None)

    def parts(self, probe: PlannedProbe) -> dict[str, str]:
        """The files of parts that a probe needs and that are there, by the names of the whole modules."""
        found = [one for variant in probe.variants for one in self.known(probe, variant).values()]
        return {one.part_of: one.library for one in found if one.part_of and one.state in THERE}

    def known(self, probe: PlannedProbe, variant: str) -> dict[str, Known]:
        """The modules that a variant needs; none where that is not known, or there are none."""
        modules = self._modules.get(kind_of(probe), {})
        return {name: one for name, one in modules.items() if (probe.spec.id, variant) in one.users}


def _compiles(known: Known) -> bool:
    """Whether its probe has to compile it, or to wait for it: what failed, what was left, what is not settled."""
    return known.state not in THERE and known.state not in (LATE, WHOLE) and not (known.part_of and known.state)


def kind_of(probe: PlannedProbe) -> int | None:
    """Of the GPU: those of another kind have modules of their own."""
    return None if isinstance(probe.sm, Missing) else probe.sm
