"""The line of an error message that says what is wrong, short enough to stand in a sentence. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fi_doctor.model.phrases import SILENT

LIMIT = 400
_SHORT = 160  # up to this long a line is left alone
_NEAR = 5 * LIMIT  # how much on either side of the error is looked at

_ERROR = re.compile(r"\bfatal\s+(?:error\s*)?:|nvcc fatal|\berror\b\s*[:#\d]", re.IGNORECASE)
# What tools say that do not call it an error.
_OTHER = re.compile(
    r"undefined reference|cannot find -l|: not found|No such file"
    r"|file (?:format )?not recognized|: file truncated"
    r"|No space left on device|Disk quota exceeded|File too large",
    re.IGNORECASE,
)
# By ninja, of a command that said nothing, with its exit status in a shell's manner: 137 is signal 9.
_KILLED = re.compile(r"^FAILED: \[code=(129|1[3-8]\d|19[0-2])\] ")
_ENDED = re.compile(r"^(?:Killed|Terminated|Hangup)$")  # by a shell
_NEXT = re.compile(r"$|\[\d+/\d+\] |FAILED: |ninja: ")  # what follows the command line of one that said nothing
# What else is said of a write is of no use beside this.
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
# Errors that only say that there was one before.
_ECHO = re.compile(r"^collect2: |\breturned \d+ exit status|\bfailed with exit (?:code|status)", re.IGNORECASE)
_LONG_FOLDERS = re.compile(r"/(?:[^\s/:'\"]+/)+(?:site-packages|dist-packages|cached_ops)/")


def deciding_line(message: str) -> str:
    """The first error of a compiler or linker, wherever it stands in the message, else the first line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    causes = [line for line in lines if not _ECHO.search(line)]
    found = _first(causes, _ERROR) or _first(causes, _OTHER) or _first(lines, _ERROR)
    said = _shortened(found or _killed(lines) or _first(lines, _ENDED) or next(iter(lines), ""))
    full = _FULL.search(message)
    return f"{full[0]}: {said}"[:LIMIT] if full and len(said) > _SHORT / 2 else said


def _first(lines: Sequence[str], wanted: re.Pattern[str]) -> str:
    return next((line for line in lines if wanted.search(line)), "")


def _killed(lines: Sequence[str]) -> str:
    """What ninja says of the first command that a signal ended, with the signal, or that ended without a word.

    Ninja below 1.12 does not tell the one from the other.
    """
    line = _first(lines, _KILLED)
    if found := _KILLED.match(line):
        return f"error: killed by signal {int(found[1]) - 128}: {line[found.end() :]}"
    for number, line in enumerate(lines):
        if line.startswith("FAILED: ") and _NEXT.match("".join(lines[number + 2 : number + 3])):
            return f"error: {SILENT}: {line.split()[-1]}"
    return ""


def _shortened(line: str) -> str:
    """Folders go first, then what stands before the error, and its own end last."""
    if len(line) <= _SHORT:
        return line
    at = _error_at(line)
    short = _LONG_FOLDERS.sub(".../", line[max(0, at - _NEAR) : at + _NEAR])
    if len(short) <= LIMIT:
        return short
    at = min(_error_at(short), len(short) - LIMIT + 3)
    head = "..." if at > 0 else ""
    rest = head + short[max(0, at) :]
    return rest if len(rest) <= LIMIT else rest[: LIMIT - 3] + "..."


def _error_at(line: str) -> int:
    found = _ERROR.search(line) or _OTHER.search(line)
    return found.start() if found else 0
