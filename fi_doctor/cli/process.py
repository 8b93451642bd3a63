"""The command as a process: signals, streams and faults, each with the exit code that it deserves."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import sys
import time
from types import FrameType

from fi_doctor.cli import streams

INTERRUPTED = 130
UNTOLD = 3
FAULT = 4
# Signals that end the command, how that is called, and the code that a shell gives for it.
ENDINGS = {
    signal.SIGINT: ("interrupted", INTERRUPTED),
    signal.SIGTERM: ("terminated", 143),
    signal.SIGHUP: ("its terminal was closed", 129),
}
# A signal is followed by others: a service manager insists, kernel and shell both tell of a closed terminal. They must
# not break off the killing of children. One that comes much later is from somebody who waits in vain.
CLEANING_S = 10.0


class Terminated(KeyboardInterrupt):
    """One of those, travelling like Ctrl-C always does, so that children are killed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.how, self.code = ENDINGS[signal.Signals(number)]


def main(argv: list[str]) -> None:
    """Run the command line and exit with its code, at once.

    All is written and every child is dead by then. What is left is Python taking itself apart, which costs a fifth of
    a static check, and would wait for ever for a thread that is stuck in a driver.
    """
    _replace_closed_streams()
    code = _guarded(argv)
    _ignore_signals()
    _end_children()
    for stream in (sys.stdout, sys.stderr):
        # A stream may be closed, full or gone; the verdict's own code is what counts now.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _guarded(argv: list[str]) -> int:
    try:
        _take_signals()
        # A missing dependency must end with 4, not with Python's own 1.
        from fi_doctor.cli import run

        return run(argv)
    except Terminated as end:
        return _interrupted(end.how, end.code)
    except KeyboardInterrupt:
        return _interrupted(*ENDINGS[signal.SIGINT])
    except ModuleNotFoundError as error:
        _report_missing(error)
        return FAULT
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            _report_fault(argv)
            return FAULT
        _report_shortage(error)
        return UNTOLD
    except Exception:  # noqa: BLE001 - the top handler: whatever is left is our own fault and must end with 4
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


def _take_signals() -> None:
    end = _Ender()
    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup, which means to go on
            signal.signal(number, end)


class _Ender:
    """The handler: the first signal ends the command, those that follow at once are part of it."""

    def __init__(self) -> None:
        self._deaf_until = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if now >= self._deaf_until:
            self._deaf_until = now + CLEANING_S
            raise Terminated(number)


def _ignore_signals() -> None:
    # Not SIG_IGN, about which Python complains where a signal has arrived and was not yet handled.
    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def _interrupted(how: str, code: int) -> int:
    _ignore_signals()
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


def _report_shortage(error: OSError) -> None:
    lines = [
        "error: this process may not open enough files to look at anything",
        f"  why: {error.strerror}",
        "  try: ulimit -n 1024",
    ]
    streams.tell("\n".join(lines))


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
