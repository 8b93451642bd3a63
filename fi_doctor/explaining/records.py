"""A line of a logger or a collector that writes JSON: its message, and what it calls it."""

from __future__ import annotations

import json
from typing import NamedTuple

# Sources: docker's json-file, python-json-logger, structlog, loguru, logstash, fluent-bit, Google Cloud, klog, zap.
_MESSAGES = ("log", "message", "msg", "event", "textPayload")
_LEVELS = ("level", "levelname", "severity", "lvl", "log.level")
_LOGGERS = ("logger", "name", "logger_name", "log.logger", "module")
_TIMES = ("time", "timestamp", "@timestamp", "ts", "asctime", "stream")
_ERRORS = ("error", "err", "exception", "exc_info", "stack_info", "stack", "stacktrace", "stack_trace", "traceback")
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
    said = next((record[name].lower() for name in _LEVELS if isinstance(record.get(name), str)), "")
    is_own = any(isinstance(record.get(name), str) for name in _LOGGERS)
    level = _SAID.get(said, "") if is_own or said not in _QUIET else ""
    errors = (record[name] for name in _ERRORS if isinstance(record.get(name), str))
    whole = "\n".join(part.rstrip("\n") for part in (message, *errors))
    return Unpacked(whole, level, said in _QUIET)
