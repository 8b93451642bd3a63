"""A line without what runners, loggers and collectors put before it, and the rank that it names."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from fi_doctor.explaining.patterns import search
from fi_doctor.explaining.records import unpacked

_DAY = r"(?:\d{4}[-/]\d\d[-/]\d\d|\d\d/\d\d/\d{4}|\d\d-\d\d|[A-Z][a-z]{2} [ \d]\d)"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|[DIWEF])"
# How Kubernetes names pods: of deployments, and of sets whose pods are counted. Source: apimachinery/pkg/util/rand.
_HASH = "[bcdfghjklmnpqrstvwxz2456789]"
_DEPLOYED = rf"[a-z0-9][a-z0-9.-]{{0,200}}-{_HASH}{{6,10}}-{_HASH}{{5}}"
_COUNTED = r"[a-z0-9][a-z0-9.-]{0,200}-\d{1,4}"
# Containers of such sets: a name with a number may begin a sentence, too.
_CALLED = r"[a-z0-9-]{0,40}(?:llm|sglang|triton|server|serve|worker|engine|leader|main|router|prefill|decode|model|app)"
_PREFIXES = (
    r"^> ",  # quoted, as in mails and in what is pasted into issues
    rf"^{_DAY} {_TIME} - {_LEVEL} - (?:[\w./-]{{1,120}}\.py:\d+ - )?",  # FlashInfer, whose logger's name stays
    rf"^{_DAY} {_TIME} [\w.-]{{1,80}} [\w./@-]{{1,80}}(?:\[\d+\])?: ",  # journald
    rf"^\s*{_DAY}[T -]{_TIME} (?:std(?:out|err) [FP] )?",  # kubectl logs --timestamps, containerd
    r"^\[pod/(?P<origin>[\w./-]{1,200})\] ",
    r"^(?P<origin>[\w./-]{1,80}) +\| ",  # docker compose
    rf"^(?P<origin>{_DEPLOYED} [a-z0-9][a-z0-9-]{{0,62}}|{_COUNTED} {_CALLED}[a-z0-9-]{{0,40}}) ",  # stern
    r"^(?P<origin>[a-z][\w./-]{0,200}(?: (?:\x{203a} )?[\w./-]{1,80})?) *\x{2502} ?",  # stern, by templates
    r"^\[(?P<origin>[a-z][a-z0-9.-]{0,200}-[a-z0-9]{0,9}\d[a-z0-9]{0,9} [a-z0-9][a-z0-9-]{0,62})\] ",  # kubetail
    # vLLM's processes, Ray's actors and operators
    r"^\((?P<rank>[A-Za-z_][\w .:-]{0,60}?(?:\([\w .:()-]{1,60}\) )?pid=\d+)[^()]{0,80}\)",
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


def _one_of(prefixes: tuple[str, ...]) -> str:
    """All of them in one, since a name may stand once: rank0, rank1, ..."""
    named = (re.sub(r"\?P<(\w+)>", rf"?P<\g<1>{at}>", prefix.lstrip("^")) for at, prefix in enumerate(prefixes))
    return f"^(?P<whole>{'|'.join(named)})"


# By what they begin with: the fewer groups a pattern has, the less it costs.
_BRACKETED = {
    mark: _one_of(tuple(prefix for prefix in _PREFIXES if prefix.startswith(f"^\\{mark}"))) for mark in ("(", "[")
}
_OTHERWISE = _one_of(tuple(prefix for prefix in _PREFIXES if not prefix.startswith(("^\\(", "^\\["))))
# What is looked for in a prefix, which is short.
_LEVELS = re.compile(
    rf"(?:\[TRT-LLM\] |{_DAY} {_TIME} - |- (?:[\w.-]{{1,80}} - )?|\S+ \[\d+\] NCCL )?\[?(?P<level>{_LEVEL})\b", re.ASCII
)
_WHEN = re.compile(r"(?P<day>\d\d-\d\d)[T -](?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)", re.ASCII)
# "2025-11-11 15:55:06 INFO rag: " looks as journald's lines do, and is the line of a logger.
_NAMED = re.compile(r" (DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL) [\w./@-]+(?:\[\d+\])?: $")
# Most lines of the logs of vLLM and SGLang, told at a fiftieth of what taking prefixes away costs; of bounded length,
# so in linear time.
_RECORD = re.compile(
    rb"(?:\([^()]{1,120}\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d "
    rb"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]{2}\d+)*\]"
)
# How records of other loggers begin, whose levels are left to them: JSON, logging.basicConfig, log4j, klog, logfmt.
_OTHERS = re.compile(
    rb'\{ ?"(?:@?time(?:stamp)?|ts|asctime|level|levelname|severity|logger|name|event|message|msg)": ?"'
    rb"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]{1,80}:|\d\d:\d\d:\d\d[.,]\d{3} |[DIWEF]\d{4} \d\d:\d\d:\d\d"
    rb"|time=|level="
)
# The two prefixes that most lines of vLLM have, at once.
_VLLM = re.compile(
    r"(?:\((?P<rank>[A-Za-z_][\w .:-]{0,60}?pid=\d+)[^()]{0,80}\) *)?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r" (?P<time>\d\d-\d\d \d\d:\d\d:\d\d) \[[\w./-]{1,120}\.py:\d+\]:? ?",
    re.ASCII,
)
# The same of SGLang.
_SGLANG = re.compile(
    r"\[\d{4}-(?P<time>\d\d-\d\d \d\d:\d\d:\d\d)(?P<rank>(?: [A-Z]{2}\d+)*)\] *"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w./-]{1,120}\.py:\d+: )?",
    re.ASCII,
)
# How a line begins that has any of the prefixes: most have none, and are not searched for each of them.
_MAYBE = re.compile(
    r"\s*\d|[\[(]|> |- |(?:DEBUG|INFO|WARN|ERROR|CRITICAL|FATAL|[DIWEF])\b|[A-Z][a-z]{2} [ \d]\d "
    r"|[\w./-]{1,80} +\||[\w.-]{1,80}:\d+:\d+ \[|WARNING"
    rf"|[a-z0-9][a-z0-9.-]{{0,200}}-(?:{_HASH}{{5}}|\d{{1,4}}) [a-z0-9]"
    "|[a-z][\\w./-]{0,200}(?: (?:\u203a )?[\\w./-]{1,80})? *\u2502"
)
# What Python warns of, which goes on: it stands with the file and the line.
_WARNED = re.compile(r"\S{1,300}\.py:\d+: [A-Z]\w{0,60}Warning: ", re.ASCII)
_MOST = 8
_HEAD = 400  # bytes of a line in which its prefixes are


class Level(str, enum.Enum):
    """What the logger calls the line."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    NONE = ""  # no logger's line: a traceback, a compiler


