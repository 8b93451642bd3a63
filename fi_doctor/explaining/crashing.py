"""A program that crashed while a model spoke: a traceback that begins in the middle of its words, and ends the text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fi_doctor.explaining.lines import Level, Line
from fi_doctor.explaining.stream import Hit
from fi_doctor.explaining.tracebacks import LITERALS, is_raised

_BEGUN = b"Traceback (most recent call last):"
# Who speaks of an error says so before it, or opens a quotation; a model that is cut off was at something else.
_SPOKEN_OF = re.compile(
    rb"(?i)error|exception|traceback|crash|fail|output|message|\blogs?\b|stack|looks? like|example|see\b|this"
    rb"|[:`'\">]\s*$"
)
_HEAD = 300  # bytes of the line before a traceback
_NEAR = 3  # lines from the last frame to its error: the source line, carets


class Cut:
    """Whether an error ends a program in the middle of what a model says, while a text is read."""

    def __init__(self) -> None:
        self._frame = (0, False)  # the last line of a traceback with a frame, and whether that one begins so

    def add(self, hit: Hit) -> None:
        """Look at a line, which may be a frame of a traceback."""
        if LITERALS.isdisjoint(hit.literals):
            return
        if not hit.is_in_answer:
            self._frame = (hit.number, False)
            return
        before, found, _ = hit.above.rpartition(_BEGUN)
        spoken = before.rstrip(b"\n").rpartition(b"\n")[2][-_HEAD:].strip() if found else b""
        self._frame = (hit.number, bool(spoken) and _SPOKEN_OF.search(spoken) is None)

    def placed(self, line: Line, hit: Hit, *, is_fenced: bool) -> Line:
        """The line, with whether it may be such an error: only what comes after it tells."""
        number, is_cut = self._frame
        is_one = is_cut and hit.is_in_answer and not is_fenced and 0 < hit.number - number <= _NEAR
        is_one = is_one and line.level is Level.NONE and is_raised(line.text)
        return line._replace(is_cut=True) if is_one else line


def weighed(placed: Mapping[str, Sequence[Line]], ends: Mapping[int, int]) -> dict[str, list[Line]]:
    """The lines for each literal; of those that may cut a text off only the ones that end it do.

    ends: the last line of each input, by its place among them.
    """
    return {literal: [_weighed(line, ends) for line in lines] for literal, lines in placed.items()}


def _weighed(line: Line, ends: Mapping[int, int]) -> Line:
    is_last = line.number >= ends.get(line.place, 0)
    return line if is_last or not line.is_cut else line._replace(is_cut=False)
