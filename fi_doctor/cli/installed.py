"""The installed probes, for a command: those of other packages that cannot be used are named on stderr, once."""

from __future__ import annotations

from fi_doctor.cli import emit
from fi_doctor.model import ProbeSpec
from fi_doctor.probing import catalog


def probes() -> tuple[ProbeSpec, ...]:
    """All of them. Errors: BrokenDoctorError where one of ours cannot be used."""
    found = catalog.discover()
    warn(found)
    return found


def warn(specs: tuple[ProbeSpec, ...]) -> None:
    """Name those that cannot be used: each has a row that says so, and no other row misses it."""
    for spec in specs:
        if spec.fault:
            emit.say(f"warning: probe {spec.id} of {spec.origin} cannot be used: {spec.fault}")
