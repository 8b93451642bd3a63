"""What the process that builds says, line by line, and how a module's state reads in the report. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from fi_doctor.model import BuildCost, Data
from fi_doctor.probing.deciding import deciding_line
from fi_doctor.probing.estimates import Taken

# A state in which a module can be loaded -> where it came from.
THERE = {"prebuilt": "jit-cache", "up to date": "cache", "built": "built"}
LATE = "not begun"  # there was no time for it, and it is not tried again
WHOLE = "whole"  # a part of it stands for the whole, which is not compiled


class Told(Data, frozen=True):
    """What the process says of a module."""

    objects: int = 0  # that were not compiled at first
    users: tuple[tuple[str, str], ...] = ()  # the probes and their variants that need it
    state: str = ""  # in the words of the process that builds; "" while it is not settled
    detail: str = ""  # what a compiler said, or why it is not begun
    library: str = ""  # the file that it is loaded from
    part_of: str = ""  # the module that it is a part of
    spare: bool = False  # such a part, of which it is not decided yet whether it is built
    begun: bool = False  # such a part, of which objects are there from before


class Line(Data, frozen=True):
    """One line of its record; which fields it has tells what it is."""

    stage: str = ""
    probe: str = ""
    modules: dict[str, Told] | None = None
    raised: tuple[tuple[str, str, str], ...] = ()  # probe, variant and what it raised when it was asked for its modules
    begun: tuple[str, ...] = ()
    module: str = ""
    state: str = ""
    detail: str = ""
    done: int = 0
    total: int = 0
    taken: dict[str, Taken] | None = None  # what builds took here before
    costs: dict[str, BuildCost] | None = None  # of a ninja that has ended
    peak_mib: int = 0
    late: bool = False


def without_spares(modules: Mapping[str, Told], has_time: Callable[[Mapping[str, int]], bool]) -> dict[str, Told]:
    """The modules with those parts that take the place of wholes: what was begun before, and all where time is short.

    has_time: whether so many objects (by module) can be compiled. Spare parts that are not needed are left away.
    """
    spares = {name: told for name, told in modules.items() if told.spare}
    begun = {part.part_of for part in spares.values() if part.begun}
    taken = {name: part for name, part in spares.items() if part.part_of in begun}
    found = _in_place(taken, {name: told for name, told in modules.items() if not told.spare})
    if has_time({name: max(1, told.objects) for name, told in found.items() if not told.state}):
        return found
    return _in_place(spares, found)


def _in_place(parts: Mapping[str, Told], modules: dict[str, Told]) -> dict[str, Told]:
    """The modules with these parts instead of their wholes."""
    wholes = {part.part_of: replace(modules[part.part_of], state=WHOLE, users=()) for part in parts.values()}
    return {**modules, **wholes, **{name: replace(part, spare=False) for name, part in parts.items()}}


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
        case "cut off":
            return f"cut off: {told.detail}"
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
