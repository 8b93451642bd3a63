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
        self._first: list[tuple[Line, tuple[bytes, ...]]] = []
        self._last = deque[tuple[Line, tuple[bytes, ...]]](maxlen=_LAST)
        self._times = Counter[bytes]()

    def add(self, line: Line, literals: Iterable[bytes]) -> None:
        """Keep a line, for a while where there are many like it."""
        found = tuple(literals)
        self._times.update(found)
        if len(self._first) < _MOST and any(self._times[literal] <= _EACH for literal in found):
            self._first.append((line, found))
            return
        self.left_out += len(self._last) == _LAST
        self._last.append((line, found))

    @property
    def literals(self) -> frozenset[bytes]:
        """Those that were found, also where no line of theirs is kept."""
        return frozenset(self._times)

    @property
    def placed(self) -> dict[str, list[Line]]:
        """For each literal the lines that are kept of it, in the order of the log."""
        every = sorted((*self._first, *self._last), key=lambda one: (one[0].place, one[0].number))
        found: dict[str, list[Line]] = {}
        for line, literals in every:
            for literal in literals:
                found.setdefault(literal.decode(), []).append(line)
        return found
