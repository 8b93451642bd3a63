"""The errors of a log, whatever is known of them, and which of them others bring about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor.explaining import spoken
from fi_doctor.explaining.lines import Level, Line
from fi_doctor.explaining.patterns import same, search
from fi_doctor.model import Event

_LONGEST = 400  # characters of a line that are kept
_MOST, _LAST = 40, 10  # errors that are kept, and of more how many of the last ones: what ends a program stands there
SLIGHT = ("request", "overcome")  # kinds of errors that ended nothing


class _Form(NamedTuple):
    kind: str
    literals: tuple[str, ...]
    pattern: str


_RAISED = r"(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b"
# What collectors and runners whose prefixes are not taken away put before an exception, and programs that tell it: no
# words of a sentence, but names with numbers, brackets, times, what says that it is an error.
_BEFORE = (
    r"(?:[\w@,/+-]{0,60}[\d_.@-][\w.@,/+:|-]{0,60}(?: [a-z][\w-]{0,40})?(?:\[\d+\])?:? |[\w.-]{1,60}(?:\[\d+\])?: "
    r"|\[[^\[\]]{1,80}\](?:<std(?:out|err)>)?:? ?|\([^()]{1,80}\) |<\w{1,10}>:? ?|[\s|`*#>+:-]{1,20}"
    r"|[^:]{0,80}\b(?:[Ee]xception|[Ee]rror|[Ff]ailed|FATAL|ERROR): {1,9})"
)
# How loggers of any kind call a line an error, or less than one.
_CALLED = re.compile(
    r"[\W\dTZ]*(?:(?:ERROR|CRITICAL|FATAL)(?=[\]:|\s])|\[(?:error|critical|fatal) *\])|[EF]\d{4} \d\d:"
    r"|(?:\S{1,40} ){0,3}level=(?:error|fatal)\b"
    r"|\{.{0,300}?\"(?:level|levelname|severity|log\.level)\": ?\"(?i:error|critical|fatal)\"",
    re.ASCII,
)
_LESS = re.compile(
    r"\b(?:INFO|DEBUG|TRACE|NOTICE|WARN|WARNING)\b|\[(?:info|debug|warn)|\blevel=(?:info|debug|warn)|\bexcept "
)
_HEAD = 100  # characters of a line in which that stands

# How compilers and linkers call an error in other languages. Source: the translations of gcc and binutils.
_TRANSLATED = (
    *("Fehler: ", "erreur: ", "erreur fatale", "errore: ", "\u9519\u8bef\uff1a", "\u932f\u8aa4\uff1a"),
    *("\u30a8\u30e9\u30fc: ", "\uc624\ub958: ", "\u043e\u0448\u0438\u0431\u043a\u0430: "),
)
_ELSEWHERE = "|".join(_TRANSLATED)

# The first form that a line has decides.
_FORMS = (
    _Form(
        "compiler",
        ("error: ", "nvcc fatal", "ptxas fatal", "): error", *_TRANSLATED),
        r"(?:: (?:fatal )?error: |\): error|(?:nvcc|ptxas) fatal)"
        rf"|^[^:]{{1,300}}:(?:\d+:){{0,2}} [^:]{{0,30}}(?:{_ELSEWHERE})",
    ),
    _Form("linker", ("cannot find -l", "undefined reference"), r"cannot find -l|undefined reference"),
    _Form("build", ("ninja: error", "FAILED: ", ": not found"), r"^ninja: error|^FAILED: |^/bin/sh: .*: not found"),
    _Form(
        "memory",
        ("out of memory", "OutOfMemoryError", "oom-kill", "Killed"),
        r"(?i)out of memory|OutOfMemoryError|oom-kill|^Killed",
    ),
    _Form(
        "signal",
        ("Caught signal", "Segmentation fault", "Fatal Python error", "terminate called", "core dumped", "panic"),
        r"Caught signal|Segmentation fault|Fatal Python error|terminate called|core dumped|^panic: |' panicked at ",
    ),
    _Form(
        "exception",
        ("Error: ", "Error", "Exception"),
        rf"^(?:E +|!+ |\s+)?{_RAISED}(?:: |$)|^{_BEFORE}{{1,4}}{_RAISED}: ",
    ),
    _Form(
        "cuda",
        ("CUDA error", "CUDA Error", "CUDART error", "cudaError", "CUDA_ERROR_"),
        r"CUDA [Ee]rror|CUDART error|cudaError|CUDA_ERROR_",
    ),
    _Form(
        "hang",
        ("Watchdog caught", "No available shared memory broadcast", "timed out", "Timeout"),
        r"Watchdog caught|No available shared memory broadcast|timed out|Timeout",
    ),
    _Form(
        "ended",
        (
            "Back-off restarting failed",
            "CrashLoopBackOff",
            "exited, code=",
            "exited with code ",
            "Exit Code: ",
            "Exited (",
        ),
        # 130 and 143 are SIGINT and SIGTERM: whoever sends them means it.
        r"Back-off restarting failed|CrashLoopBackOff|exited, code=(?:exited, status=[1-9]|(?:killed|dumped), status="
        r"(?:[2-9]|1[0-46-9])\b)|(?:exited with code |Exit Code: +|Exited \()-?(?:[1-9]\d?|1[0-2]\d|13[1-9]|255)\b",
    ),
    _Form("logger", ("ERROR", "CRITICAL", "FATAL", "[error", "level=error", ': "error"', ':"error"'), r""),
)
# What servers, runners and builds say of an error that was before it. Sources: vllm/v1/engine/core.py and utils.py,
# executor/multiproc_executor.py, device_communicators/shm_broadcast.py, sglang/srt/managers, ninja, collect2; of what
# ran them: kubectl describe, systemd/src/core/service.c, docker compose, docker ps.
_FOLLOWING = (
    "Engine core initialization failed",
    "Engine core proc",
    "EngineDeadError",
    "EngineCore encountered",
    "EngineCore failed to start",
    "WorkerProc initialization failed",
    "WorkerProc hit an exception",
    "died unexpectedly",
    "No available shared memory broadcast",
    "shm_broadcast",
    "Scheduler hit an exception",
    "Rank 0 scheduler is dead",
    "Failed core proc",
    "ninja: build stopped",
    "Ninja build failed",
    "returned non-zero exit status",
    "collect2: error: ld returned",
    "compilation terminated",
    "errors detected in the compilation",
    "Connection closed by peer",
    "Broken pipe",
    "Watchdog caught",
    "Process group watchdog thread terminated",
    "instance of 'c10::DistBackendError'",
    "Error raised from worker",
    "Back-off restarting failed",
    "CrashLoopBackOff",
    "Main process exited",
    "exited with code ",
    "Exit Code: ",
    "Exited (",
    "Cancelled",
    "KeyboardInterrupt",
    "SystemExit",
)
# What servers say once they serve. Sources: uvicorn, sglang/srt/entrypoints/http_server.py.
ANSWERED = b'HTTP/1.1" 200'  # uvicorn, of a request that was answered
CALLED = b" -- POST /"  # Ray Serve, of a request that ended
STARTED = frozenset(
    (b"Application startup complete", b"Uvicorn running on ", b"The server is fired up", ANSWERED, CALLED)
)
# What builds say while they go on: ninja's progress, the commands that it starts.
_PROGRESS = re.compile(
    r"\[\d+/\d+\] |ninja: Entering directory|(?:\S{0,200}/)?(?:nvcc|ptxas|cicc|c\+\+|g\+\+|clang\+\+)(?:-\d+)? -",
    re.ASCII,
)
_COMPILERS = ("compiler", "linker")
_ANNOUNCED = "FAILED: "  # ninja's word before what the compiler said
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")


def literals() -> frozenset[bytes]:
    """What stands in the lines of errors."""
    found = {literal for form in _FORMS for literal in form.literals}
    return frozenset(literal.encode() for literal in (*found, *_FOLLOWING))


def is_following(text: str) -> bool:
    """Whether a line speaks of an error that was before it."""
    return any(map(text.__contains__, _FOLLOWING))


def read(line: Line) -> Event | None:
    """The error that a line tells, or none."""
    if line.level in (Level.INFO, Level.WARNING) and not is_following(line.text):
        return None
    if line.level is Level.NONE and spoken.is_typed(line.text):
        return None
    kind, at = _kind(line)
    if not kind:
        return None
    return Event(
        kind=kind,
        line=line.number,
        text=line.text[max(0, at - _LONGEST // 4) :].strip()[:_LONGEST],
        file=line.file,
        follows=is_following(line.text),
        ranks=(line.rank,) if line.rank else (),
    )


def cut_off(frame: Line) -> Event | None:
    """The error of a traceback of which the log has no more than frames, by the last one; None where it is no error."""
    if frame.level in (Level.INFO, Level.WARNING):
        return None
    ranks = (frame.rank,) if frame.rank else ()
    text = frame.text.strip()[:_LONGEST]
    return Event(kind="exception", line=frame.number, text=text, file=frame.file, ranks=ranks)


def together(events: Iterable[Event]) -> tuple[Event, ...]:
    """Each error once, with the ranks that tell it; numbers in them may differ."""
    found: dict[str, Event] = {}
    every = list(events)
    compiled = {event.file for event in every if event.kind in _COMPILERS}
    for one in every:
        is_told = one.file in compiled and one.text.startswith(_ANNOUNCED)
        event = replace(one, follows=True) if is_told else one
        key = same(event.text)
        first = found.get(key)
        found[key] = event if first is None else _joined(first, event)
    return _most(tuple(found.values()))


def _most(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The first and the last of them, and of those that ended nothing as many as there is room for."""
    if len(events) <= _MOST:
        return events
    own = [event for event in events if event.kind not in SLIGHT]
    kept = own if len(own) <= _MOST else [*own[: _MOST - _LAST], *own[-_LAST:]]
    kept += [event for event in events if event.kind in SLIGHT][: _MOST - len(kept)]
    return tuple(sorted(kept, key=events.index))


