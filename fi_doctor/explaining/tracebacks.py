"""The frame in which an error was raised: the last one of the traceback that stands before its line."""

from __future__ import annotations

from collections import deque

from fi_doctor.explaining.lines import Line, read
from fi_doctor.explaining.patterns import search
from fi_doctor.explaining.stream import Hit

LITERAL = b'.py", line '
_KEPT = 16  # frames: those of several ranks are mixed
_FAR = 40  # lines between the last frame and its error: source lines, carets, other ranks
# What is called through these raised it.
_THROUGH = r"/torch/(?:_ops|_library/\w+|utils/_contextlib|nn/modules/module)\.py"
_RAISED = r"^(?:E +|!+ |\s+)?(?:[A-Za-z_][\w.]*\.)?_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b"


class Frames:
    """The last frames that were seen."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._last: deque[Hit] = deque(maxlen=_KEPT)

    def add(self, hit: Hit) -> None:
        """Keep a line, if it has a frame; it is taken apart only where an error asks for it."""
        if LITERAL in hit.literals:
            self._last.append(hit)

    def placed(self, line: Line) -> Line:
        """The line with the frame in which its error was raised, where it tells one and there is a traceback."""
        if not self._last or search(_RAISED, line.text) is None:
            return line
        for hit in reversed(self._last):
            if line.number - hit.number > _FAR:
                break
            frame = read(self._file, hit.number, hit.raw)
            if search(_THROUGH, frame.text) is not None:
                continue
            if frame.rank == line.rank or not (frame.rank and line.rank):
                return line._replace(frame=frame.text.strip())
        return line
