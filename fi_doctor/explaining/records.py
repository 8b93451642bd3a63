"""A line of a logger or a collector that writes JSON: its message, and what it calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

# Sources: docker's json-file, python-json-logger, structlog, loguru, logstash, fluent-bit, Google Cloud, klog, zap.
_MESSAGES = ("log", "message", "msg", "event", "textPayload")
_LEVELS = ("level", "levelname", "severity", "lvl", "log.level")
_LOGGERS = ("logger", "name", "logger_name", "log.logger", "module")
_TIMES = ("time", "timestamp", "@timestamp", "ts", "asctime", "stream")
_ERRORS: tuple[str, ...] = ("error", "err", "exception", "exc_info", "stack_info", "stack", "stacktrace", "stack_trace")
_ERRORS += ("traceback", "error.message", "error.stack_trace", "exception.message", "exception.stacktrace")
# Of an error that is a record itself: its traces, or else its kind and what it says.
_TRACES = ("stack_trace", "stacktrace", "traceback", "stack", "formatted")
_KINDS, _SAYINGS = ("type", "exc_type", "class", "name", "kind"), ("message", "exc_value", "value", "msg", "detail")
_MOST = 20  # errors of one record
_QUIET = ("info", "debug", "trace", "notice", "information", "default")
_SAID = dict.fromkeys(_QUIET, "info") | {"warn": "warning", "warning": "warning"}
_SAID |= dict.fromkeys(("error", "err", "critical", "fatal", "alert", "emergency"), "error")


class Unpacked(NamedTuple):
    """What a record says."""

    text: str  # of several lines where the record holds a traceback
    level: str = ""  # "info" or "error" where a logger that is named says so itself; a collector's own word is none
    is_quiet: bool = False  # whether anybody calls it no error


def unpacked(text: str) -> Unpacked | None:
    """The message of a record of JSON, with the error that it holds beside it; None where a line is none."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    message = next((record[name] for name in _MESSAGES if isinstance(record.get(name), str)), None)
    if message is None or not any(name in record for name in (*_LEVELS, *_TIMES)):
        return None
    inner = record.get("log")  # of the Elastic Common Schema: {"log": {"level": "error"}}
    levels = {**inner, **record} if isinstance(inner, dict) else record
    said = next((levels[name].lower() for name in _LEVELS if isinstance(levels.get(name), str)), "")
    is_own = any(isinstance(record.get(name), str) for name in _LOGGERS)
    level = _SAID.get(said, "") if is_own or said not in _QUIET else ""
    errors = (error for name in _ERRORS for error in _told(record.get(name)))
    whole = "\n".join(part.rstrip("\n") for part in (message, *errors))
    return Unpacked(whole, level, said in _QUIET)


def _told(value: object) -> Iterator[str]:
    """What an error says: as text, as a record of its own, or as a list of such that brought about one another."""
    match value:
        case str():
            yield value
        case list():
            for one in value[:_MOST]:
                if not isinstance(one, list):
                    yield from _told(one)
        case dict():
            texts = [value[name] for name in _TRACES if isinstance(value.get(name), str)]
            kind = next((value[name] for name in _KINDS if isinstance(value.get(name), str)), "Error")
            said = next((value[name] for name in _SAYINGS if isinstance(value.get(name), str)), "")
            yield from texts or ([f"{kind}: {said}"] if said else [])
