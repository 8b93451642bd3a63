"""The lines of a log in which a literal stands. The log is read in blocks; no more than one is held at a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from fi_doctor.explaining.patterns import Literals

_BLOCK = 1 << 20
_LINE = 1 << 14  # bytes of a line on either side of a literal that are looked at
_OVERLAP = 1 << 10  # the longest literal
# Lines with one literal that are the same but for numbers, and lines with it at all: those that come later tell
# nothing new, and are no longer looked for. A log of gigabytes repeats itself.
_ENOUGH, _MOST = 200, 20_000
_DIGITS = b"0123456789"
# Colours stand within messages of compilers: "\x1b[01;31merror: \x1b[0m".
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))")


class Readable(Protocol):
    """What bytes can be read from, packed or not."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""
        ...


class Hit(NamedTuple):
    """A line with a literal, as it stands in the file but for colours."""

    number: int  # counted from 1
    raw: bytes  # without its end; of a very long line what stands around the literal
    literals: tuple[bytes, ...]


class Reading:
    """What was seen of a log once `hits` is through."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0


def hits(stream: Readable, literals: Iterable[bytes], reading: Reading) -> Iterator[Hit]:
    """The lines in which a literal stands, each once, in their order."""
    searched, repeats = Literals(literals), _Repeats()
    rest = b""
    while True:
        chunk = stream.read(_BLOCK)
        reading.bytes += len(chunk)
        block = rest + (_ESCAPE.sub(b"", chunk) if b"\x1b" in chunk else chunk)
        cut = _cut(block) if chunk else len(block)
        for hit in _in_block(block, cut, searched, reading.lines):
            repeats.count(hit)
            yield hit
        reading.lines += block.count(b"\n", 0, cut)
        rest = block[cut:]
        if not chunk:
            reading.lines += bool(block) and not block.endswith(b"\n")
            return
        if tired := repeats.tired():
            searched = Literals([literal for literal in searched.literals if literal not in tired])


class _Repeats:
    """How often literals were found, and in lines that were much the same."""

    def __init__(self) -> None:
        self._lines: set[int] = set()
        self._same = Counter[bytes]()
        self._all = Counter[bytes]()

    def count(self, hit: Hit) -> None:
        self._all.update(hit.literals)
        form = hash(hit.raw.translate(None, _DIGITS))
        if form in self._lines:
            self._same.update(hit.literals)
        elif len(self._lines) < _MOST:
            self._lines.add(form)

    def tired(self) -> set[bytes]:
        """Those that were found often enough since this was asked last."""
        tired = {one for one, count in self._same.items() if count > _ENOUGH}
        tired |= {one for one, count in self._all.items() if count > _MOST}
        for one in tired:
            del self._same[one], self._all[one]
        return tired


def _cut(block: bytes) -> int:
    """Up to where a block can be looked at before the next one is there: the end of its last line that is whole."""
    end = block.rfind(b"\n") + 1
    return end if len(block) - end <= _BLOCK else len(block) - _OVERLAP


def _in_block(block: bytes, cut: int, searched: Literals, before: int) -> Iterator[Hit]:
    at = counted = 0
    number = before + 1
    while found := searched.find(block, at, len(block)):
        start, end = found
        if start >= cut:
            return
        number += block.count(b"\n", counted, start)
        counted = start
        first = block.rfind(b"\n", max(0, start - _LINE), start) + 1 or max(0, start - _LINE)
        last = block.find(b"\n", end, end + _LINE)
        at = last if last >= 0 else min(end + _LINE, len(block))
        line = block[first:at].rstrip(b"\r")
        yield Hit(number, line, searched.among(line))
