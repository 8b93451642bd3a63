"""From streams of logs to an answer."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable
from pathlib import Path
from typing import NamedTuple

from fi_doctor.explaining import (
    answering,
    crashing,
    events,
    fences,
    harmless,
    lines,
    overcoming,
    ranking,
    spoken,
    stream,
    telling,
    tracebacks,
    tying,
    usage,
)
from fi_doctor.explaining.filling import filled
from fi_doctor.explaining.keeping import Kept
from fi_doctor.explaining.lines import Level, Line
from fi_doctor.explaining.matching import matches
from fi_doctor.explaining.ranking import Candidate
from fi_doctor.explaining.servers import Servers
from fi_doctor.explaining.stream import Hit, Readable
from fi_doctor.knowledge import faults
from fi_doctor.model import Confidence, Event, Explanation, LogFact, LogFacts, Read, Used, secrets

# What is kept of each kind: a log that was made to harm has millions of lines that differ.
_MOST = 5_000
_TOLD = 3  # lines that are the same but for numbers: those after them tell no new fact


# What stands in lines that say of others what they are.
_OF_OTHERS = tying.LITERALS | overcoming.LITERALS
_WAYS = stream.Ways(events.literals() | tracebacks.LITERALS, overcoming.LITERALS | events.STARTED)
_SURROUNDING = _OF_OTHERS | events.STARTED | tracebacks.LITERALS | {fences.LITERAL}


class Source(NamedTuple):
    """One input."""

    name: str
    stream: Readable
    is_environment: bool = False  # it tells of the machine; what looks like an error in it is none of this log


class Seen:
    """What was found in the inputs, in their order."""

    def __init__(self) -> None:
        self.kept = Kept()  # lines with a literal of a fault
        self.told: list[LogFact] = []
        self.errors: list[Event] = []
        self.used: list[Used] = []
        self.read: list[Read] = []
        self.fenced: set[int] = set()  # places of texts that tell an error within code fences
        self.of_requests: frozenset[tuple[str, int]] = frozenset()  # errors after which the server answered
        self.serving: set[str] = set()  # files in which a server says that it has started
        self.ties: list[Line] = []  # about FlashInfer, and about builds of others
        self.servers = Servers()
        self.overcome = overcoming.Overcome()
        self.given: list[LogFact] = []  # of environments
        self.environments: list[str] = []  # their files


def diagnose(
    sources: Iterable[Source],
    *,
    known: tuple[LogFact, ...] = (),
    left_out: frozenset[str] = frozenset(),
    folder: Path = faults.FOLDER,
) -> Explanation:
    """What the logs tell.

    known: facts of this machine or of a report, which count where the logs tell nothing, like those of environments.
    left_out: ids of faults that are not looked for, to estimate what the rest is worth.
    """
    signs = faults.literals(folder)
    seen = Seen()
    for source in sources:
        _read(source, signs, seen)
    given = (*known, *seen.given)
    telling_files = {fact.file for fact in given}
    silent = tuple(dict.fromkeys(name for name in seen.environments if name not in telling_files))
    facts = LogFacts(facts=filled(tuple(seen.told), given))
    paths = {path for literal in seen.kept.literals for path in signs[literal] if path.stem not in left_out}
    ends = {place: read.lines for place, read in enumerate(seen.read)}
    own = crashing.weighed(fences.weighed(seen.kept.placed, seen.fenced), ends)
    placed = overcoming.weighed(own, seen.overcome)
    files = [read.file for read in seen.read]
    got_over = frozenset((files[place], line) for place, line in seen.overcome.got_over)
    each = harmless.told(seen.errors, seen.of_requests, got_over)
    slight = frozenset((one.file, one.line) for one in each if one.kind == harmless.REQUEST)
    errors = events.together(each)
    ended = harmless.left(errors)
    known_faults = faults.load(paths, folder, is_checked=folder == faults.FOLDER)
    found = ranking.candidates(
        ((fault, overcoming.standing(matches(fault, placed), slight)) for fault in known_faults),
        facts,
        ended,
        given,
        seen.servers,
    )
    causes = ranking.ranked(found, ended, seen.serving, seen.ties, is_failing=seen.servers.is_failing)
    causes = tuple(one for one in causes if not _is_of_request(one, slight))
    settings = faults.settings(folder) if causes else ()
    return answering.answer(
        answering.Findings(
            causes=causes,
            candidates=tuple(found),
            facts=facts,
            given=given,
            errors=errors,
            ended=ended,
            used=usage.once(seen.used),
            read=tuple(seen.read),
            settings=settings,
            left_out=seen.kept.left_out,
            silent=silent,
        )
    )


def _is_of_request(one: Candidate, of_requests: Container[tuple[str, int]]) -> bool:
    """Whether a guess at what is not FlashInfer's rests on requests alone after which the server answered others."""
    if one.fault.flashinfer_at_fault or one.confidence is not Confidence.LOW:
        return False
    return all((match.line.file, match.line.number) in of_requests for match in one.matches)


def _is_sent(line: Line, hit: Hit) -> bool:
    """Whether a line is, or goes on with, what a client sent or was sent, or somebody said."""
    if spoken.is_source(line.text) or (hit.above and spoken.is_in_block(hit.above, hit.raw)):
        return True
    is_request = spoken.is_request(line)
    if is_request or line.time or line.level.value or not hit.head:
        return is_request
    is_open, is_quoting = _goes_on(hit.head)
    return (is_open or (is_quoting and not hit.is_closed)) and not lines.is_record(hit.raw)


