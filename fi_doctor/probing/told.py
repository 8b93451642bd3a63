"""What the process that builds says, line by line, and how a module's state reads in the report. Pure."""

from __future__ import annotations

from fi_doctor.model import BuildCost, Data
from fi_doctor.probing.board import THERE
from fi_doctor.probing.deciding import deciding_line
from fi_doctor.probing.estimates import Taken


class Told(Data, frozen=True):
    """What the process says of a module."""

    objects: int = 0
    users: tuple[tuple[str, str], ...] = ()
    state: str = ""
    detail: str = ""
    library: str = ""  # the file that it is loaded from
    part_of: str = ""  # the module that it is a part of


class Cost(Data, frozen=True):
    """What a ninja that has ended cost for one module; inside/costs.py says what each number is."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    objects: int = 0
    least_s: float = 0.0
    peak_job_mib: int = 0

    def in_report(self) -> BuildCost:
        """The same in the report's words."""
        return BuildCost(
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            objects=self.objects,
            least_seconds=self.least_s,
            peak_job_mib=self.peak_job_mib,
        )


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
    taken: dict[str, Taken] | None = None  # what builds took here before
    costs: dict[str, Cost] | None = None  # of a ninja that has ended
    peak_mib: int = 0
    late: bool = False


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
