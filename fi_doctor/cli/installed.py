"""What is known, and the installed probes, for a command; as they are remembered while no file of ours has changed.

Probes of other packages that cannot be used are named on stderr, once.
"""

from __future__ import annotations

from fi_doctor import knowing
from fi_doctor.cli import emit
from fi_doctor.facts.remembered import memory_folder
from fi_doctor.model import KnowledgeBase, ProbeSpec


def known() -> tuple[KnowledgeBase, tuple[ProbeSpec, ...]]:
    """Both. Errors: BrokenDoctorError where one of ours cannot be used."""
    kb, specs = knowing.load(memory_folder())
    warn(specs)
    return kb, specs


def probes() -> tuple[ProbeSpec, ...]:
    """All of them. Errors: as `known`."""
    return known()[1]


def warn(specs: tuple[ProbeSpec, ...]) -> None:
    """Name those that cannot be used: each has a row that says so, and no other row misses it."""
    for spec in specs:
        if spec.fault:
            emit.say(f"warning: probe {spec.id} of {spec.origin} cannot be used: {spec.fault}")
