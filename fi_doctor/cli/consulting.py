"""Which knowledge is named, and what explaining a log takes of it, which is less than the whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fi_doctor.errors import UsageError
from fi_doctor.knowledge import faults, read_head


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
