"""Which of the faults whose signs were seen are causes, the likeliest first."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor.conditions import Truth
from fi_doctor.conditions.logs import LOG, LogView
from fi_doctor.explaining import contradicting, filling, overcoming, tying
from fi_doctor.explaining.contradicting import Belied
from fi_doctor.explaining.events import is_following
from fi_doctor.explaining.lines import Level, Line
from fi_doctor.explaining.matching import Match
from fi_doctor.explaining.servers import Servers
from fi_doctor.model import Confidence, Event, Fault, LogFact, LogFacts, Strength

_LONGEST = 300  # characters of what a pattern captures
_BEGINNING = 80  # characters of a line in which a message at INFO has its words: what comes after may be quoted


class Candidate(NamedTuple):
    """A fault that may be a cause here."""

    fault: Fault
    matches: tuple[Match, ...]
    view: LogView
    truth: Truth
    confidence: Confidence
    despite: Belied | None = None  # a fact that does not agree with its lines
    is_anothers: bool = False  # whether what decides is FlashInfer's only where it is named, and it is not
    is_tied: bool = True  # whether a line says that it is FlashInfer's, where others bring about the same
    beside: str = ""  # the container that its lines are of, where no engine runs in it and one does in another
    owner: str = ""  # whose it is, where a line or a traceback names another one: "xgrammar"

    @property
    def is_follow_on(self) -> bool:
        """Whether none of its signs is of its own."""
        return all(match.sign.strength is Strength.FOLLOWS_ON for match in self.matches)

    @property
    def is_on_follow_ons(self) -> bool:
        """Whether its signs are all in lines that other errors bring about: no cause where another one stands."""
        return all(is_following(match.line.text) for match in self.matches)

    @property
    def is_warned(self) -> bool:
        """Whether its strongest signs are in lines that a logger calls no error, or ended nothing: the log went on."""
        return all(match.line.level in (Level.INFO, Level.WARNING) or match.line.overcome for match in _deciding(self))

    @property
    def overcome(self) -> str:
        """Why none of its strongest signs ended anything, where a line says so."""
        return (
            next((match.line.overcome for match in _deciding(self) if match.line.overcome), "")
            if self.is_warned
            else ""
        )

    @property
    def later(self) -> int:
        """The line in which a later start serves, where all its strongest signs are of one that came to nothing."""
        found = [match.line.later for match in _deciding(self)]
        return found[-1] if all(found) and not self.overcome else 0


def candidates(
    found: Iterable[tuple[Fault, tuple[Match, ...]]],
    facts: LogFacts,
    errors: Iterable[Event] = (),
    given: tuple[LogFact, ...] = (),
    servers: Servers | None = None,
) -> list[Candidate]:
    """The faults with signs of which `when` is not known to be false.

    errors: those of the log. given: facts that are not the log's own. Where they alone rule out all that decides in a
    line, they are not of what wrote it. servers: those that wrote the logs; the facts of one are none of another.
    """
    wrote = servers or Servers()
    kinds = tuple(dict.fromkeys(error.kind for error in errors if not error.follows))
    seen = [
        (fault, tuple(map(_weighed, matches))) for fault, every in found for matches in wrote.apart(every) if matches
    ]
    each = []
    for fault, matches in seen:
        near = wrote.fitting(filling.of_files(facts, _files(matches), given), matches, given)
        near = wrote.of_rank(near, [match for match in matches if match.sign.strength is not Strength.FOLLOWS_ON])
        each.append((fault, matches, near, _agreeing(fault, matches, near, kinds, given)))
    standing = [one for *_, one in each if one is not None]
    decided = {_place(match) for one in standing if not one.is_follow_on for match in _deciding(one)}
    others = contradicting.tools(facts, given)
    for fault, matches, near, one in each:
        own = [match for match in matches if match.sign.strength is Strength.DECIDES]
        if one is None and own and not any(_place(match) in decided for match in own):
            against = (_despite(fault, matches, near, kinds, other) for other in others)
            standing += [one for one in against if one is not None][:1]
    return [one._replace(beside=wrote.beside(one.matches)) for one in standing]


def _agreeing(
    fault: Fault, matches: tuple[Match, ...], facts: LogFacts, kinds: tuple[str, ...], given: tuple[LogFact, ...]
) -> Candidate | None:
    """A fault by the facts, less those to which its lines give the lie."""
    fit = contradicting.fitting(matches, facts)
    against = contradicting.belied(fault, matches, fit, given)
    return _despite(fault, matches, fit, kinds, against) if against else _candidate(fault, matches, fit, kinds)


def _despite(
    fault: Fault, matches: tuple[Match, ...], facts: LogFacts, kinds: tuple[str, ...], against: Belied
) -> Candidate | None:
    """A fault without facts that do not agree with its lines: never sure, since one of both is wrong."""
    left = contradicting.without(facts, against)
    if (first := contradicting.belied(fault, matches, facts, ())) is not None:
        left = contradicting.without(left, first)
    one = _candidate(fault, matches, left, kinds)
    if one is None:
        return None
    confidence = min(one.confidence, Confidence.MEDIUM, key=lambda confidence: confidence.rank)
    return one._replace(confidence=confidence, despite=against)


def _candidate(fault: Fault, matches: tuple[Match, ...], facts: LogFacts, kinds: tuple[str, ...]) -> Candidate | None:
    named = frozenset(match.sign.name for match in matches if match.sign.name)
    view = LogView(facts, _captured(matches), named, kinds)
    truth = LOG.holds(fault.when, view) if fault.when else Truth.YES
    if truth is Truth.UNKNOWN and contradicting.is_implied(fault.when, matches, view):
        truth = Truth.YES
    return None if truth is Truth.NO else Candidate(fault, matches, view, truth, _confidence(matches, truth))


def _files(matches: tuple[Match, ...]) -> frozenset[str]:
    """Those with the lines that decide, else with all that fit."""
    deciding = [match for match in matches if match.sign.strength is Strength.DECIDES]
    return frozenset(match.line.file for match in deciding or matches)


def _place(match: Match) -> tuple[int, int]:
    return match.line.place, match.line.number


def ranked(
    candidates: Iterable[Candidate],
    errors: Iterable[Event] = (),
    serving: Container[str] = (),
    ties: Iterable[Line] = (),
    *,
    is_failing: bool = False,
) -> tuple[Candidate, ...]:
    """Those that are causes, each cause once, the likeliest first.

    errors: those of the log. serving: the files in which a server says that it has started. ties: lines about
    FlashInfer. is_failing: whether a container with an engine tells an error; then those of others are never first.
    """
    every, own, about = list(candidates), list(errors), tying.standing(ties)
    if not is_failing:
        return _ranked(every, own, serving, about)
    first = _ranked((one for one in every if not one.beside), own, serving, about)
    others = _ranked((one for one in every if one.beside), own, serving, about)
    return (*first, *others) if first else ()


def _ranked(
    candidates: Iterable[Candidate], errors: list[Event], serving: Container[str], ties: list[Line]
) -> tuple[Candidate, ...]:
    causes = [one for one in candidates if not one.is_follow_on]
    if any(not one.is_on_follow_ons for one in causes):
        causes = [one for one in causes if not one.is_on_follow_ons]
    if any(not (one.fault.general or one.is_warned) for one in causes):
        causes = [one for one in causes if not one.fault.general]
    own = [error for error in errors if not error.follows]
    causes = [_lessened(_doubted(one, causes), own, serving) for one in causes]
    standing = [one for one in causes if not any(_beats(other, one) for other in causes)]
    standing = [_tied(one, ties) for one in standing]
    best: dict[str, Candidate] = {}
    # The logs of several ranks are of one time; what stands first in the second file may be the first of all.
    timed = all(_deciding(one)[0].line.time for one in standing)
    for one in sorted(standing, key=lambda one: _order(one, timed=timed)):
        best.setdefault(one.fault.cause, one)
    return tuple(best.values())


def _weighed(match: Match) -> Match:
    """What a logger calls information tells no fault by itself, unless that is how the fault is told."""
    is_quiet = match.line.is_quiet and not match.line.is_cut
    if is_quiet and match.sign.strength is Strength.DECIDES and not match.sign.info:
        return match._replace(sign=replace(match.sign, strength=Strength.SUPPORTS))
    if match.line.level is not Level.INFO:
        return match
    if match.sign.info and match.line.text.find(match.sign.text) < _BEGINNING:
        return match
    return match._replace(sign=replace(match.sign, strength=Strength.FOLLOWS_ON))


def _captured(matches: tuple[Match, ...]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for match in matches:
        for name, value in match.captured.items():
            found.setdefault(name, {})[value[:_LONGEST]] = None
    return {name: tuple(values) for name, values in found.items()}


def _confidence(matches: tuple[Match, ...], truth: Truth) -> Confidence:
    deciding = [match for match in matches if match.sign.strength is Strength.DECIDES]
    if deciding:
        is_sure = truth is Truth.YES and not all(match.line.is_cut for match in deciding)
        return Confidence.HIGH if is_sure else Confidence.MEDIUM
    if all(match.line.is_quiet for match in matches) and len({_place(match) for match in matches}) == 1:
        return Confidence.LOW
    supports = {match.sign.text for match in matches if match.sign.strength is Strength.SUPPORTS}
    return Confidence.MEDIUM if len(supports) > 1 and truth is Truth.YES else Confidence.LOW


def _doubted(one: Candidate, causes: list[Candidate]) -> Candidate:
    """The same, less sure where its lines may as well be of another cause, of which a condition is not known."""
    if one.confidence is not Confidence.HIGH:
        return one
    lines = {_place(match) for match in _deciding(one)}
    rivals = (
        other
        for other in causes
        if other.truth is Truth.UNKNOWN
        and other.fault.cause != one.fault.cause
        and other.fault.id not in one.fault.beats
    )
    shared = any(lines & {_place(match) for match in _deciding(other)} for other in rivals)
    return one._replace(confidence=Confidence.MEDIUM) if shared else one


def _lessened(one: Candidate, errors: list[Event], serving: Container[str]) -> Candidate:
    """The same, hardly sure where it was only warned of, and the server started, or ended of another error."""
    if not one.is_warned:
        return one
    told = {(match.line.file, match.line.number) for match in one.matches}
    is_ended = any((error.file, error.line) not in told for error in errors)
    is_serving = not errors and any(match.line.file in serving for match in _deciding(one))
    is_over = is_ended or is_serving or one.overcome in overcoming.FOR_SURE
    return one._replace(confidence=Confidence.LOW) if is_over else one


def _tied(one: Candidate, ties: list[Line]) -> Candidate:
    """The same, less sure where it blames FlashInfer for what no line says to be its own."""
    if not one.fault.flashinfer_at_fault:
        return one
    if tying.is_anothers(_deciding(one)):
        # Where a traceback stands before it, that names others; else nothing says whose it is.
        confidence = Confidence.LOW if _is_of_flashinfer(one.fault) else one.confidence
        is_tied = any(match.line.frame for match in _deciding(one))
        return one._replace(is_anothers=True, is_tied=is_tied, confidence=confidence)
    if owner := tying.owner(_deciding(one), ties):
        most = Confidence.LOW if _is_of_flashinfer(one.fault) else Confidence.MEDIUM
        confidence = min(one.confidence, most, key=lambda confidence: confidence.rank)
        if all(tying.is_of_its_source(match) for match in _deciding(one)):
            confidence = one.confidence
        return one._replace(is_anothers=True, owner=owner, confidence=confidence)
    most = tying.limit(_deciding(one), ties)
    if most.rank < one.confidence.rank:
        return one._replace(confidence=most, is_tied=False)
    is_guess = one.confidence is Confidence.LOW and not tying.is_named(one.matches, ties)
    return one._replace(is_tied=False) if is_guess else one


def _is_of_flashinfer(fault: Fault) -> bool:
    """Whether only FlashInfer could bring about what a fault is called: a guess, where the error is another's."""
    return "FlashInfer" in fault.title and not fault.otherwise


def _beats(one: Candidate, other: Candidate) -> bool:
    return other.fault.id in one.fault.beats and one.confidence.rank >= other.confidence.rank


def _deciding(one: Candidate) -> list[Match]:
    """Its strongest signs, in the order of the log."""
    own = [match for match in one.matches if match.sign.strength is not Strength.FOLLOWS_ON]
    strongest = max(match.sign.strength.rank for match in own)
    return [match for match in own if match.sign.strength.rank == strongest]


def _order(one: Candidate, *, timed: bool) -> tuple[object, ...]:
    """Errors before warnings, surer first, then those seen first, then those of which more is known."""
    deciding = _deciding(one)
    is_warning = one.is_warned
    longest = max(len(match.sign.text) for match in deciding)
    first = min((match.line for match in deciding), key=lambda line: line.time) if timed else deciding[0].line
    known = sum(LOG.holds(part, one.view) is Truth.YES for part in LOG.parts(one.fault.when)) if one.fault.when else 0
    place = (first.time if timed else "", first.place, first.number)
    return (is_warning, -one.confidence.rank, bool(one.later), place, -known, -longest, one.fault.id)
