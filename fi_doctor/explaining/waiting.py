"""What is no regular file, and so may tell nothing or never end: pipes, devices, a terminal."""

from __future__ import annotations

import io
import os
import select
import time
from typing import TYPE_CHECKING

from fi_doctor.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FIRST_S = 60.0  # until the first byte comes: a server that starts says something by then
NEXT_S = 600.0  # between bytes: a server that compiles is silent for minutes
MOST_BYTES = 8 << 30  # of what is piped in or unpacked, some half a minute's reading
SILENT = "nothing came for "  # why what is piped in is read no longer, and yet whole up to now


class Patient(io.RawIOBase):
    """A descriptor that is read until its end, its limit, or until nothing comes any more."""

    def __init__(self, number: int, name: str, cut: list[str], *, is_own: bool = True) -> None:
        self._number = number
        self._name = name
        self._cut = cut
        self._is_own = is_own  # whether it is closed with this
        self._is_terminal = os.isatty(number)  # a person may think
        self._read = 0

    def readable(self) -> bool:
        """Yes, as io asks."""
        return True

    def close(self) -> None:
        """Close the descriptor too, if it is ours."""
        if self._is_own and not self.closed:
            os.close(self._number)
        super().close()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Errors: UsageError where nothing ever came, OSError."""
        view = memoryview(buffer)
        if self._read >= MOST_BYTES:
            self._give_up(f"more than {MOST_BYTES >> 30} GiB came")
        data = b"" if self._cut else self._next(len(view))
        self._read += len(data)
        view[: len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        limit = NEXT_S if self._read else FIRST_S
        end = time.monotonic() + limit
        while True:
            left = None if self._is_terminal else max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._number], [], [], left)
            if not ready:
                return self._silent(limit)
            try:
                return os.read(self._number, size)
            except BlockingIOError:  # another reader was faster
                continue

    def _silent(self, limit: float) -> bytes:
        if self._read:
            self._give_up(f"{SILENT}{limit:.0f} s")
            return b""
        todo = "see that something writes to it, or give a file"
        raise UsageError(f"{self._name!r} tells nothing", why=f"nothing came from it in {limit:.0f} s", todo=todo)

    def _give_up(self, why: str) -> None:
        if why not in self._cut:
            self._cut.append(why)


def opened(path: str, cut: list[str]) -> Patient:
    """A pipe or a device by its name; that nobody writes to it holds nobody. Errors: OSError."""
    return Patient(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path, cut)
