"""The record that the harness leaves, and what is to be concluded from it. Pure.

The harness writes JSON lines (fi_doctor/inside/harness.py); they end wherever its process ended.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from fi_doctor.model import CellOutcome, Data, Depth, Ending, Outcome, PlannedProbe, Stage
from fi_doctor.model.phrases import UNCOMPARED
from fi_doctor.probing.deciding import deciding_line
from fi_doctor.probing.plan import ONLY_WHEN_CALLED
from fi_doctor.sandbox import Result

GATE_OPEN = "FlashInfer's own checks let the call through; the kernel was not compiled"

TRACEBACK_LIMIT = 4 * 1024
ABSENT = "fi-doctor: not compiled in this part of the module: "  # inside/stubs.py

_ABSENT_LIMIT = 600  # of a C++ name
_SKIPPED = "unittest.case.SkipTest"  # how a probe says that it could not look: that is no failure of what it looks at


class Line(Data, frozen=True):
    """One line of a record; which fields it has tells what it is."""

    variant: str | None = None  # None: it concerns the whole process
    stage: str = ""
    ending: str = ""
    seconds: float = 0.0
    error: str = ""
    message: str = ""
    traceback: str = ""
    measurements: dict[str, float | int | str | bool] = {}  # noqa: RUF012 - msgspec copies it
    versions: dict[str, dict[str, str]] = {}  # noqa: RUF012 - as above
    gpu: dict[str, str | int] = {}  # noqa: RUF012 - as above
    end: bool = False
    stopped: str = ""  # why the variants after this one need a fresh process


class Record(Data, frozen=True):
    """What one process wrote."""

    lines: tuple[Line, ...] = ()
    is_cut: bool = False  # the last line is incomplete, or something else was written into it

    @property
    def place(self) -> tuple[str | None, str]:
        """Variant and stage that the process is in, or was in when it ended."""
        for line in reversed(self.lines):
            if line.end or line.ending or line.stage:
                return line.variant, "end" if line.end else line.ending or line.stage
        return None, ""


def read(data: bytes) -> Record:
    """The lines up to the first one that is not one."""
    *whole, rest = data.split(b"\n")
    lines = tuple(itertools.takewhile(lambda line: line is not None, map(_line, whole)))
    return Record(lines=tuple(line for line in lines if line is not None), is_cut=bool(rest) or len(lines) < len(whole))


def _line(text: bytes) -> Line | None:
    try:
        return msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Fate(Data, frozen=True):
    """How a process ended that did not finish its record."""

    ending: Ending
    detail: str


def fate(record: Record, result: Result, overtime: Fate | None) -> Fate | None:
    """Why the record stops where it does; None when it is complete. overtime: what our own limits did to it."""
    if record.place[1] == "end":
        return None
    if result.error:
        return not_started(result.error)
    if overtime is not None:
        return overtime
    if result.signal is not None:
        said = _absent(result.stdout)
        return Fate(ending=Ending.SIGNALLED, detail=f"{_signal_name(result.signal)}{_while(record)}{said}")
    if record.is_cut:
        return Fate(ending=Ending.LOST, detail=f"its record is cut or unreadable; it was last seen{_while(record)}")
    status = "an unknown status" if result.returncode is None else f"status {result.returncode}"
    return Fate(ending=Ending.EXITED, detail=f"left with {status}{_while(record)}, its record unfinished")


def not_started(why: str) -> Fate:
    """There was no process: that says nothing about what it would have tried."""
    return Fate(ending=Ending.LOST, detail=f"could not be started: {why}")


def cells(planned: PlannedProbe, variants: Sequence[str], record: Record, end: Fate | None) -> dict[str, CellOutcome]:
    """The variants that this process settled, the one it died in included; what is not there needs another process."""
    settled: dict[str, CellOutcome] = {}
    for line in record.lines:
        if line.ending and line.variant is None:  # importing failed, for all of them
            return {variant: _cell(planned, record, replace(line, variant=variant)) for variant in variants}
        if line.ending and line.variant is not None:
            known = settled.get(line.variant)
            if known is None or known.ending is Ending.RETURNED:  # a probe that forks may end a variant twice
                settled[line.variant] = _cell(planned, record, line)
    if end is None:
        return settled
    variant, stage = record.place
    if variant is None:
        return {
            name: CellOutcome(variant=name, stage=Stage.NONE, ending=end.ending, detail=end.detail) for name in variants
        }
    if variant not in settled:
        reached = _reached(stage)
        settled[variant] = CellOutcome(variant=variant, stage=reached, ending=end.ending, detail=end.detail)
    return settled


def outcome(planned: PlannedProbe, settled: dict[str, CellOutcome]) -> Outcome:
    """The probe's outcome from its cells, in declared order; variants that do not apply are among them, not run."""
    names = tuple(planned.spec.variants) or ("",)
    known = [settled[name] for name in names if name in settled]
    tried = [cell for cell in known if cell.error != _SKIPPED]
    rest = {
        name: CellOutcome(
            variant=name,
            stage=Stage.NONE,
            ending=Ending.NOT_RUN,
            detail=planned.skipped_variants.get(name, planned.skip),
        )
        for name in names
    }
    bad = next((cell for cell in tried if cell.ending is not Ending.RETURNED), None)
    least = min(tried or known, key=lambda cell: cell.stage.rank, default=None)
    return Outcome(
        probe=planned.spec.id,
        feature=planned.spec.feature,
        sm=planned.sm,
        depth=planned.depth,
        stage=least.stage if least else Stage.NONE,
        ending=bad.ending if bad else Ending.RETURNED if tried else Ending.NOT_RUN,
        detail=_named(bad) if bad else least.detail if least else planned.skip,
        cells=tuple(settled.get(name, rest[name]) for name in names),
    )


