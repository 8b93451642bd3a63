"""Writing what was rendered: stdout is the report and nothing else, a file appears whole or not at all."""

from __future__ import annotations

import errno
import os
import pathlib
import re
import shlex
import shutil
import stat
import tempfile

from fi_doctor.cli import streams
from fi_doctor.errors import UsageError

_STREAM = re.compile(r"/dev/(?:stdin|stdout|stderr|fd/\d+)|/proc/(?:self|thread-self|\d+)/fd/\d+")

# Links were followed when the name was looked at; whoever owns the folder may have laid one since.
_AS_IT_IS = os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # as many as the kernel follows
_OUR_STREAM = re.compile(r"/dev/(stdin|stdout|stderr)|(?:/dev|/proc/self)/fd/(\d{1,9})")


def style() -> tuple[int, bool]:
    """Width in columns and whether to colour, by stdout, COLUMNS, NO_COLOR and TERM."""
    # COLUMNS, else the terminal's width, else 80 where stdout is no terminal.
    width = min(200, max(60, shutil.get_terminal_size((80, 24)).columns))
    if not os.isatty(streams.STDOUT):
        return width, False
    return width, not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def terminal_width() -> int | None:
    """The columns of the terminal that stderr is; None where it is none, and lines are read by scripts."""
    try:
        columns = os.get_terminal_size(streams.STDERR).columns
    except OSError:
        return None
    return max(20, columns or 80)


def check_writable(path: str | None, option: str = "-o") -> None:
    """UsageError now, before minutes of work, when `path` (None: stdout) cannot be written later.

    option: what messages call it.
    """
    if path is None:
        streams.check_stdout()
        return
    try:
        target = _target(path)
        why = "it is closed" if streams.is_closed(stream_number(path) or 0) else _why_not(target, _kind(target))
    except OSError as error:  # a loop of links, a name that is too long, a current folder that was deleted
        raise _unwritable(path, error.strerror or str(error), option) from error
    except ValueError as error:  # a NUL, which a policy can hold
        raise _unwritable(path, str(error), option) from error
    if why:
        raise _unwritable(path, why, option, _lacking(target))


def write(text: str, output: str | None, option: str = "-o") -> None:
    """The text to `output`, or to stdout; a reader that has gone away is no failure.

    option: what messages call it. Errors: UsageError when it cannot be written.
    """
    if output is None:
        streams.put(text)
        return
    data = text.encode("utf-8", "backslashreplace")
    try:
        number = stream_number(output)
        target = _target(output)
        if number is not None:
            # Opened anew, a file would be written from its own place, over what else goes to the stream.
            streams.write_all(data, number)
        elif _is_stream(target) or stat.S_ISCHR(_kind(target)):
            with target.open("ab") as stream:
                stream.write(data)
        elif _is_mounted(target):
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_TRUNC | _AS_IT_IS), "wb") as there:
                there.write(data)
        else:
            _write_file(data, target)
    except BrokenPipeError:
        return  # the verdict's own code must survive `| head`
    except OSError as error:
        raise _unwritable(output, error.strerror or str(error), option) from error


def append(text: str, path: str, option: str) -> None:
    """The text at the end of a file that others add to as well. Errors: as `write`."""
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _AS_IT_IS
        with os.fdopen(os.open(_target(path), flags, 0o666), "ab") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error), option) from error


def stream_number(path: str | None) -> int | None:
    """The descriptor of ours that a name such as /dev/stdout stands for, or no name; None for other files."""
    if path is None:
        return streams.STDOUT
    found = _OUR_STREAM.fullmatch(os.path.abspath(path))  # noqa: PTH100 - as in _target
    if found is None:
        return None
    return int(found[2]) if found[2] else ("stdin", "stdout", "stderr").index(found[1])


def say(line: str) -> None:
    """One line to stderr; a stderr that is gone is no failure."""
    streams.tell(streams.one_line(line))


def _target(path: str) -> pathlib.Path:
    """What a link leads to, so that the link stays; names of streams stay as they are. OSError without a folder."""
    absolute = pathlib.Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow /dev/stdout to a file
    if _is_stream(absolute):
        return absolute
    _check_link(absolute)
    return pathlib.Path(os.path.realpath(absolute))  # not resolve(), which raises something else for a loop of links


