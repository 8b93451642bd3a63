"""A line without what runners, loggers and collectors put before it, and the rank that it names."""

from __future__ import annotations

import enum
import json
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
)
# All of them in one, since a name may stand once: rank0, rank1, ...
_ANY = "|".join(prefix.lstrip("^").replace("?P<rank>", f"?P<rank{at}>") for at, prefix in enumerate(_PREFIXES))
_PREFIX = f"^(?P<whole>{_ANY})"
_LEVELS = rf"^(?:\[TRT-LLM\] |{_DAY} {_TIME} - )?\[?(?P<level>{_LEVEL})\b"
_MOST = 8


class Level(str, enum.Enum):
    """What the logger calls the line."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    NONE = ""  # no logger's line: a traceback, a compiler


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


def read(file: str, number: int, raw: bytes, *, place: int = 0) -> Line:
    """The line as text: what is not UTF-8 as escapes, prefixes away."""
    text = _unpacked(raw.decode("utf-8", "backslashreplace")).replace("\r", " ")
    rank, level, time = "", Level.NONE, ""
    for _ in range(_MOST):
        found = search(_PREFIX, text)
        if not found or not (whole := found.pop("whole")):
            break
        named = "".join(found.values()).strip()
        rank, level, time = rank or named, _level(whole) or level, _time(whole) or time
        text = text[len(whole) :].lstrip(" ") if named else text[len(whole) :]
    return Line(file, number, rank, text, level, place, time)


def _level(prefix: str) -> Level | None:
    found = search(_LEVELS, prefix)
    if not found:
        return None
    letter = found["level"][0]
    return {"D": Level.INFO, "I": Level.INFO, "W": Level.WARNING}.get(letter, Level.ERROR)


def _time(prefix: str) -> str:
    """Month, day and time: what loggers with and without a year, and collectors, have in common."""
    found = search(r"(?P<day>\d\d-\d\d)[T -](?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)", prefix)
    return f"{found['day']} {found['time']}" if found else ""


def _unpacked(text: str) -> str:
    """What docker's json-file keeps as {"log": "...", ...}."""
    if not text.startswith('{"log":"'):
        return text
    try:
        return str(json.loads(text)["log"]).rstrip("\n")
    except (ValueError, KeyError):
        return text
