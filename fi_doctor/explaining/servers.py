"""Which server of a log a line is of, where several wrote into it: what one of them tells is not known of another."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.matching import Match, is_same_rank
from fi_doctor.model import Event, LogFact, LogFacts

# What each server says once of itself, when it starts. Sources: vllm/entrypoints/openai/api_server.py,
# vllm/entrypoints/utils.py, sglang/srt/entrypoints/engine.py.
_VERSION = re.compile(r".{0,40}\bvLLM API server version (?P<said>\S+)", re.ASCII)
_GIVEN = re.compile(r".{0,40}\b(?:non-default args: |server_args=)", re.ASCII)
_CHOSEN = re.compile(r"\brandom_seed['\"]?[=:] ?\d+")  # anew at each start
# What a server was started with, which another one was not.
_OWN = ("argument", "env", "model", "engine")
# What is of its installation: the same for servers of one release.
_INSTALLED = ("package", "installed", "architectures")
_ONE = {"gpu": "sm"}  # two words for the same
_OF_GPUS = ("gpu", "sm")
_SEVERAL = 2
# Containers that are of an engine whatever their lines tell, and what differs in the names of those of one kind.
_SERVING = re.compile(r"vllm|sglang|trt-?llm|llm|engine|worker|leader|prefill|decode|(?:^|[-/ ])(?:server|model)\b")
_NUMBERED = re.compile(r"(?:-[a-z0-9]*\d[a-z0-9]*)+(?= |/|$)")
_MOST = 1_000  # starts in one log


class Server(NamedTuple):
    """Those lines of a log that are of one server: of one container, after starts with the same arguments."""

    file: str
    origin: str
    start: int  # the first of its starts among those in the log, from 1; 0: what stands before any


class _Start(NamedTuple):
    line: int
    said: dict[str, str]  # kind of what it says of itself -> that


class Servers:
    """The servers of all logs: first these are read, then it is asked."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], list[_Start]] = {}
        self._origins: dict[tuple[str, int], str] = {}  # of lines that tell facts
        self._ranks: dict[tuple[str, int], str] = {}  # of lines that tell GPUs
        self._engines: set[tuple[str, str]] = set()  # containers in which one runs
        self._failed: set[tuple[str, str]] = set()  # that tell an error
        self._firsts: dict[tuple[str, str], list[int]] = {}

    def add(self, line: Line, facts: Sequence[LogFact]) -> None:
        """Look at a line of a log. facts: what it tells."""
        if line.origin and facts:
            self._origins[line.file, line.number] = line.origin
        if line.rank and any(fact.name in _OF_GPUS for fact in facts):
            self._ranks[line.file, line.number] = line.rank
        if any(fact.name == "engine" for fact in facts):
            self._engines.add((line.file, line.origin))
        version = _VERSION.match(line.text)
        if version is None and _GIVEN.match(line.text) is None:
            return
        kind, said = ("arguments", _CHOSEN.sub("", line.text)) if version is None else ("version", version["said"])
        starts = self._starts.setdefault((line.file, line.origin), [])
        if (not starts or kind in starts[-1].said) and len(starts) < _MOST:
            starts.append(_Start(line.number, {}))
        starts[-1].said.setdefault(kind, said)

    def fail(self, line: Line, event: Event) -> None:
        """Note an error that a line tells."""
        if not event.follows:
            self._failed.add((line.file, line.origin))

    @property
    def is_failing(self) -> bool:
        """Whether a container in which an engine runs tells an error."""
        return bool(self._failed & self._engines)

    def beside(self, matches: Sequence[Match]) -> str:
        """The container that lines are of, where no engine runs in it, and one runs in another; else ""."""
        line = matches[0].line
        others = {origin for file, origin in self._engines if file == line.file and origin}
        if not line.origin or not others or _SERVING.search(line.origin) is not None:
            return ""
        return "" if _stem(line.origin) in map(_stem, others) else line.origin

    def apart(self, matches: tuple[Match, ...]) -> tuple[tuple[Match, ...], ...]:
        """Signs of a fault, those of each server by themselves."""
        is_several = self._are_several({match.line.file for match in matches})
        found: dict[tuple[Server | None, str], list[Match]] = {}
        for match in matches:
            line = match.line
            own = self._of(line.file, line.number, line.origin) if is_several else None
            found.setdefault((own, self.beside((match,))), []).append(match)
        return tuple(map(tuple, found.values()))

    def fitting(self, facts: LogFacts, matches: Sequence[Match], given: tuple[LogFact, ...]) -> LogFacts:
        """What holds for lines of one server: what it tells itself, and of the others what all of them share."""
        if matches and self.beside(matches):
            origin = matches[0].line.origin
            return LogFacts(facts=tuple(fact for fact in facts.facts if not self._is_of_another(fact, origin)))
        if not matches or not self._are_several({match.line.file for match in matches}):
            return facts
        line = matches[0].line
        own = self._of(line.file, line.number, line.origin)
        of = {fact: self._of(fact.file, fact.line) for fact in facts.facts if fact not in given}
        told = {_subject(fact) for fact, server in of.items() if server == own}
        others: dict[tuple[str, str, str], set[str]] = {}
        for fact, server in of.items():
            if server != own and _subject(fact) not in told and self._is_shared(fact, server, own):
                others.setdefault((*_subject(fact), fact.name), set()).add(fact.value)
        shared = {subject for subject, values in others.items() if len(values) == 1}
        kept = {fact for fact, server in of.items() if server == own or (*_subject(fact), fact.name) in shared}
        aside = {fact for fact in of if fact not in kept}
        return LogFacts(facts=tuple(fact for fact in facts.facts if fact not in aside))

    def of_rank(self, facts: LogFacts, matches: Sequence[Match]) -> LogFacts:
        """The facts, those about GPUs only of the rank that signs are of, where that rank tells its own."""
        ranks = {match.line.rank for match in matches}
        if len({fact.value for fact in facts.of("sm")}) < _SEVERAL or len(ranks) != 1:
            return facts
        [rank] = ranks
        told = [fact for fact in facts.facts if fact.name in _OF_GPUS]
        own = [fact for fact in told if rank and is_same_rank(rank, self._ranks.get((fact.file, fact.line), ""))]
        if not any(fact.name == "sm" for fact in own):
            return facts
        return LogFacts(facts=tuple(fact for fact in facts.facts if fact not in told or fact in own))

    def _is_of_another(self, fact: LogFact, own: str) -> bool:
        told_by = self._origins.get((fact.file, fact.line), own)
        return told_by != own and fact.name in (*_OWN, *_INSTALLED)

    def _are_several(self, files: set[str]) -> bool:
        """Whether more than one server wrote into any of these."""
        named = {(place, first) for place in self._starts if place[0] in files for first in self._first(place)}
        return len(named) >= _SEVERAL

    def _of(self, file: str, number: int, origin: str = "") -> Server:
        place = (file, origin or self._origins.get((file, number), ""))
        before = bisect_right(self._starts.get(place, ()), number, key=lambda start: start.line)
        return Server(*place, self._first(place)[before - 1] if before else 0)

    def _first(self, place: tuple[str, str]) -> list[int]:
        """For each start the first one that says the same."""
        if place not in self._firsts:
            first: dict[tuple[tuple[str, str], ...], int] = {}
            starts = self._starts.get(place, ())
            self._firsts[place] = [
                first.setdefault(tuple(sorted(start.said.items())), at) for at, start in enumerate(starts, 1)
            ]
        return self._firsts[place]

    def _is_shared(self, fact: LogFact, other: Server, own: Server) -> bool:
        """Whether what another server tells may be known of this one."""
        if not other.start or not own.start:
            return True
        is_one_release = self._release(other) == self._release(own) != ""
        return fact.name not in _OWN and (is_one_release or fact.name not in _INSTALLED)

    def _release(self, server: Server) -> str:
        return self._starts[server.file, server.origin][server.start - 1].said.get("version", "")


def _stem(origin: str) -> str:
    return _NUMBERED.sub("", origin)


def _subject(fact: LogFact) -> tuple[str, str]:
    return (_ONE.get(fact.name, fact.name), fact.key)
