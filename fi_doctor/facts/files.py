"""Reading a file of a package under examination: only a plain file, and not more than a bound of it."""

from __future__ import annotations

import io
import os
import stat
import tokenize
from pathlib import Path

from fi_doctor.model import Missing

LARGEST_BYTES = 8 << 20
# What ast raises on text that is no Python, is nested too deeply or too long for its parser.
NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)


def why_not_python(error: BaseException) -> str:
    """What one of NOT_PYTHON says; of two Python itself says nothing that helps."""
    if isinstance(error, RecursionError | MemoryError):
        return "nested too deeply, or too long"
    return str(error)


def decoded(source: bytes) -> str:
    """The text of a Python file as Python reads it: by its byte order mark or its cookie, else as UTF-8.

    One of NOT_PYTHON where Python would refuse it.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    text = source.decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: Path) -> str | Missing:
    """The beginning of a plain file as text; a pipe or device, which might never end, is not opened for long."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return Missing(reason=f"{path} is not a file")
            with os.fdopen(os.dup(fd), "rb") as file:
                return file.read(LARGEST_BYTES).decode("utf-8", "replace")
        finally:
            os.close(fd)
    except OSError as error:
        return Missing(reason=f"{path}: {error.strerror or error}", absent=isinstance(error, FileNotFoundError))
