"""What the process that builds says, line by line, and how a module's state reads in the report. Pure."""

from __future__ import annotations

from fi_doctor.model import Data
from fi_doctor.probing.board import THERE
from fi_doctor.probing.deciding import deciding_line


class Told(Data, frozen=True):
    """What the process says of a module."""

    objects: int = 0
    users: tuple[tuple[str, str], ...] = ()
    state: str = ""
    detail: str = ""
    library: str = ""  # the file that it is loaded from
    part_of: str = ""  # the module that it is a part of


class Line(Data, frozen=True):
    """One line of its record; which fields it has tells what it is."""

    stage: str = ""
    probe: str = ""
    modules: dict[str, Told] | None = None
    begun: tuple[str, ...] = ()
    module: str = ""
    state: str = ""
    detail: str = ""
    done: int = 0
    total: int = 0


def words_of(told: Told, *, seconds: float, is_begun: bool, is_late: bool) -> str:
    """How a module stands at the end. seconds: what the process had; is_late: whether its time was up then."""
    said = deciding_line(told.detail)
    match told.state:
        case state if state in THERE:
            return THERE[state]
        case "failed":
            return f"failed: {said}"
        case "left":
            return f"not begun: {said}" if told.part_of else f"not begun: left to its probe: {said}"
        case "whole":
            return f"not compiled: {told.objects} objects; parts stand for it"
        case "not begun":
            return f"not begun: {told.detail}"
        case _:
            after = f"after {seconds:.0f} s"
            if not is_late:
                return f"cut off: the process that built it ended {after}"
            return (
                f"cut off: the time for building was up {after}"
                if is_begun
                else (f"not begun: the time for building was up {after}")
            )
