"""Errors that ended nothing: a server served after them, they were expected or ignored, or came of an earlier one."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from fi_doctor.explaining.lines import Level, Line
from fi_doctor.explaining.matching import Match
from fi_doctor.explaining.patterns import search
from fi_doctor.explaining.tracebacks import is_raised
from fi_doctor.model import Event, Strength

# What servers say once, when they begin to serve. Sources: uvicorn/server.py and lifespan/on.py,
# sglang/srt/entrypoints/http_server.py, tritonserver: src/grpc/grpc_server.cc.
_SERVING = (
    *("Application startup complete", "Uvicorn running on ", "The server is fired up"),
    *("Started GRPCInferenceService", "Started HTTPService"),
)
# What begins a server, or tells that one is gone: what stands before is of another one than what serves after it.
_BEGUN = ("vLLM API server version", "server_args=")
_ANOTHER = (
    *(*_BEGUN, "Engine core initialization failed", "EngineDeadError"),
    *("EngineCore failed to start", "EngineCore encountered a fatal", "WorkerProc initialization failed"),
    *("died unexpectedly", "Scheduler hit an exception", "scheduler is dead", "Failed core proc"),
)
_HANDLED = "During handling of the above exception"  # Python, of an exception that is raised in `except`
_IGNORED = "Exception ignored in"  # Python, of what is raised where nothing can catch it
LITERALS = frozenset(word.encode() for word in (*_SERVING, *_ANOTHER, _HANDLED, _IGNORED))
_SERVED, _WENT_ON = "a server served after it", "Python ignored it, and went on"
_ANSWERED = "a server served after it, and answered requests"
_TUNED = "the tuner went on with another kernel"
FOR_SURE = (_SERVED, _ANSWERED, _WENT_ON, _TUNED)  # whatever else the log tells
# What pip says of packages that it installs all the same. Source: pip/_internal/commands/install.py.
_INSTALLED = ", but you have "
# A program that looks something up expects not to find it.
_LOOKUP = r"^\s*(?:[\w.]+\.)?(?:KeyError|AttributeError|IndexError|LookupError|Stop(?:Async)?Iteration|Empty)\b"
# After these the context or the memory of the GPU is gone, and what cleans up fails for it.
STICKY = (
    r"(?i)CUDA(?:RT)? error|CUDA_ERROR_|cudaError|CUBLAS_STATUS|CUDNN_STATUS|NCCL error|illegal memory access"
    r"|device-side assert|misaligned address|launch failure|OutOfMemoryError|AcceleratorError"
)
# What FlashInfer's tuner says of kernels that it tries and leaves out. Sources: flashinfer-python 0.6.13:
# flashinfer/autotuner.py, 0.6.18.post1: flashinfer/autotuner/autotuner.py.
_TUNING = (
    *("failure while profiling", "[Autotuner]: Failed when profiling", "[Autotuner]: Skipped"),
    *("OOM detected, falling back to default tactic", "Using fallback tactic for"),
)
_MESSAGE = 40  # lines that the message of an exception may have
_FAR = 200  # lines of the traceback after it
_MOST = 5_000

Place = tuple[int, int, str]  # the file among the inputs, the line, and its text: a record of JSON has several


class _Noted(NamedTuple):
    place: Place
    is_error: bool  # and none after which a GPU's context is gone
    may_end: bool  # whether a program may have ended of it: a logger's message is none of that kind


class Overcome:
    """Where the errors stand that ended nothing, while a log is read."""

    def __init__(self) -> None:
        self.places: dict[Place, str] = {}  # -> why
        self.later: dict[Place, int] = {}  # those that ended a start -> the line in which a later one serves
        self._open: dict[str, list[_Noted]] = {}  # container -> errors since its server began
        self._past: list[tuple[str, Place]] = []  # errors after which a server of the container served
        self._starting: dict[str, list[Place]] = {}  # container -> errors before its server served, of loggers as well
        self._ended: dict[str, list[Place]] = {}  # container -> those of starts that came to nothing
        self._begun: set[str] = set()  # containers in which a server began
        self._served: set[str] = set()  # containers whose server serves, so that what comes is not of its start
        self._last: dict[str, Line] = {}  # rank -> its last exception
        # rank -> why its next exception ends nothing, and the line that says so
        self._next: dict[str, tuple[int, str]] = {}

    def mark(self, line: Line) -> None:
        """Look at a line with one of the literals: a server serves or begins, or an exception was handled."""
        if _IGNORED in line.text:
            self._next[line.rank] = (line.number, _WENT_ON)
        elif _HANDLED in line.text:
            self._handle(line)
        elif any(word in line.text for word in _SERVING):
            noted = self._open.pop(line.origin, ())
            self.places.update(dict.fromkeys((one.place for one in noted), _SERVED))
            self._past += [(line.origin, one.place) for one in noted if one.is_error]
            self.later.update(dict.fromkeys(self._ended.pop(line.origin, ()), line.number))
            self._starting.pop(line.origin, None)
            self._served.add(line.origin)
        elif any(word in line.text for word in _ANOTHER):
            is_begun = any(word in line.text for word in _BEGUN)
            is_first = is_begun and line.origin not in self._begun
            self._begun |= {line.origin} if is_begun else set()
            noted = self._open.pop(line.origin, [])
            self._open[line.origin] = [one for one in noted if is_first and not one.may_end]
            self._ended.setdefault(line.origin, []).extend(self._starting.pop(line.origin, ()))
            if is_begun:
                self._served.discard(line.origin)

    def add(self, line: Line, error: Event | None) -> None:
        """Note a line that tells an error, or has a sign of a fault."""
        place = _place(line)
        noted = self._open.setdefault(line.origin, [])
        if line.level in (Level.NONE, Level.ERROR) and len(noted) < _MOST:
            is_error = error is not None or line.level is Level.ERROR or _INSTALLED in line.text
            is_error = is_error and search(STICKY, line.text) is None
            noted.append(_Noted(place, is_error, may_end=error is not None and error.kind != "logger"))
        starting = self._starting.setdefault(line.origin, [])
        if line.origin not in self._served and len(starting) < _MOST:
            starting.append(place)
        if not is_raised(line.text):
            return
        began, why = self._next.pop(line.rank, (-_FAR, ""))
        if why and line.number - began <= _FAR:
            self.places[place] = why
        self._last[line.rank] = line

    def end(self, answered: Mapping[str, int]) -> None:
        """The file is at its end: what comes is of another program.

        answered: for each container the last line in which a request was answered.
        """
        past = [place for origin, place in self._past if place[1] < answered.get(origin, 0)]
        self.places.update(dict.fromkeys(past, _ANSWERED))
        self._past = []
        self._open, self._last, self._next = {}, {}, {}
        self._starting, self._ended, self._served, self._begun = {}, {}, set(), set()

    def _handle(self, line: Line) -> None:
        last = self._last.get(line.rank)
        if last is None or line.number - last.number > _MESSAGE:
            return
        if search(_LOOKUP, last.text) is not None:
            self.places[_place(last)] = "it was handled, and another one raised"
        elif search(STICKY, last.text) is not None:
            self._next[line.rank] = (line.number, "it came while a crash of the GPU was handled")

    @property
    def got_over(self) -> frozenset[tuple[int, int]]:
        """The lines of errors after which a server served and answered: the file among the inputs, and the line."""
        return frozenset(place[:2] for place, why in self.places.items() if why == _ANSWERED)


def standing(matches: tuple[Match, ...], slight: Container[tuple[str, int]]) -> tuple[Match, ...]:
    """Those that may be signs of what ended a program; none where all of them are of errors that a server got over.

    slight: files and lines of errors of requests alone. What ended nothing supports nothing else.
    """
    own = [match for match in matches if match.sign.strength is not Strength.FOLLOWS_ON]
    if own and all(match.line.overcome == _ANSWERED for match in own):
        return ()
    is_alone = all(_is_weak(match, slight) for match in own)
    return matches if is_alone else tuple(match for match in matches if not _is_weak(match, slight))


def _is_weak(match: Match, slight: Container[tuple[str, int]]) -> bool:
    """Whether it only supports a fault, with a line that ended nothing."""
    line, sign = match.line, match.sign
    is_slight = bool(line.overcome) or (line.file, line.number) in slight
    return sign.strength is Strength.SUPPORTS and not sign.name and is_slight


def weighed(placed: Mapping[str, Sequence[Line]], overcome: Overcome) -> dict[str, list[Line]]:
    """The lines for each literal, with why they ended nothing, and with the line of a later start, where that is so."""
    return {literal: [_weighed(line, overcome) for line in lines] for literal, lines in placed.items()}


def _weighed(line: Line, overcome: Overcome) -> Line:
    place = _place(line)
    why, later = overcome.places.get(place, "") or _tuned(line.text), overcome.later.get(place, 0)
    return line._replace(overcome=why, later=later) if why or later else line


def _tuned(text: str) -> str:
    is_tuning = any(map(text.__contains__, _TUNING)) and search(STICKY, text) is None
    return _TUNED if is_tuning else ""


def _place(line: Line) -> Place:
    return line.place, line.number, line.text