def _weighed(line: Line, hit: Hit, signed: Iterable[bytes], *, is_fenced: bool) -> Line:
    """The line, with whether it is only called information, or may be what somebody said in it or in those before."""
    if line.level is not Level.NONE:
        return line
    is_turn = hit.is_in_turn and (hit.is_in_answer or not is_fenced)
    is_asked = not line.time and ((bool(hit.head) and _is_asked(hit.head)) or is_turn)
    at = min((at for sign in signed if (at := line.text.find(sign.decode())) >= 0), default=0)
    return line._replace(is_quiet=is_asked or spoken.is_quiet(line.text) or spoken.is_prose(line.text[:at]))


@functools.lru_cache(maxsize=64)
def _is_asked(head: bytes) -> bool:
    return spoken.is_asked(lines.read("", 0, head.rstrip()))


@functools.lru_cache(maxsize=64)
def _goes_on(head: bytes) -> tuple[bool, bool]:
    """Whether the lines after a record's first one are of the same text; many of them ask for the same one."""
    line = lines.read("", 0, head.rstrip())
    return spoken.is_open(line), spoken.is_quoting(line)


class _Watch:
    """What is seen from line to line of one input."""

    def __init__(self, name: str) -> None:
        self.frames = tracebacks.Frames(name)
        self.fenced = fences.Fences()
        self.cut = crashing.Cut()
        self.slight = harmless.Harmless()
        self.frame: Line | None = None  # the last one of a traceback
        self.is_told = False  # whether an error is told

    def add(self, hit: Hit) -> None:
        self.frames.add(hit)
        self.fenced.add(hit)
        self.cut.add(hit)


def _read(source: Source, signs: dict[bytes, list[Path]], seen: Seen) -> None:
    """Read an input once, and keep what tells something."""
    reading, watch = stream.Reading(), _Watch(source.name)
    facts, using, failing = telling.literals(), usage.literals(), events.literals() | signs.keys()
    wanted = facts if source.is_environment else facts | using | failing | _SURROUNDING
    seen.environments += [source.name] if source.is_environment else []
    for hit in stream.hits(source.stream, wanted, reading, _WAYS):
        if events.STARTED.intersection(hit.literals):
            seen.serving.add(source.name)
            watch.slight.serving(hit.number, hit.raw)
        own = failing.intersection(hit.literals)
        if hit.alike:
            watch.add(hit)
        if (hit.alike > _TOLD or not hit.alike) and not own | _OF_OTHERS.intersection(hit.literals):
            continue
        line = lines.read(source.name, hit.number, hit.raw, place=len(seen.read))
        if source.is_environment:
            seen.given += telling.told(line, hit.literals) if len(seen.given) < _MOST and hit.alike else ()
        elif not hit.alike:
            _mark(line, hit, seen)
        elif not _is_sent(line, hit):
            watch.frame = watch.frame if tracebacks.LITERALS.isdisjoint(hit.literals) else line
            for raw in lines.parts(spoken.unspoken(line)):
                _keep(raw, hit, seen)
                _judge(_shown(raw) if own else raw, hit, own, frozenset(filter(signs.__contains__, own)), (watch, seen))
    seen.overcome.end(watch.slight.answered)
    told = {(one.file, one.line) for one in seen.errors}
    requests = watch.slight.requests()
    seen.of_requests |= {(one.file, one.line) for one in requests}
    more = [*(one for one in requests if (one.file, one.line) not in told), *watch.slight.stopped]
    seen.errors += more
    if watch.frame is not None and not (watch.is_told or more):
        ended = events.cut_off(_shown(watch.frame))
        seen.errors += [ended] if ended is not None else []
    seen.read.append(Read(file=source.name, lines=reading.lines, bytes=reading.bytes))


def _judge(line: Line, hit: Hit, own: frozenset[bytes], signed: frozenset[bytes], into: tuple[_Watch, Seen]) -> None:
    """Keep a line that tells an error, or has the literal of one."""
    watch, seen = into
    is_fenced = watch.fenced.is_inside
    is_error = bool(own) and _note(line, seen, is_fenced=is_fenced)
    error = seen.errors[-1] if is_error else None
    watch.is_told |= is_error
    watch.slight.add(line, hit, error)
    if signed:
        weighed = watch.cut.placed(_weighed(line, hit, signed, is_fenced=is_fenced), hit, is_fenced=is_fenced)
        seen.kept.add(watch.fenced.placed(watch.frames.placed(weighed)), signed)
    if signed or is_error:
        seen.overcome.add(line, error)
        watch.frames.end(line)


def _shown(line: Line) -> Line:
    """The line without secrets: before it is cut, since half of one may not look so."""
    return line._replace(text=secrets.hidden(line.text))


def _note(line: Line, seen: Seen, *, is_fenced: bool) -> bool:
    """Whether a line tells an error, which is kept."""
    event = events.read(line)
    if event is None:
        return False
    if len(seen.errors) >= _MOST:  # what ends a program is among the last ones
        del seen.errors[_MOST // 2]
    seen.errors.append(event)
    seen.servers.fail(line, event)
    seen.fenced |= {line.place} if is_fenced else set()
    return True


def _keep(line: Line, hit: Hit, seen: Seen) -> None:
    """Keep what a line tells of FlashInfer, the machine and the server."""
    if len(seen.ties) < _MOST and tying.LITERALS.intersection(hit.literals) and tying.is_telling(line):
        seen.ties.append(line)
    _mark(line, hit, seen)
    if hit.alike <= _TOLD and len(seen.told) < _MOST:
        facts = tuple(telling.told(line, hit.literals))
        seen.told += facts
        seen.servers.add(line, facts)
    if hit.alike <= _TOLD and len(seen.used) < _MOST:
        seen.used += usage.used(line, hit.literals)


def _mark(line: Line, hit: Hit, seen: Seen) -> None:
    if overcoming.LITERALS.intersection(hit.literals):
        seen.overcome.mark(line)
