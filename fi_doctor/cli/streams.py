"""Stdout and stderr of the command: all of a text arrives or it is said why, and stderr never makes a failure."""

from __future__ import annotations

import contextlib
import os
import select
import sys

from fi_doctor.errors import DoctorError, UsageError

STDOUT, STDERR = 1, 2
_LONGEST = 2000  # characters of a line of an error


def is_closed(number: int) -> bool:
    """Whether stdout or stderr was closed when we were begun: what stands in its place keeps nothing."""
    return {STDOUT: sys.__stdout__, STDERR: sys.__stderr__}.get(number, sys) is None


def check_stdout() -> None:
    """UsageError now, before minutes of work, when nothing can be written to stdout later."""
    if is_closed(STDOUT):
        raise UsageError("stdout cannot be written", why="it is closed", todo="send it somewhere, if to /dev/null")


def put(text: str) -> None:
    """All of it to stdout, which may be slow, non-blocking or without a buffer; a reader that left is no failure.

    Errors: UsageError when stdout takes no more, or is closed.
    """
    check_stdout()
    try:
        sys.stdout.flush()
        write_all(text.encode("utf-8", "backslashreplace"), STDOUT)
    except BrokenPipeError:
        return  # the verdict's own code must survive `| head`
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError("stdout cannot be written", why=why, todo="make room, or send it elsewhere") from error


def write_all(data: bytes, number: int) -> None:
    """All of it to an open descriptor, at the place where others that have it wrote last. Errors: OSError."""
    rest = memoryview(data)
    while rest:
        select.select([], [number], [])  # a full pipe that does not block is waited for
        with contextlib.suppress(BlockingIOError):
            rest = rest[os.write(number, rest) :]


def tell(text: str) -> None:
    """Lines to stderr; a stderr that is gone or full is no failure.

    Reasons hold what probes and the examined interpreter said: what a terminal may obey is written as an escape, and
    secrets are hidden.
    """
    with contextlib.suppress(ImportError):  # what is told may be that a dependency is gone
        from fi_doctor.model import secrets

        text = secrets.hidden(text, secrets.held(os.environ))
    try:
        print("\n".join(map(one_line, text.split("\n"))), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def tell_error(error: DoctorError) -> None:
    """The three parts of an expected failure; only a reason may have lines (all errors of a file), set below it."""
    why = "\n       ".join(_cut(one_line(line.strip())) for line in error.why.split("\n"))
    tell(str(DoctorError(_cut(one_line(error.what)), why=why, todo=one_line(error.todo))))


def one_line(text: str) -> str:
    """The text without anything that a terminal would obey."""
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _cut(line: str) -> str:
    """What was typed, or stands in a file, may be of any length."""
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} [{len(line) - _LONGEST} more characters]"


def _escape(char: str) -> str:
    return " " if char in "\t\n\r" else char.encode("unicode_escape").decode("ascii")
