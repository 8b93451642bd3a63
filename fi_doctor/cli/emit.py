"""Writing what was rendered: stdout is the report and nothing else, a file appears whole or not at all."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import tempfile

from fi_doctor.errors import UsageError


def style() -> tuple[int, bool]:
    """Width in columns and whether to colour, by stdout, NO_COLOR and TERM."""
    if not sys.stdout.isatty():
        return 80, False
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"
    return max(60, shutil.get_terminal_size((80, 24)).columns), color


def check_writable(path: str) -> None:
    """UsageError now, before minutes of work, when `path` cannot be written later."""
    target = pathlib.Path(path)
    folder = target.parent
    if target.is_dir():
        why = "it is a folder"
    elif not folder.is_dir():
        why = f"there is no folder {str(folder.resolve())!r}"
    elif not os.access(folder, os.W_OK):
        why = f"the folder {str(folder.resolve())!r} is not writable for this user"
    else:
        return
    raise UsageError(f"-o: {str(target.absolute())!r} cannot be written", why=why, todo="-o report.yaml")


def write(text: str, output: str | None) -> None:
    """The text to `output`, or to stdout; a reader that has gone away is no failure."""
    data = text.encode("utf-8", "backslashreplace")
    if output is not None:
        _write_file(data, pathlib.Path(output))
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        # The verdict's own code must survive `| head`; without this Python fails once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: str) -> None:
    """One line to stderr; a stderr that is gone is no failure."""
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def _write_file(data: bytes, target: pathlib.Path) -> None:
    if target.exists() and not target.is_file():  # /dev/stderr, a named pipe: nothing to rename onto
        target.write_bytes(data)
        return
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as scratch:
            scratch.write(data)
        umask = os.umask(0)
        os.umask(umask)
        pathlib.Path(scratch.name).chmod(0o666 & ~umask)
        pathlib.Path(scratch.name).replace(target)
    except OSError as error:
        raise UsageError(
            f"-o: {str(target.absolute())!r} cannot be written", why=str(error), todo="-o report.yaml"
        ) from error
