"""Which lines with signs are kept of a log that is full of them: the first of each sign, and the last of all."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from fi_doctor.explaining.lines import Line

_EACH = 300  # lines with a literal, the first ones
_MOST = 5_000  # lines, the first ones
_LAST = 500  # lines: a process ends with what ended it


class Kept:
    """The lines with a literal of a fault."""

    def __init__(self) -> None:
        self.left_out = 0
        self._first: list[Line] = []
        self._last = deque[Line](maxlen=_LAST)
        self._times = Counter[bytes]()

    def add(self, line: Line, literals: Iterable[bytes]) -> None:
        """Keep a line, for a while where there are many like it."""
        found = tuple(literals)
        self._times.update(found)
        if len(self._first) < _MOST and any(self._times[literal] <= _EACH for literal in found):
            self._first.append(line)
            return
        self.left_out += len(self._last) == _LAST
        self._last.append(line)

    @property
    def lines(self) -> list[Line]:
        """Those that are kept, in the order of the log."""
        return sorted((*self._first, *self._last), key=lambda line: (line.place, line.number))
