"""What is known, and the installed probes, for a command; as they are remembered while no file of ours has changed.

Probes of other packages that cannot be used are named on stderr, once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fi_doctor import knowing
from fi_doctor.cli import emit
from fi_doctor.cli.consulting import place
from fi_doctor.facts.remembered import memory_folder
from fi_doctor.knowledge import faults
from fi_doctor.model import KnowledgeBase, ProbeSpec


def known(knowledge: str | None = None, *, is_remembered: bool = True) -> tuple[KnowledgeBase, tuple[ProbeSpec, ...]]:
    """Both. knowledge: what --knowledge names.

    Errors: BrokenDoctorError where one of ours cannot be used, DataError for what is named.
    """
    kb, specs = knowing.load(memory_folder() if is_remembered else None, place(knowledge))
    warn(specs)
    return kb, specs


@contextlib.contextmanager
def opened(knowledge: str | None = None) -> Iterator[tuple[KnowledgeBase, tuple[ProbeSpec, ...], Path]]:
    """Both, and the folder of the faults that logs tell, which is there as long. Errors: as `known`."""
    there = place(knowledge)
    if there is None:
        yield (*known(), faults.FOLDER)
        return
    from fi_doctor.knowledge import bundles

    with bundles.opened(there) as found:
        yield found.kb, probes(), found.folder / "faults"


def probes() -> tuple[ProbeSpec, ...]:
    """All of them. Errors: as `known`."""
    _, specs = knowing.load(memory_folder())
    warn(specs)
    return specs


def warn(specs: tuple[ProbeSpec, ...]) -> None:
    """Name those that cannot be used: each has a row that says so, and no other row misses it."""
    for spec in specs:
        if spec.fault:
            emit.say(f"warning: probe {spec.id} of {spec.origin} cannot be used: {spec.fault}")