def first_failed(planned: PlannedProbe, settled: Mapping[str, CellOutcome]) -> str | None:
    """The first variant, in declared order, that was tried and did not end well."""
    return next((name for name in planned.variants if name in settled and settled[name].ending.is_bad), None)


def failed_in_build(planned: PlannedProbe, variant: str, records: Sequence[Record]) -> bool:
    """Whether a failed variant got no further than its build(); its first call is called "building", too."""
    of_one = [[line.stage for line in record.lines if line.variant == variant and line.stage] for record in records]
    last = next((stages for stages in reversed(of_one) if stages), [])
    return planned.spec.has_build and last[-1:] == ["building"] and last.count("building") == 1


def loaded(variant: str, records: Sequence[Record]) -> bool:
    """Whether a variant's build() compiled or loaded something; what its first call compiles is no module."""
    none = ("", "waiting")
    of_one = (
        [line.stage for line in one.lines if line.variant == variant and line.stage not in none] for one in records
    )
    return any(stages[:2] == ["building", "built"] for stages in of_one)


def seconds(records: Sequence[Record]) -> dict[str, float]:
    """Seconds spent reaching each stage, all variants and processes together; only stages that were reached."""
    spent: dict[str, float] = {}
    for line in (line for record in records for line in record.lines):
        if line.stage in ("imported", "built", "ran"):
            spent[line.stage] = round(spent.get(line.stage, 0.0) + line.seconds, 3)
    return spent


def _cell(planned: PlannedProbe, record: Record, line: Line) -> CellOutcome:
    """A variant that the harness saw to its end."""
    variant = line.variant or ""
    ending = Ending(line.ending)
    returned = ending is Ending.RETURNED
    stages = [one.stage for one in record.lines if one.variant == line.variant and one.stage]
    reached = _reached(stages[-1]) if stages else Stage.NONE
    if line.error == _SKIPPED:
        said = deciding_line(line.message)
        found = CellOutcome(variant=variant, stage=reached, ending=Ending.NOT_RUN, detail=said, seconds=line.seconds)
        return replace(found, error=_SKIPPED)
    if ending is Ending.WRONG:
        reached = Stage.RAN
    detail = "" if returned else deciding_line(line.message)
    if returned and planned.depth is Depth.BUILD:
        # build() returned False where there is no "built": nothing is compiled before the call.
        detail = planned.skip if reached is Stage.BUILT else ONLY_WHEN_CALLED
    elif returned and planned.spec.gate_only:
        # A recording has to say so by itself: read without this probe it must not look like a run of the kernel.
        reached, detail = Stage.IMPORTED, GATE_OPEN
    found = CellOutcome(
        variant=variant,
        stage=reached,
        ending=ending,
        detail=detail,
        error=line.error,
        traceback=line.traceback[-TRACEBACK_LIMIT:],
        measurements=line.measurements,
        seconds=round(line.seconds, 3),
    )
    return _compared(found) if reached is Stage.RAN and returned and planned.spec.checks_numbers else found


def _compared(cell: CellOutcome) -> CellOutcome:
    """A variant that is to compare numbers and returned, as far as it says that it did."""
    if cell.compares:
        return replace(cell, stage=Stage.VERIFIED)
    return cell if cell.refusal else replace(cell, detail=UNCOMPARED)


def _reached(stage: str) -> Stage:
    """What lies behind a process that is in this stage. Where nothing is built, "running" has that behind it too."""
    return {
        "imported": Stage.IMPORTED,
        "waiting": Stage.IMPORTED,
        "building": Stage.IMPORTED,
        "built": Stage.BUILT,
        "running": Stage.BUILT,
        "ran": Stage.RAN,
    }.get(stage, Stage.NONE)


def _absent(output: bytes) -> str:
    """What a stub of a part of a module said before it aborted."""
    _, mark, rest = output.decode(errors="replace").rpartition(ABSENT)
    return f": {ABSENT.partition(': ')[2]}{rest.splitlines()[0][:_ABSENT_LIMIT]}" if mark and rest else ""


def _named(cell: CellOutcome) -> str:
    return f"{cell.variant}: {cell.detail}" if cell.variant and cell.detail else cell.detail


def _while(record: Record) -> str:
    variant, stage = record.place
    if not stage:
        return " before it began"
    return f" while {doing(stage)}" + (f" variant {variant}" if variant else "")


def doing(stage: str) -> str:
    """What a process in this stage does, in words."""
    return "waiting for another build" if stage == "waiting" else stage or "starting"


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    if number == signal.SIGKILL:  # the usual reason, which nothing tells us for sure
        return f"{name}, not sent by fi-doctor (the kernel does so when memory runs out)"
    return name
