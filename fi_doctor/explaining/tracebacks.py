"""The frame in which an error was raised: the last one of the traceback that stands before its line."""

from __future__ import annotations

from collections import deque

from fi_doctor.explaining import tying
from fi_doctor.explaining.lines import Line, read
from fi_doctor.explaining.patterns import search
from fi_doctor.explaining.stream import Hit

# Errors of tvm-ffi put the frames of C++ behind those of Python: 'File "/v/flashinfer/data/csrc/norm.cu", line 33, in
# rmsnorm'. Source: apache-tvm-ffi 0.1.11, tvm_ffi/error.py.
_NATIVE = tuple(f'.{ending}", line '.encode() for ending in ("cu", "cuh", "cc", "cpp", "h"))
_PYTHON = b'.py", line '
LITERALS = frozenset((_PYTHON, *_NATIVE))
_KEPT = 16  # frames: those of several ranks are mixed
_FAR = 40  # lines between the last frame and its error: source lines, carets, other ranks
_OWN = "/flashinfer/"
_BETWEEN = 6  # lines between two frames of one traceback: source lines, carets
# What is called through these raised it.
_THROUGH = r"/torch/(?:_ops|_library/\w+|utils/_contextlib|nn/modules/module)\.py"
_RAISED = r"^(?:E +|!+ |\s+)?(?:[A-Za-z_][\w.]*\.)?_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b"


_KINDS = ("Error", "Exception", "Interrupt", "Exit")


def is_raised(text: str) -> bool:
    """Whether a line is the last one of a traceback: the exception with its message."""
    return any(map(text.__contains__, _KINDS)) and search(_RAISED, text) is not None


class Frames:
    """The last frames that were seen."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._last: deque[Hit] = deque(maxlen=_KEPT)
        self._ended: dict[str, int] = {}  # rank -> the line of its last exception

    def add(self, hit: Hit) -> None:
        """Keep a line, if it has a frame; it is taken apart only where an error asks for it."""
        if not LITERALS.isdisjoint(hit.literals):
            self._last.append(hit)

    def end(self, line: Line) -> None:
        """Note a line that tells an error: what stands after it is of another traceback."""
        if is_raised(line.text):
            self._ended[line.rank] = line.number

    def placed(self, line: Line) -> Line:
        """The line with the frame in which its error was raised, where it tells one and there is a traceback.

        That is the last one in Python, or one in FlashInfer's C++ that others called without FlashInfer's Python.
        """
        if not self._last or not is_raised(line.text):
            return line
        native, raised, owner, is_own, last = "", "", "", False, line.number
        for hit in reversed(self._last):
            is_before = last - hit.number > _BETWEEN or hit.number < self._ended.get(line.rank, 0)
            if line.number - hit.number > _FAR or (raised and is_before):
                break
            frame = read(self._file, hit.number, hit.raw)
            if frame.rank and line.rank and frame.rank != line.rank:
                continue
            text, last = frame.text.strip().replace("\\", "/"), hit.number  # Windows has "\\" there
            is_own, owner = is_own or _OWN in text, owner or tying.package(text)
            if raised or search(_THROUGH, text) is not None:
                continue
            if _PYTHON in hit.literals:
                raised = text if _OWN in text or not native else native
            elif _OWN in text and text.startswith('File "'):
                native = native or text
        if not raised and not native:
            return line
        return line._replace(frame=raised or native, is_own=is_own, owner="" if is_own else owner)
