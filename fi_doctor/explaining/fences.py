"""Text with code fences, as issues are written: what stands outside of them is what people say of what is inside."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fi_doctor.explaining.lines import Level, Line
from fi_doctor.explaining.stream import Hit

LITERAL = b"```"
_MOST = 90  # marks in one text: of more not all are seen, see stream.hits


class Fences:
    """Whether a line stands within a fence, while a text is read."""

    def __init__(self) -> None:
        self._marks = 0
        self._is_open = False

    def add(self, hit: Hit) -> None:
        """Note a line, if it opens or closes a fence."""
        if LITERAL in hit.literals and hit.raw.lstrip(b" >").startswith(LITERAL):
            self._marks += 1
            self._is_open = not self._is_open

    @property
    def is_inside(self) -> bool:
        """Whether what is read now stands in a fence."""
        return self._is_open and self._marks <= _MOST

    def placed(self, line: Line) -> Line:
        """The line, with whether it is outside of the fences; where a logger's line stands is nothing to it."""
        is_own = line.level is not Level.NONE or bool(line.time)
        return line if is_own or self.is_inside or self._marks > _MOST else line._replace(is_unfenced=True)


def weighed(placed: Mapping[str, Sequence[Line]], telling: Container[int]) -> dict[str, list[Line]]:
    """The lines for each literal; in a text whose fences tell an error those outside of them are hardly a sign.

    telling: the places of such texts among the inputs.
    """
    return {literal: [_weighed(line, telling) for line in lines] for literal, lines in placed.items()}


def _weighed(line: Line, telling: Container[int]) -> Line:
    return line._replace(is_quiet=True) if line.is_unfenced and line.place in telling else line
