"""Writing what was rendered: stdout is the report and nothing else, a file appears whole or not at all."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import tempfile

from fi_doctor.errors import UsageError


def style() -> tuple[int, bool]:
    """Width in columns and whether to colour, by stdout, COLUMNS, NO_COLOR and TERM."""
    # COLUMNS, else the terminal's width, else 80 where stdout is no terminal.
    width = min(200, max(60, shutil.get_terminal_size((80, 24)).columns))
    if not sys.stdout.isatty():
        return width, False
    return width, not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def check_writable(path: str) -> None:
    """UsageError now, before minutes of work, when `path` cannot be written later."""
    target = _target(path)
    folder = target.parent
    if target.is_dir():
        why = "it is a folder"
    elif _is_stream(target):
        why = "" if os.access(target, os.W_OK) else "it is not writable for this user"
    elif not folder.is_dir():
        why = f"there is no folder {str(folder)!r}"
    elif not os.access(folder, os.W_OK):
        why = f"the folder {str(folder)!r} is not writable for this user"
    else:
        why = ""
    if why:
        raise _unwritable(path, why)


def write(text: str, output: str | None) -> None:
    """The text to `output`, or to stdout; a reader that has gone away is no failure.

    Errors: UsageError when it cannot be written.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        if output is None:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        elif _is_stream(target := _target(output)):
            with target.open("ab") as stream:
                stream.write(data)
        else:
            _write_file(data, target)
    except BrokenPipeError:
        # The verdict's own code must survive `| head`; without this Python fails once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if output is not None:
            raise _unwritable(output, error.strerror or str(error)) from error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(
            "stdout cannot be written", why=error.strerror or str(error), todo="make room, or send it elsewhere"
        ) from error


def say(line: str) -> None:
    """One line to stderr; a stderr that is gone is no failure."""
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def _target(path: str) -> pathlib.Path:
    """What a link leads to, so that the link stays; names in /dev and /proc stand for streams and stay as they are."""
    absolute = pathlib.Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow /dev/stdout to a file
    return absolute if _is_stream(absolute) else absolute.resolve()


def _is_stream(target: pathlib.Path) -> bool:
    """Whether there is nothing to rename onto: /dev/stderr, whatever it leads to, or a named pipe."""
    if target.parts[1:2] in (("dev",), ("proc",)) and target.parts[1:3] != ("dev", "shm"):
        return True
    return target.exists() and not target.is_file() and not target.is_dir()


def _write_file(data: bytes, target: pathlib.Path) -> None:
    """The whole file under a name of its own first, then under the one that was asked for."""
    scratch = tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name[:100]}.", delete=False)  # noqa: SIM115
    try:
        with scratch:
            scratch.write(data)
        umask = os.umask(0)
        os.umask(umask)
        pathlib.Path(scratch.name).chmod(0o666 & ~umask)
        pathlib.Path(scratch.name).replace(target)
    except BaseException:
        pathlib.Path(scratch.name).unlink(missing_ok=True)
        raise


def _unwritable(path: str, why: str) -> UsageError:
    return UsageError(f"-o: {str(pathlib.Path(path).absolute())!r} cannot be written", why=why, todo="-o report.yaml")
