"""Reading a file of a package under examination: only a plain file, and not more than a bound of it."""

from __future__ import annotations

import errno
import io
import os
import stat
import tokenize
from pathlib import Path

from fi_doctor.model import Missing

LARGEST_BYTES = 8 << 20
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EBADF)  # nothing can lie there
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
    """The beginning of a plain file as text; Missing where it cannot be read, also where it is a pipe or a device."""
    try:
        return read_head(path, LARGEST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        return Missing(reason=f"{path}: {why_unread(error)}", absent=isinstance(error, FileNotFoundError))


def read_whole(path: Path | str, most: int = LARGEST_BYTES) -> bytes:
    """All of a plain file. Errors: OSError, also where it is no plain file or has more bytes than that."""
    data = read_head(path, most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return data


def read_head(path: Path | str, size: int) -> bytes:
    """The first bytes of a plain file. Errors: OSError, also for a pipe or a device, which might never end.

    Looked at before it is opened, since opening a device can do things, and afterwards: it may be another by then.
    """
    _check_plain(os.stat(path), path)  # noqa: PTH116 - thousands of files
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        state = os.fstat(fd)
        _check_plain(state, path)
        # Room for all that is asked for is taken first, so no more is asked for than there is; /proc does not say.
        return file.read(min(size, state.st_size + 1) if state.st_size else size)


def why_unread(error: OSError) -> str:
    """What the system says of a file that cannot be read, in words."""
    if isinstance(error, PermissionError):
        return f"cannot be read: {error.strerror}"
    return error.strerror or str(error)


def is_file(path: Path | str) -> bool:
    """Whether there is a plain file that can be looked at. Path.is_file raises where permissions deny the look."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path | str) -> bool:
    """Whether there is a folder that can be looked at. Path.is_dir raises where permissions deny the look."""
    return os.path.isdir(path)  # noqa: PTH112


def may_be_file(path: Path | str) -> bool:
    """Whether there is a file, or there may be: false only where it is known that there is none."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - thousands of files
    except OSError as error:
        return error.errno not in _ABSENT
    except ValueError:  # a null character
        return False


def why_no_folder(path: Path | str) -> str:
    """Why it is no folder in which things can be looked at, "/a is not a folder"; "" where it is one."""
    try:
        return "" if stat.S_ISDIR(os.stat(path).st_mode) else f"{path} is not a folder"  # noqa: PTH116 - as above
    except OSError as error:
        return f"{path} {'is not a folder' if error.errno in _ABSENT else f'cannot be looked at: {error.strerror}'}"


def matching(folder: Path | str, pattern: str) -> list[Path]:
    """What Path.glob finds below a folder, sorted; nothing where permissions deny the look, as elsewhere in it."""
    try:
        return sorted(Path(folder).glob(pattern))
    except OSError:
        return []


def _check_plain(state: os.stat_result, path: Path | str) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "it is not a file", str(path))
