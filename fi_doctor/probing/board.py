"""What is known so far of the modules that are being built, for the probes that wait for them."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from fi_doctor.model import Missing, PlannedProbe, Scope
from fi_doctor.probing import estimates
from fi_doctor.probing.told import LATE, THERE, WHOLE, Told


class Board:
    """Written by the thread that builds, read by others: what is told at once replaces what was told before."""

    def __init__(self) -> None:
        self.news = threading.Event()  # set whenever something is told
        self.here = estimates.ANYWHERE  # this machine, as far as it is known
        self._modules: dict[int | None, dict[str, Told]] = {}

    def tell(self, kind: int | None, modules: Mapping[str, Told]) -> None:
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
        words = {
            Scope.SUBSET.value if one.part_of else THERE.get(one.state, "built" if loaded else "")
            for one in known.values()
        }
        return ", ".join(sorted(words - {""}))

    def was_there(self, probe: PlannedProbe) -> bool | None:
        """Whether all that it needs was compiled before this check, whole or as a part; None where nobody asked."""
        known = self._of_all(probe)
        return all(one.state in THERE and THERE[one.state] != "built" for one in known) if known else None

    def is_ready(self, probe: PlannedProbe) -> bool:
        """Whether all that it needs can be loaded or is left out for want of time.

        What failed or was left will be compiled by the probe itself, which has to wait until there are jobs for it. So
        does a probe of which no module is known. A variant without one compiles nothing before it is called.
        """
        known = self._of_all(probe)
        return bool(known) and not any(map(_compiles, known))

    def left_out(self, probe: PlannedProbe) -> dict[str, tuple[str, Told]]:
        """The variants that cannot be tried, since a module is not there that they will not compile for themselves."""
        return {
            variant: (name, one)
            for variant in probe.variants
            for name, one in self.known(probe, variant).items()
            if one.state not in THERE and not _compiles(one)
        }

    def compiles(self, probe: PlannedProbe) -> bool:
        """Whether it still has something to compile for which it was not too late."""
        return any(map(_compiles, self._of_all(probe)))

    def libraries(self, probe: PlannedProbe) -> dict[str, str]:
        """The files of those modules that a probe needs and that are there, by the modules' names."""
        modules = self._modules.get(kind_of(probe), {})
        wanted = {(probe.spec.id, name) for name in probe.variants}
        return {
            name: known.library
            for name, known in sorted(modules.items())
            if known.state in THERE and known.library and not known.part_of and wanted.intersection(known.users)
        }

    def wholes(self, probe: PlannedProbe) -> dict[str, int]:
        """The modules of which parts were taken instead, with the objects that are stale of each."""
        names = {one.part_of for one in self._of_all(probe) if one.part_of and one.state in THERE}
        modules = self._modules.get(kind_of(probe), {})
        return {name: modules[name].objects for name in sorted(names & modules.keys())}

    def parts(self, probe: PlannedProbe) -> dict[str, str]:
        """The files of parts that a probe needs and that are there, by the names of the whole modules."""
        return {one.part_of: one.library for one in self._of_all(probe) if one.part_of and one.state in THERE}

    def waits_for(self, probe: PlannedProbe) -> str:
        """Why what it waits for was not built beforehand, in words; "" where it was, or nobody asked."""
        return next((one.detail for one in self._of_all(probe) if one.state == "left" and one.detail), "")

    def names(self, probe: PlannedProbe, variant: str) -> tuple[str, ...]:
        """The names of the modules that a variant needs, sorted; of a part that of the whole module."""
        return tuple(sorted({one.part_of or name for name, one in self.known(probe, variant).items()}))

    def known(self, probe: PlannedProbe, variant: str) -> dict[str, Told]:
        """The modules that a variant needs; none where that is not known, or there are none."""
        modules = self._modules.get(kind_of(probe), {})
        return {name: one for name, one in modules.items() if (probe.spec.id, variant) in one.users}

    def _of_all(self, probe: PlannedProbe) -> list[Told]:
        """The same of all its variants."""
        return [one for variant in probe.variants for one in self.known(probe, variant).values()]


def _compiles(known: Told) -> bool:
    """Whether its probe has to compile it, or to wait for it: what failed, what was left, what is not settled."""
    return known.state not in THERE and known.state not in (LATE, WHOLE) and not (known.part_of and known.state)


def kind_of(probe: PlannedProbe) -> int | None:
    """Of the GPU: those of another kind have modules of their own."""
    return None if isinstance(probe.sm, Missing) else probe.sm
