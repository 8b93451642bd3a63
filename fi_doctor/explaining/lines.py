"""A line without what runners, loggers and collectors put before it, and the rank that it names."""

from __future__ import annotations

import enum
import json
import re
from typing import NamedTuple

from fi_doctor.explaining.patterns import search

_DAY = r"(?:\d{4}[-/]\d\d[-/]\d\d|\d\d/\d\d/\d{4}|\d\d-\d\d|[A-Z][a-z]{2} [ \d]\d)"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|[DIWEF])"
_PREFIXES = (
    r"^> ",  # quoted, as in mails and in what is pasted into issues
    rf"^{_DAY} {_TIME} - {_LEVEL} - (?:[\w./-]{{1,120}}\.py:\d+ - )?",  # FlashInfer, whose logger's name stays
    rf"^{_DAY} {_TIME} [\w.-]{{1,80}} [\w./@-]{{1,80}}(?:\[\d+\])?: ",  # journald
    rf"^\s*{_DAY}[T -]{_TIME} (?:std(?:out|err) [FP] )?",  # kubectl logs --timestamps, containerd
    r"^\[pod/[\w./-]{1,200}\] ",
    r"^[\w./-]{1,80} +\| ",  # docker compose
    r"^\((?P<rank>[A-Za-z_][\w .:-]{0,60}?pid=\d+)[^()]{0,80}\)",  # vLLM's processes, Ray's actors
    r"^\[(?P<rank>rank ?\d+)\]:? ?",
    r"^\[\d+,(?P<rank>\d+)\]<std(?:out|err)>: ?",  # mpirun --tag-output
    rf"^\[{_DAY}[T -]{_TIME}(?P<rank>(?: [A-Z]{{2}}\d+)*)\] ?",  # SGLang, TensorRT-LLM
    r"^\[T(?:ensor)?RT-LLM\] ?",
    rf"^\[{_LEVEL}\] ?",
    rf"^{_LEVEL}:? +(?:{_DAY} {_TIME} )?\[?[\w./-]{{1,120}}\.py:\d+\]:? ?",  # vLLM
    rf"^{_LEVEL} [\w./-]{{1,120}}\.py:\d+: ",  # SGLang
    rf"^{_LEVEL}:? {_DAY} {_TIME} ",
    rf"^- (?:[\w.-]{{1,80}} - )?{_LEVEL} - ",  # Python's logging, after its time
    r"^(?:DEBUG|INFO|WARNING): {2,9}",  # uvicorn
    r"^[\w.-]{1,80}:\d+:\d+ \[\d+\] NCCL INFO ",
)
# All of them in one, since a name may stand once: rank0, rank1, ...
_ANY = "|".join(prefix.lstrip("^").replace("?P<rank>", f"?P<rank{at}>") for at, prefix in enumerate(_PREFIXES))
_PREFIX = f"^(?P<whole>{_ANY})"
_LEVELS = rf"^(?:\[TRT-LLM\] |{_DAY} {_TIME} - |- (?:[\w.-]{{1,80}} - )?|\S+ \[\d+\] NCCL )?\[?(?P<level>{_LEVEL})\b"
# What servers say of the texts that they are sent and send. Sources: vllm/entrypoints/logger.py,
# sglang/srt/utils/request_logger.py, uvicorn.
_REQUEST = (
    r"^(?:Received request|Request \S+ details|Generated response|Receive(?:d)? OpenAI|Receive: obj=|Finish: obj=)"
    r"|\b(?:prompt|Prompt|messages|input_text|body)['\"]?[:=]|['\"]role['\"]: ?['\"]"
    r"|\"(?:GET|POST|PUT|DELETE|HEAD|OPTIONS) \S+ HTTP/\d"
)
# Nothing else, whoever logged it: a turn of a chat, the body of a request, records of SGLang, which have no level.
_SENT = (
    r"^(?:(?:Receive|Finish): obj=|Received? OpenAI)|\brequest_body['\"]?[:=]"
    r"|\\?['\"]role\\?['\"]: ?\\?['\"](?:user|assistant|system|tool)\\?['\"], ?\\?['\"]content\\?['\"]: ?"
)
# A record whose arguments follow the text, quoted, ends in its own line.
_ENDED = r"\bparams: |prompt_token_ids|lora_request|HTTP/\d|[)}\]]\s*$"
# Most lines of the logs of vLLM and SGLang, told at a fiftieth of what taking prefixes away costs; of bounded length,
# so in linear time.
_RECORD = re.compile(
    rb"(?:\([^()]{1,120}\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d "
    rb"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]{2}\d+)*\]"
)
# The two prefixes that most lines of vLLM have, at once.
_VLLM = re.compile(
    r"(?:\((?P<rank>[A-Za-z_][\w .:-]{0,60}?pid=\d+)[^()]{0,80}\) *)?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r" (?P<time>\d\d-\d\d \d\d:\d\d:\d\d) \[[\w./-]{1,120}\.py:\d+\]:? ?",
    re.ASCII,
)
# How a line begins that has any of the prefixes: most have none, and are not searched for each of them.
_MAYBE = re.compile(
    r"\s*\d|[\[(]|> |- |(?:DEBUG|INFO|WARN|ERROR|CRITICAL|FATAL|[DIWEF])\b|[A-Z][a-z]{2} [ \d]\d "
    r"|[\w./-]{1,80} +\||[\w.-]{1,80}:\d+:\d+ \[|WARNING"
)
_MOST = 8
_HEAD = 400  # bytes of a line in which its prefixes are