def _check_link(path: pathlib.Path) -> None:
    """OSError for a link of another user's in a folder to which all may add: the kernel follows none (proc(5)).

    Source: protected_symlinks, which sees only what is opened by such a name, and not what is put in its place.
    """
    for _ in range(_MOST_LINKS):
        if not path.is_symlink():
            return
        folder, link = path.parent.stat(), path.lstat()
        is_open_to_all = bool(folder.st_mode & stat.S_ISVTX) and bool(folder.st_mode & stat.S_IWOTH)
        if is_open_to_all and link.st_uid not in (os.geteuid(), folder.st_uid):
            raise OSError(errno.EACCES, "it is a link that another user made in a folder to which all may add")
        path = path.parent / path.readlink()


def _is_stream(target: pathlib.Path) -> bool:
    """Whether the name stands for something that is open already, to be added to: /dev/stdout, /dev/fd/63."""
    return _STREAM.fullmatch(str(target)) is not None


def _kind(target: pathlib.Path) -> int:
    """The type bits of what is there, 0 for nothing; OSError when that cannot be told."""
    try:
        return stat.S_IFMT(target.stat().st_mode)
    except FileNotFoundError:
        return 0


def _why_not(target: pathlib.Path, kind: int) -> str:
    """Why nothing can be written there, or ""."""
    folder = target.parent
    if kind == stat.S_IFDIR:
        return "it is a folder"
    if _is_stream(target) or kind == stat.S_IFCHR:
        return "" if os.access(target, os.W_OK) else "it is not writable for this user"
    if kind not in (0, stat.S_IFREG):
        # To open a pipe that nobody reads would wait for ever, once all the work is done.
        return "it is neither a file nor a terminal; a pipe can be given as /dev/stdout or /dev/fd/N"
    if _is_mounted(target):
        return "" if os.access(target, os.W_OK) else "it is not writable for this user"
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises where permissions deny the look
        return f"there is no folder {str(folder)!r}"
    if not os.access(folder, os.W_OK):
        return f"the folder {str(folder)!r} is not writable for this user"
    try:  # who may do anything may not in /proc, and of a file system that is full permissions tell nothing
        tempfile.TemporaryFile(dir=folder, prefix=".fi-doctor-").close()
    except OSError as error:
        return f"the folder {str(folder)!r} takes no file: {error.strerror}"
    return ""


def _is_mounted(target: pathlib.Path) -> bool:
    """Whether it is a file that is mounted by itself, as /dev/termination-log in a pod: no other can take its name."""
    try:
        there = target.lstat()
        return stat.S_ISREG(there.st_mode) and there.st_dev != target.parent.stat().st_dev
    except OSError:
        return False


def _write_file(data: bytes, target: pathlib.Path) -> None:
    """The whole file under a name of its own first, then under the one that was asked for."""
    scratch = tempfile.NamedTemporaryFile(dir=target.parent, prefix=".fi-doctor-", delete=False)  # noqa: SIM115
    try:
        with scratch:
            scratch.write(data)
            scratch.flush()
            os.fchmod(scratch.fileno(), _mode(target))  # not by its name, in whose place a link may be by now
            os.fsync(scratch.fileno())
        pathlib.Path(scratch.name).replace(target)
    except BaseException:
        pathlib.Path(scratch.name).unlink(missing_ok=True)
        raise


def _mode(target: pathlib.Path) -> int:
    """The permissions of the file that is there, else those that the user gives new files."""
    try:
        return stat.S_IMODE(target.lstat().st_mode) & 0o777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def _lacking(target: pathlib.Path) -> str:
    """The line that makes the folder, where all that lacks is a folder in one of this user's."""
    above = target.parent
    while not os.path.lexists(above):
        above = above.parent
    makes = above != target.parent and os.path.isdir(above) and os.access(above, os.W_OK)  # noqa: PTH112 - as in _why_not
    return shlex.join(["mkdir", "-p", str(target.parent)]) if makes else ""


def _unwritable(path: str, why: str, option: str, todo: str = "") -> UsageError:
    todo = todo or ("-o report.yaml" if option == "-o" else "name a file in a folder of yours")
    return UsageError(f"{option}: {_named(path)!r} cannot be written", why=why, todo=todo)


def _named(path: str) -> str:
    try:
        return str(pathlib.Path(path).absolute())
    except OSError:  # the current folder was deleted
        return path
