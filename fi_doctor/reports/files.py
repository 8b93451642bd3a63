"""What a file holds that somebody names as a report: never more than a report may have, and nothing that blocks."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from fi_doctor.errors import DataError

MAX_BYTES = 64 * 1024 * 1024
_STREAM = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/(?:self|\d+)/fd/\d+")  # open already, by whoever started us


def data_of(path: Path) -> bytes:
    """What a file holds, or a pipe, up to a byte more than a report may have; DataError when it cannot be read."""
    name = os.path.join(_current_folder(), path)  # noqa: PTH118 - Path.absolute() fails where that was deleted
    what = f'cannot read the report "{name}"'
    is_stream = _STREAM.fullmatch(name) is not None
    try:
        # A pipe that nobody writes to, or a device, would be waited for; opened, it may be another than before.
        _check_plain(path.stat().st_mode, what, is_stream=is_stream)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if is_stream else os.O_NONBLOCK))
        with os.fdopen(fd, "rb") as file:
            _check_plain(os.fstat(fd).st_mode, what, is_stream=is_stream)
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(what, why=error.strerror or str(error)) from error
    except ValueError as error:  # a name that no file can have, which only a program can give
        raise DataError(f"cannot read the report {name!r}", why=str(error)) from error


def _check_plain(kind: int, what: str, *, is_stream: bool) -> None:
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or is_stream):
        raise DataError(what, why="it is not a file", todo="--from - reads stdin")


def _current_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - as above
    except OSError:
        return ""
