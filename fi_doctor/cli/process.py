"""The command as a process: its streams, its end by a signal and faults, each with the exit code that it deserves."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shlex
import signal
import sys

from fi_doctor.cli import streams
from fi_doctor.cli.signals import ENDINGS, Ender, Terminated

UNTOLD = 3
FAULT = 4

_OBJECTS_A_COLLECTION = 200_000


def main(argv: list[str]) -> None:
    """Run the command line and exit with its code, at once.

    All is written and every child is dead by then. What is left is Python taking itself apart, which costs a fifth of
    a static check, and would wait for ever for a thread that is stuck in a driver. What a command makes it keeps to its
    end: the collector, which looks for what nobody keeps at every 700th object, takes a tenth of a static check.
    """
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    _replace_closed_streams()
    code = _guarded(argv, Ender())
    _end_children()
    for stream in (sys.stdout, sys.stderr):
        # A stream may be closed, full or gone; the verdict's own code is what counts now.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _guarded(argv: list[str], ender: Ender) -> int:
    """The code of the command; no signal is raised afterwards, nor while it is said that one has come."""
    try:
        ender.listen()
        code = _run(argv)
        ender.rest()
    except Terminated as end:
        return _interrupted(ender, end.how, end.code)
    except KeyboardInterrupt:
        return _interrupted(ender, *ENDINGS[signal.Signals(ender.number or signal.SIGINT)])
    if ender.number:  # it was swallowed, and the end came before it was raised again
        return _interrupted(ender, *ENDINGS[signal.Signals(ender.number)])
    return code


def _run(argv: list[str]) -> int:
    try:
        # A missing dependency must end with 4, not with Python's own 1.
        from fi_doctor.cli import run

        return run(argv)
    except ModuleNotFoundError as error:
        _report_missing(error)
        return FAULT
    except Exception as error:  # noqa: BLE001 - the top handler: whatever is left is our own fault and must end with 4
        shortage = _shortage(error)
        if shortage:
            streams.tell("\n".join(shortage))
            return UNTOLD
        _report_fault(argv)
        return FAULT


def _replace_closed_streams() -> None:
    """Python gives None for a stream that was closed at the start, and the next file opened would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - lives as long as we


def _end_children() -> None:
    """Kill what a thread was still reading from when a mistake or a signal ended the command: nobody would later."""
    if "fi_doctor.processes" in sys.modules:
        from fi_doctor import processes

        processes.HOUSEHOLD.end()


def _interrupted(ender: Ender, how: str, code: int) -> int:
    ender.rest()
    streams.tell(f"fi-doctor: {how}; no verdict")
    return code


def _report_missing(error: ModuleNotFoundError) -> None:
    lines = [
        "error: fi-doctor is not installed whole; this says nothing about what it examines",
        f"  why: {error} (needed by {sys.executable})",
        f"  try: {shlex.join([sys.executable, '-I', '-m', 'pip', 'install', '--force-reinstall', _source()])}",
    ]
    streams.tell("\n".join(lines))


def _source() -> str:
    """What pip installed fi-doctor from, by its own record; where that is gone, a checkout that one stands in."""
    import importlib.metadata
    import json
    import urllib.parse

    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError, KeyError):
        record = json.loads(importlib.metadata.distribution("fi-doctor").read_text("direct_url.json") or "{}")
        url = str(record["url"])
        if "vcs_info" in record:
            return f"{record['vcs_info']['vcs']}+{url}"
        path = urllib.parse.unquote(url.removeprefix("file://"))
        return path if "://" in path or os.path.exists(path) else "."  # noqa: PTH110 - pathlib takes its time
    return "."


def _shortage(error: Exception) -> list[str]:
    """What is told where a limit of this process is too low to look at anything; empty for what is another failure."""
    what, todo, why = "", "", str(error)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        what, todo, why = "open enough files", "ulimit -n 1024", error.strerror or why
    elif isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        what, todo, why = "take enough memory", "ulimit -v unlimited", why or "an allocation failed"
    elif isinstance(error, RuntimeError) and "start new thread" in why:
        what, todo = "start any thread", "ulimit -u 256, or a higher limit of the container's pids"
    return (
        [f"error: this process may not {what} to look at anything", f"  why: {why}", f"  try: {todo}"] if what else []
    )


def _report_fault(argv: list[str]) -> None:
    import platform
    import traceback

    from fi_doctor import __version__

    lines = [
        "error: fi-doctor itself failed; this is a bug in it, not in what it examines",
        "  try: report the lines below as they stand; they hold no environment variables",
        f"fi-doctor {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {shlex.join(['fi-doctor', *argv])}",
        traceback.format_exc().rstrip(),
    ]
    streams.tell("\n".join(lines))
