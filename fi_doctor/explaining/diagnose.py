"""From streams of logs to an answer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fi_doctor.explaining import answering, events, lines, stream, telling, tracebacks, usage
from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.matching import matches
from fi_doctor.explaining.ranking import candidate, ranked
from fi_doctor.explaining.stream import Readable
from fi_doctor.knowledge import faults
from fi_doctor.model import Event, Explanation, LogFact, LogFacts, Read, Used

# What is kept of each kind: a log that was made to harm has millions of lines that differ.
_MOST = 5_000
_TOLD = 3  # lines that are the same but for numbers: those after them tell no new fact


class Source(NamedTuple):
    """One input."""

    name: str
    stream: Readable
    is_environment: bool = False  # it tells of the machine; what looks like an error in it is none of this log


class Seen:
    """What was found in the inputs, in their order."""

    def __init__(self) -> None:
        self.lines: dict[bytes, list[Line]] = {}  # for each literal of a fault those that have it
        self.told: list[LogFact] = []
        self.errors: list[Event] = []
        self.used: list[Used] = []
        self.read: list[Read] = []


def diagnose(
    sources: Iterable[Source],
    *,
    known: tuple[LogFact, ...] = (),
    left_out: frozenset[str] = frozenset(),
    folder: Path = faults.FOLDER,
) -> Explanation:
    """What the logs tell.

    known: facts of this machine or of a report, which count before those of the logs. left_out: ids of faults that are
    not looked for, to estimate what the rest is worth.
    """
    signs = faults.literals(folder)
    seen = Seen()
    for source in sources:
        _read(source, signs, seen)
    facts = LogFacts(facts=(*known, *seen.told))
    placed = {literal.decode(): those for literal, those in seen.lines.items()}
    paths = {path for literal in seen.lines for path in signs[literal] if path.stem not in left_out}
    candidates = [
        one
        for fault in faults.load(paths, folder)
        if (one := candidate(fault, matches(fault, placed), facts)) is not None
    ]
    causes = ranked(candidates)
    settings = faults.settings(folder) if any(mend.setting for one in causes for mend in one.fault.fix) else ()
    return answering.answer(
        answering.Findings(
            causes=causes,
            candidates=tuple(candidates),
            facts=facts,
            errors=events.together(seen.errors),
            used=usage.once(seen.used),
            read=tuple(seen.read),
            settings=settings,
        )
    )


def _read(source: Source, signs: dict[bytes, list[Path]], seen: Seen) -> None:
    """Read an input once, and keep what tells something."""
    reading, frames, kept = stream.Reading(), tracebacks.Frames(source.name), 0
    facts, using, failing = telling.literals(), usage.literals(), events.literals() | signs.keys()
    wanted = facts if source.is_environment else facts | using | failing | {tracebacks.LITERAL}
    for hit in stream.hits(source.stream, wanted, reading):
        own = failing.intersection(hit.literals)
        if tracebacks.LITERAL in hit.literals:
            frames.add(hit)
        if hit.alike > _TOLD and not own:
            continue
        line = lines.read(source.name, hit.number, hit.raw, place=len(seen.read))
        if hit.alike <= _TOLD and len(seen.told) < _MOST:
            seen.told += telling.told(line, hit.literals)
        if source.is_environment:
            continue
        if hit.alike <= _TOLD and len(seen.used) < _MOST:
            seen.used += usage.used(line, hit.literals)
        if own and len(seen.errors) < _MOST and (event := events.read(line)) is not None:
            seen.errors.append(event)
        if (signed := signs.keys() & own) and kept < _MOST:
            kept += 1
            placed = frames.placed(line)
            for literal in signed:
                seen.lines.setdefault(literal, []).append(placed)
    seen.read.append(Read(file=source.name, lines=reading.lines, bytes=reading.bytes))
