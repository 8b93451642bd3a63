"""From streams of logs to an answer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fi_doctor.explaining import answering, lines, stream, telling
from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.matching import matches
from fi_doctor.explaining.ranking import candidate, ranked
from fi_doctor.knowledge import faults
from fi_doctor.model import Explanation, LogFact, LogFacts, Read


class Source(NamedTuple):
    """One input: a log, or what a reporter's environment is told by."""

    name: str
    stream: BinaryIO


def diagnose(
    sources: Iterable[Source], *, known: tuple[LogFact, ...] = (), folder: Path = faults.FOLDER
) -> Explanation:
    """What the logs tell. known: facts of this machine or of a report, which count before those of the logs."""
    signs, tellers = faults.literals(folder), telling.literals()
    found: list[Line] = []
    told: list[LogFact] = list(known)
    hit: set[bytes] = set()
    read: list[Read] = []
    for source in sources:
        reading = stream.Reading()
        for spot in stream.hits(source.stream, (*signs, *tellers), reading):
            line = lines.read(source.name, spot.number, spot.raw)
            told += telling.told(line, spot.literals)
            if own := signs.keys() & set(spot.literals):
                hit |= own
                found.append(line)
        read.append(Read(file=source.name, lines=reading.lines, bytes=reading.bytes))
    facts = LogFacts(facts=tuple(told))
    seen = faults.load({path for literal in hit for path in signs[literal]}, folder)
    candidates = [one for fault in seen if (one := candidate(fault, matches(fault, found), facts)) is not None]
    causes = ranked(candidates)
    settings = faults.settings(folder) if any(mend.setting for one in causes for mend in one.fault.fix) else ()
    return answering.answer(causes, candidates, facts, tuple(read), settings)