_SAID = {level.value: level for level in Level if level.value}
_QUIET = ("DEBUG", "INFO")
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
    is_own: bool = False  # whether a frame of that traceback is FlashInfer's
    owner: str = ""  # the package of its last frame, where none is FlashInfer's and that says whose it is
    origin: str = ""  # the container or pod that a collector names
    is_unfenced: bool = False  # whether no logger wrote it and it is outside of code fences
    is_quiet: bool = False  # whether it is called information, by a collector or in a form that tells no level for sure
    is_cut: bool = False  # whether it may end a program while a model speaks: quiet, and yet a sign
    overcome: str = ""  # why what it tells ended nothing: "a server served after it"; "" where it may have
    later: int = 0  # the line in which a later start serves, where this one is of a start that came to nothing


def read(file: str, number: int, raw: bytes, *, place: int = 0) -> Line:
    """The line as text: what is not UTF-8 as escapes, prefixes away. A record of JSON may hold several lines."""
    text = raw.decode("utf-8", "backslashreplace")
    rank, level, time, origin, is_quiet = "", Level.NONE, "", "", False
    if (first := _VLLM.match(text) or _SGLANG.match(text)) is not None:
        rank, time = (first["rank"] or "").strip(), first["time"]
        level = _LETTERS.get(first["level"][0], Level.ERROR) if first["level"] else Level.NONE
        text = text[first.end() :]
    for _ in range(_MOST):
        if text.startswith("{") and (record := unpacked(text)) is not None:
            text, level, is_quiet = record.text, _SAID.get(record.level, level), record.is_quiet
        found = search(_BRACKETED.get(text[:1], _OTHERWISE), text) if _MAYBE.match(text) is not None else None
        if not found or not (whole := found.pop("whole")):
            break
        origin = origin or next((said for name, said in found.items() if name.startswith("origin")), "")
        named = "".join(said for name, said in found.items() if name.startswith("rank")).strip()
        rank, level, time = rank or named, _level(whole) or level, _time(whole) or time
        if whole.endswith(": ") and (said := _NAMED.search(whole)) is not None:
            is_quiet, level = (True, level) if said[1] in _QUIET else (False, _LETTERS.get(said[1][0], Level.ERROR))
        text = text[len(whole) :].lstrip(" ") if named else text[len(whole) :]
    if level is Level.NONE and "Warning: " in text and _WARNED.match(text) is not None:
        level = Level.WARNING
    text = text.replace("\r", " ")
    return Line(file, number, rank, text, level, place, time, origin=origin, is_quiet=is_quiet)


def parts(line: Line) -> tuple[Line, ...]:
    """The lines of a record of several, all of the same place."""
    if "\n" not in line.text:
        return (line,)
    return tuple(line._replace(text=text) for text in line.text.split("\n"))


def begins_record(raw: bytes) -> bool:
    """Whether a line begins as those of vLLM's and SGLang's loggers, with a time: told at once."""
    return _RECORD.match(raw) is not None


def is_alone(raw: bytes) -> bool:
    """Whether no collector put the name of a container before a line: told at once."""
    return raw.startswith((b"INFO:", b"("))


def is_record(raw: bytes) -> bool:
    """Whether a line has a logger's level or time, and so is of no record before it."""
    if begins_record(raw) or _OTHERS.match(raw) is not None:
        return True
    line = read("", 0, raw[:_HEAD])
    return line.level is not Level.NONE or bool(line.time)


def _level(prefix: str) -> Level | None:
    found = _LEVELS.match(prefix)
    if found is None:
        return None
    return _LETTERS.get(found["level"][0], Level.ERROR)


def _time(prefix: str) -> str:
    """Month, day and time: what loggers with and without a year, and collectors, have in common."""
    if prefix.count(":") < 2:
        return ""
    found = _WHEN.search(prefix)
    return f"{found['day']} {found['time']}" if found else ""
