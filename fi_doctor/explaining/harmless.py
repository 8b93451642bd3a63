"""Errors after which nothing is to be mended: of single requests, while the server answers others, and a wanted end."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from fi_doctor.explaining import events, lines
from fi_doctor.explaining.overcoming import STICKY
from fi_doctor.explaining.patterns import same, search
from fi_doctor.explaining.stream import Hit
from fi_doctor.model import Event, secrets

(REQUEST, OVERCOME), STOPPED = events.SLIGHT, "stopped"  # kinds of events
# The modules of vLLM that handle one request, as its logger names them. Sources: vllm/entrypoints/openai (0.11.0 to
# 0.33.0: serving_chat.py, chat_completion/serving.py, tool_parsers), vllm/v1/engine/async_llm.py.
_HANDLER = re.compile(
    rb"\[(?:[\w./-]{0,100}/)?(?:serving(?:_\w{1,40})?|\w{0,40}tool_parsers?|\w{0,40}reasoning_parsers?)\.py:\d+\]"
    rb"|\[(?:[\w./-]{0,100}/)?async_llm\.py:\d+\] Request \S{1,200} (?:aborted|failed \(bad request\))"
)
# What SGLang's and Ray Serve's loggers say of a request that failed, with its traceback in the lines after it. Sources:
# sglang 0.5.5 to 0.5.23: sglang/srt/entrypoints/http_server.py, openai/serving_base.py, openai/serving_chat.py,
# function_call/*_detector.py; ray 2.60.0: ray/serve/_private/replica.py:1465, http_util.py:958, grpc_util.py:294.
_TOLD = re.compile(
    rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]{0,40}\] (?:\[http_server\] Error: |Error in request: "
    rb"|(?:Tool call|Reasoning) parsing error: |Error in (?:detect_and_parse|parse_streaming_increment): )"
    rb"|(?:\(\S{0,100}ServeReplica\S{0,200} pid=\d{1,9}[^)]{0,80}\) |\(ProxyActor pid=\d{1,9}[^)]{0,80}\) )?"
    rb"ERROR \d{4}-\d\d-\d\d \S{1,16} \S{1,200} \S{1,80} (?:\S{1,80} )?-- Request failed(?: due to unexpected error)?\."
)
# Where TensorRT-LLM's server handles one request, as the traceback names it that its logger tells. Source:
# tensorrt_llm/serve/openai_server.py; an error of its executor ends the server.
_HANDLING = re.compile(r'\s+File "\S{0,300}/tensorrt_llm/serve/openai_server\.py", line \d+, in \w')
_ANSWERED = re.compile(rb" -- POST /\S{0,300} 200 [\d.]{1,20}ms\s*$")  # ray/serve/_private/logging_utils.py
_ENDING = "CppExecutorError"
_TRACEBACK = 200  # lines of one
_KINDS = ("exception", "logger")  # what a request may raise; memory and CUDA are of all of them
_LONGEST = 400  # characters of a line that are kept
_INTERRUPT = re.compile(r"(?:\w+\.)?KeyboardInterrupt\b(?!.*\w\()")


class Harmless:
    """The errors of requests in one file, and whether it was stopped by hand, while it is read."""

    def __init__(self) -> None:
        self._failed: list[tuple[Event, str]] = []  # with the container
        self.answered: dict[str, int] = {}  # container -> the last line that tells an answer
        self._handling = (0, b"")  # the last frame of a handler, and the line that its record begins with
        self.stopped: tuple[Event, ...] = ()  # where Python raised what SIGINT brings, which Ctrl-C sends

    def serving(self, number: int, raw: bytes) -> None:
        """Look at a line with which servers tell that they serve."""
        if events.ANSWERED in raw or (events.CALLED in raw and _ANSWERED.search(raw) is not None):
            self.answered["" if lines.is_alone(raw) else lines.read("", number, raw).origin] = number

    def add(self, line: lines.Line, hit: Hit, event: Event | None) -> None:
        """Look at a line with what errors are told with, and the error that it tells, if any."""
        if event is None and not self.stopped:
            self.stopped = _interrupted(line)
        if _HANDLING.match(line.text) is not None:
            self._handling = (hit.number, hit.head)
        if event is None and _TOLD.match(hit.raw) is not None:
            text = secrets.hidden(line.text).strip()[:_LONGEST]
            event = Event(kind="logger", line=line.number, text=text, file=line.file)
        if event is None or event.kind not in _KINDS or event.follows or search(STICKY, event.text) is not None:
            return
        if _HANDLER.search(hit.raw) is not None or self._is_of_handler(hit, event):
            self._failed.append((event, line.origin))

    def _is_of_handler(self, hit: Hit, event: Event) -> bool:
        if _TOLD.match(hit.raw) is not None or _TOLD.match(hit.head) is not None:
            return True
        number, head = self._handling
        is_handled = bool(number) and head == hit.head and hit.number - number < _TRACEBACK
        return is_handled and _ENDING not in event.text

    def requests(self) -> tuple[Event, ...]:
        """The errors after which the same server answered."""
        return tuple(one for one, of in self._failed if one.line < self.answered.get(of, 0))


def _interrupted(line: lines.Line) -> tuple[Event, ...]:
    if _INTERRUPT.match(line.text.strip()) is None or line.level is lines.Level.INFO:
        return ()
    return (Event(kind=STOPPED, line=line.number, text=line.text.strip()[:100], file=line.file, follows=True),)


def told(
    errors: Iterable[Event], of_requests: frozenset[tuple[str, int]], got_over: frozenset[tuple[str, int]] = frozenset()
) -> tuple[Event, ...]:
    """The errors, those of requests and those that a server got over called so, unless the same stands elsewhere."""
    every = tuple(errors)
    for kind, places in ((REQUEST, of_requests), (OVERCOME, got_over - of_requests)):
        others = {same(one.text) for one in every if (one.file, one.line) not in places}
        are = {(one.file, one.line) for one in every if same(one.text) not in others} & places
        every = tuple(replace(one, kind=kind) if (one.file, one.line) in are else one for one in every)
    return every


def left(errors: Iterable[Event]) -> tuple[Event, ...]:
    """Those that are not harmless. What follows from others is none where nothing but a wanted end is before it."""
    every = tuple(errors)
    stopped = [one for one in every if one.kind == STOPPED]
    rest = tuple(one for one in every if one.kind not in (*events.SLIGHT, STOPPED))
    is_wanted = stopped and all(one.follows and one.kind == "exception" for one in rest)
    return () if is_wanted else rest


def sentence(errors: tuple[Event, ...]) -> str:
    """What is said of a log that tells no other errors."""
    requests = [one for one in errors if one.kind == REQUEST]
    stopped = [one for one in errors if one.kind == STOPPED]
    said = []
    if past := [one for one in errors if one.kind == OVERCOME]:
        first = min(one.line for one in past)
        said.append(f"an error, first in line {first}, ended nothing: a server served after it, and answered")
    if requests:
        first = min(one.line for one in requests)
        said.append(f"a request failed or was refused, first in line {first}, and others were answered then")
    if stopped:
        said.append(f"it was stopped by SIGINT, as Ctrl-C sends it, in line {stopped[0].line}")
    return f"no fault is told: {'; '.join(said)}"
