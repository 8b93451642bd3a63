"""What is known, and the installed probes, for a command; as they are remembered while no file of ours has changed.

Probes of other packages that cannot be used are named on stderr, once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fi_doctor import knowing
from fi_doctor.cli import emit
from fi_doctor.errors import UsageError
from fi_doctor.facts.remembered import memory_folder
from fi_doctor.knowledge import faults, read_head
from fi_doctor.model import KnowledgeBase, ProbeSpec


class Consulted(NamedTuple):
    """The faults that logs tell, and which knowledge they are of."""

    faults: Path
    version: str
    newest: dict[str, str]
    origin: str = ""


_VARIABLE = "FI_DOCTOR_KNOWLEDGE"


def place(typed: str | None = None) -> Path | None:
    """Where the knowledge is that is asked for, by --knowledge or else by the variable; None: that which ships.

    Errors: UsageError where the option names nothing.
    """
    if typed == "":
        raise UsageError("--knowledge: '' names no folder and no file", todo="fi-doctor knowledge show")
    named = typed or os.environ.get(_VARIABLE)
    return Path(named) if named else None


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


@contextlib.contextmanager
def consulted(knowledge: str | None = None) -> Iterator[Consulted]:
    """What logs are explained with; of that which ships no more is read than is needed. Errors: as `known`."""
    there = place(knowledge)
    if there is None:
        head = read_head()
        yield Consulted(faults.FOLDER, head.version, head.newest)
        return
    from fi_doctor.knowledge import bundles

    with bundles.opened(there) as found:
        yield Consulted(found.folder / "faults", found.kb.version, found.kb.newest, found.kb.origin)


def probes() -> tuple[ProbeSpec, ...]:
    """All of them. Errors: as `known`."""
    return knowing.load(memory_folder())[1]


def warn(specs: tuple[ProbeSpec, ...]) -> None:
    """Name those that cannot be used: each has a row that says so, and no other row misses it."""
    for spec in specs:
        if spec.fault:
            emit.say(f"warning: probe {spec.id} of {spec.origin} cannot be used: {spec.fault}")
