"""A process that ends all others which this one started, when this one is killed and cannot do it itself.

It removes temporary folders, too.

PR_SET_PDEATHSIG reaches direct children only, and a signal that can be ignored is all that ninja hands on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

_SCRIPT = Path(__file__).with_name("inside") / "guard.py"

# Given a script with its arguments and a descriptor for its stdin, it starts that and gives its number.
Start = Callable[[Sequence[str], int], int]


class Guard:
    """The one of this process."""

    def __init__(self) -> None:
        self.word = ""  # to be in the environment of all that it ends
        self.pid = 0
        self._owner = 0
        self._pipe = -1

    def post(self, start: Start) -> None:
        """Start it, unless that was done for this process. Where it cannot be started, there is none."""
        if self._owner == os.getpid():
            return
        self._close()  # that of a process of which this one is a copy
        self._owner = os.getpid()
        self.word = os.urandom(8).hex()
        self.pid = 0
        with contextlib.suppress(OSError):
            reading, self._pipe = os.pipe()
            try:
                os.set_blocking(self._pipe, False)  # one that is stopped holds nobody up
                self.pid = start((str(_SCRIPT), self.word), reading)
            finally:
                os.close(reading)

    def session(self, leader: int, *, is_over: bool) -> None:
        """A session begins or is over, after which its number may be given to another one."""
        with contextlib.suppress(OSError):
            os.write(self._pipe, f"{'-' if is_over else '+'}{leader}\n".encode())

    def folder(self, path: str) -> None:
        """A folder that is to be removed, should this process not do it."""
        with contextlib.suppress(OSError):
            if "\n" not in path:
                os.write(self._pipe, b"=" + os.fsencode(path) + b"\n")

    def dismiss(self) -> None:
        """Nobody is left to be ended."""
        if self.pid and self._owner == os.getpid():
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # somebody has ended or reaped it
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            self.pid = 0
        self._close()

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe = -1