class Level(str, enum.Enum):
    """What the logger calls the line."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    NONE = ""  # no logger's line: a traceback, a compiler


_LETTERS = {"D": Level.INFO, "I": Level.INFO, "W": Level.WARNING}


class Line(NamedTuple):
    """One line of a log."""

    file: str
    number: int
    rank: str  # "rank0", "TP2", "Worker_TP1 pid=12"; "" where none is told
    text: str
    level: Level = Level.NONE
    place: int = 0  # of the file among the inputs
    time: str = ""  # "08-13 11:11:59", of its prefix; "" where none is told
    frame: str = ""  # of the traceback that ends in this line: where it was raised

    @property
    def is_request(self) -> bool:
        """Whether it tells what a client sent or was sent: words of a user, which say nothing of the server."""
        if self.level not in (Level.INFO, Level.NONE):
            return False
        return (self._is_logged and search(_REQUEST, self.text) is not None) or search(_SENT, self.text) is not None

    @property
    def is_open(self) -> bool:
        """Whether the lines after it, up to the next one of a logger, are of the same text."""
        return self.is_request and self.level is Level.INFO and search(_ENDED, self.text) is None

    @property
    def _is_logged(self) -> bool:
        return self.level is Level.INFO or self.text.startswith(("Received request", "Generated response"))


def read(file: str, number: int, raw: bytes, *, place: int = 0) -> Line:
    """The line as text: what is not UTF-8 as escapes, prefixes away."""
    text = _unpacked(raw.decode("utf-8", "backslashreplace")).replace("\r", " ")
    rank, level, time = "", Level.NONE, ""
    if (first := _VLLM.match(text)) is not None:
        rank, level, time = first["rank"] or "", _LETTERS.get(first["level"][0], Level.ERROR), first["time"]
        text = text[first.end() :]
    for _ in range(_MOST):
        found = search(_PREFIX, text) if _MAYBE.match(text) is not None else None
        if not found or not (whole := found.pop("whole")):
            break
        named = "".join(found.values()).strip()
        rank, level, time = rank or named, _level(whole) or level, _time(whole) or time
        text = text[len(whole) :].lstrip(" ") if named else text[len(whole) :]
    return Line(file, number, rank, text, level, place, time)


def is_record(raw: bytes) -> bool:
    """Whether a line has a logger's level or time, and so is of no record before it."""
    if _RECORD.match(raw) is not None:
        return True
    line = read("", 0, raw[:_HEAD])
    return line.level is not Level.NONE or bool(line.time)


def _level(prefix: str) -> Level | None:
    found = search(_LEVELS, prefix)
    if not found:
        return None
    return _LETTERS.get(found["level"][0], Level.ERROR)


def _time(prefix: str) -> str:
    """Month, day and time: what loggers with and without a year, and collectors, have in common."""
    if prefix.count(":") < 2:
        return ""
    found = search(r"(?P<day>\d\d-\d\d)[T -](?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)", prefix)
    return f"{found['day']} {found['time']}" if found else ""


def _unpacked(text: str) -> str:
    """What docker's json-file keeps as {"log": "...", ...}."""
    if not text.startswith('{"log":"'):
        return text
    try:
        return str(json.loads(text)["log"]).rstrip("\n")
    except (ValueError, KeyError, RecursionError):
        return text
