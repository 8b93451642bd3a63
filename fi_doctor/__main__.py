"""The console script; everything is imported inside its handler, so that each failure gets the code it deserves."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
TERMINATED = 143
FAULT = 4


class Terminated(KeyboardInterrupt):
    """SIGTERM, travelling like Ctrl-C so that children are killed on the way out."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code, at once.

    All is written and every child is dead by then. What is left is Python taking itself apart, which costs a fifth of
    a static check, and would wait for ever for a thread that is stuck in a driver.
    """
    code = _guarded(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        # A stream may be closed, full or gone; the verdict's own code is what counts now.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _guarded(argv: list[str]) -> int:
    try:
        signal.signal(signal.SIGTERM, _on_sigterm)
        # A missing dependency must end with 4, not with Python's own 1.
        from fi_doctor.cli import run

        return run(argv)
    except Terminated:
        return _interrupted("terminated", TERMINATED)
    except KeyboardInterrupt:
        return _interrupted("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Nobody reads us any more; keep the interpreter from failing once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except Exception:  # noqa: BLE001 - the top handler: whatever is left is our own fault and must end with 4
        _report_fault(argv)
        return FAULT


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise Terminated


def _interrupted(how: str, code: int) -> int:
    print(f"fi-doctor: {how}; no verdict", file=sys.stderr)
    return code


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
