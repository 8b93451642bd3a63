"""The console script; everything is imported inside its handler, so that each failure gets the code it deserves."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
from types import FrameType

INTERRUPTED = 130
FAULT = 4
# Other signals that end the command, how that is called, and the code that a shell gives for it.
ENDINGS = {signal.SIGTERM: ("terminated", 143), signal.SIGHUP: ("its terminal was closed", 129)}


class Terminated(KeyboardInterrupt):
    """One of those, travelling like Ctrl-C so that children are killed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.how, self.code = ENDINGS[signal.Signals(number)]


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code, at once.

    All is written and every child is dead by then. What is left is Python taking itself apart, which costs a fifth of
    a static check, and would wait for ever for a thread that is stuck in a driver.
    """
    _replace_closed_streams()
    code = _guarded(sys.argv[1:] if argv is None else argv)
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
        return _interrupted("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Nobody reads us any more; keep the interpreter from failing once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except ModuleNotFoundError as error:
        _report_missing(error)
        return FAULT
    except Exception:  # noqa: BLE001 - the top handler: whatever is left is our own fault and must end with 4
        _report_fault(argv)
        return FAULT


def _replace_closed_streams() -> None:
    """Python gives None for a stream that was closed at the start, and the next file opened would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - lives as long as we


def _end_children() -> None:
    """Kill what a thread was still reading from when a mistake or a signal ended the command: nobody would later.

    Ours are told by the marker that the sandbox gives them, and each leads a group of its own.
    """
    outer = os.environ.get("FI_DOCTOR_CHILD", "")
    marker = f"FI_DOCTOR_CHILD={outer}{':' if outer else ''}".encode()
    for task in pathlib.Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # threads end meanwhile
            for pid in task.read_text(encoding="ascii").split():
                with contextlib.suppress(OSError):  # and so do children
                    if marker in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                        os.killpg(int(pid), signal.SIGKILL)


def _take_signals() -> None:
    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup, which means to go on
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # kernel and shell may both say that a terminal was closed
    raise Terminated(number)


def _interrupted(how: str, code: int) -> int:
    with contextlib.suppress(OSError):  # what it would be said to may be the terminal that was closed
        print(f"fi-doctor: {how}; no verdict", file=sys.stderr, flush=True)
    return code


def _report_missing(error: ModuleNotFoundError) -> None:
    lines = [
        "error: fi-doctor is not installed whole; this says nothing about what it examines",
        f"  why: {error} (needed by {sys.executable})",
        f"  try: {sys.executable} -m pip install --force-reinstall fi-doctor",
    ]
    print("\n".join(lines), file=sys.stderr)


def _report_fault(argv: list[str]) -> None:
    import platform
    import shlex
    import traceback

    from fi_doctor import __version__

    lines = [
        "error: fi-doctor itself failed; this is a bug in it, not in what it examines",
        "  try: report the lines below as they stand; they hold no environment variables",
        f"fi-doctor {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {shlex.join(['fi-doctor', *argv])}",
        traceback.format_exc().rstrip(),
    ]
    print("\n".join(lines), file=sys.stderr)


if __name__ == "__main__":
    main()