def _joined(first: Event, other: Event) -> Event:
    ranks = tuple(dict.fromkeys((*first.ranks, *other.ranks)))
    return Event(
        kind=first.kind,
        line=first.line,
        text=first.text,
        file=first.file,
        follows=first.follows,
        times=first.times + 1,
        ranks=ranks,
    )


def _kind(line: Line) -> tuple[str, int]:
    """What kind of error a line tells, and where in it; "" for none."""
    if _PROGRESS.match(line.text) is not None:
        return "", 0
    for form in _FORMS:
        if form.kind == "logger":
            return (form.kind if _is_called(line) and not _is_frame(line.text) else "", 0)
        places = [line.text.find(literal) for literal in form.literals if literal in line.text]
        if places and search(form.pattern, line.text) is not None and not _is_less(form.kind, line):
            return form.kind, min(places)
    return "", 0


def _is_less(kind: str, line: Line) -> bool:
    """Whether a logger whose level is not taken away calls an exception that it names less than an error."""
    return kind == "exception" and line.level is Level.NONE and _LESS.search(line.text[:_HEAD]) is not None


def _is_called(line: Line) -> bool:
    """Whether a logger calls the line an error, in whatever form."""
    if line.level is not Level.NONE:
        return line.level is Level.ERROR
    return _CALLED.match(line.text) is not None and not line.text.rstrip(". ").endswith(": ignored")


def _is_frame(text: str) -> bool:
    """Whether the line is of a traceback that a logger printed line by line: its frames and source lines."""
    return text.startswith((" ", "Traceback ", "^")) or not text.strip() or any(word in text for word in _CHAINED)
