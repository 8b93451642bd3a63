"""The lines of a log in which a literal stands. The log is read in blocks; no more than one is held at a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from fi_doctor.explaining.lines import begins_record, is_alone, is_record, read
from fi_doctor.explaining.patterns import Literals
from fi_doctor.explaining.spoken import begins_answer, begins_turn

_BLOCK = 1 << 20
_LINE = 1 << 12  # bytes of a line on either side of a literal that are looked at
_OVERLAP = 1 << 10  # the longest literal
# Lines with one literal that are the same but for numbers, and lines with it at all: those that come later tell
# nothing new, and are no longer looked for, but for what errors are told with. A log of gigabytes repeats itself.
_ENOUGH, _MOST = 200, 20_000
_MANY = 2_000  # forms of lines: where there are more, those are alike that differ in digits of hexadecimal numbers
_BEGINNING = 64  # bytes of lines that are alike where there are yet more of them
_ALIKE = 100  # lines that are the same but for numbers: as many as there may be ranks
_BACK = 16  # lines with one literal that are looked at in its place where it is passed over: of other containers, too
_HEX = b"0123456789abcdefABCDEF"
# Lines after which it is looked at what is found too often: the first time, and in the end.
_LOOK, _SELDOM = 2_000, 16_000
_DENSE = 4  # where one line of so many has a literal, each line is asked
_RECORD = 500  # lines of one record: text that has more is taken for lines of their own
_ABOVE = 1 << 13  # bytes before a line in which it may be told whose block of text it is
_BLANKS = (b" ", b"\t")
_DIGITS = b"0123456789"
_MARKS = (b'"', b"'''", b'")', b'",')
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
    head: bytes = b""  # the line that the record begins with, where it is another one and this one has no time
    is_closed: bool = False  # whether a line of the record before this one ends in a quotation mark
    is_in_turn: bool = False  # whether somebody began to speak in a line of the record before this one
    is_in_answer: bool = False  # whether the last one who did is a model
    above: bytes = b""  # what stands before a line that is set in
    alike: int = 1  # how many lines were the same but for numbers, this one included; 0 where they are not counted


class _Found(NamedTuple):
    """A line of a block, or of a very long one a part."""

    number: int  # counted from 1 where the search began
    first: int  # where it begins in the block
    line: bytes
    literals: tuple[bytes, ...]


class Reading:
    """What was seen of a log once `hits` is through."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0


class Ways(NamedTuple):
    """What is looked for otherwise than other literals."""

    always: frozenset[bytes] = frozenset()  # however many lines have it: those that differ tell something new
    last: frozenset[bytes] = frozenset()  # where lines with it are passed over, the last ones of them are told


_NO_WAYS = Ways()


def hits(stream: Readable, literals: Iterable[bytes], reading: Reading, ways: Ways = _NO_WAYS) -> Iterator[Hit]:
    """The lines in which a literal stands, each once, in their order; the same line but for numbers 100 times."""
    searched, records = _Searched(literals, ways), _Records()
    rest = b""
    while True:
        chunk = stream.read(_BLOCK)
        reading.bytes += len(chunk)
        block = rest + (_ESCAPE.sub(b"", chunk) if b"\x1b" in chunk else chunk)
        cut = _cut(block) if chunk else len(block)
        before = searched.found
        lines = block.count(b"\n", 0, cut)
        yield from _in_block(block, cut, searched, reading.lines, records)
        yield from _passed(block, searched.at, cut, searched.passed, reading.lines + lines + 1)
        searched.is_dense = _DENSE * (searched.found - before) >= lines
        reading.lines += lines
        rest = block[cut:]
        if not chunk:
            reading.lines += bool(block) and not block.endswith(b"\n")
            return


class _Searched:
    """The literals that are looked for, less those that have been found often enough."""

    def __init__(self, literals: Iterable[bytes], ways: Ways) -> None:
        self.literals = Literals(literals)
        self.passed = frozenset[bytes]()  # those of `ways.last` of which lines are passed over
        self._ways = ways
        self.found = 0  # lines that have one
        self.at = 0  # in the block, behind the last line that was told
        self.is_dense = True  # whether many lines of the last block had one
        self._forms = Counter[int]()
        self._same = Counter[bytes]()
        self._all = Counter[bytes]()
        self._since = 0
        self._look = _LOOK

    def alike(self, line: bytes, literals: tuple[bytes, ...]) -> int:
        """How many lines there were that are the same but for numbers, this one included."""
        form = hash(line.translate(None, _DIGITS))
        if form not in self._forms and len(self._forms) >= _MANY:  # names of requests, which are random
            form = hash(line.translate(None, _HEX))
        if form not in self._forms and len(self._forms) >= _MOST // 2:  # words of users, which are, too
            form = hash(line[:_BEGINNING].translate(None, _HEX))
        is_known = form in self._forms
        self._all.update(literals)
        if is_known:
            self._same.update(literals)
        if is_known or len(self._forms) < _MOST:
            self._forms[form] += 1
        self.found += 1
        self._since += 1
        if self._since >= self._look:
            self._tire()
        if self._forms[form] > _ALIKE:
            self.passed |= self._ways.last.intersection(literals)
        return max(1, self._forms[form])

    def _tire(self) -> None:
        """Take away what was found often enough; to make the search anew costs what some hundred lines do."""
        self._since, self._look = 0, min(2 * self._look, _SELDOM)
        tired = {one for one, count in self._same.items() if count > _ENOUGH}
        tired |= {one for one, count in self._all.items() if count > _MOST}
        tired -= self._ways.always
        if tired:
            self.literals.leave_out(tired)
            self.passed |= tired & self._ways.last
        for one in tired:
            del self._same[one], self._all[one]


def _cut(block: bytes) -> int:
    """Up to where a block can be looked at before the next one is there: the end of its last line that is whole."""
    end = block.rfind(b"\n") + 1
    return end if len(block) - end <= _BLOCK else len(block) - _OVERLAP


def _in_block(block: bytes, cut: int, searched: _Searched, before: int, records: _Records) -> Iterator[Hit]:
    searched.at = 0
    for number, first, line, literals in _lines(block, cut, searched):
        alike = searched.alike(line, literals)
        if alike <= _ALIKE:
            yield from _passed(block, searched.at, first, searched.passed, before + number)
            searched.at = first + len(line)
            above = block[max(0, first - _ABOVE) : first] if line[:1] in _BLANKS else b""
            if begins_record(line):
                yield Hit(before + number, line, literals, above=above, alike=alike)
            else:
                yield Hit(before + number, line, literals, *records.before(block, first), above, alike)
    records.head(block, cut)
    records.seen = 0


def _passed(block: bytes, start: int, end: int, literals: frozenset[bytes], number: int) -> Iterator[Hit]:
    """The last lines between two places that have these literals and were passed over, in their order.

    number: of the line in which the second place is.
    """
    found: dict[int, tuple[bytes, tuple[bytes, ...]]] = {}
    for literal in literals:
        last = end
        for _ in range(_BACK):
            at = block.rfind(literal, start, last)
            if at < 0:
                break
            last = max(start, block.rfind(b"\n", start, at) + 1, at - _LINE)
            close = block.find(b"\n", at, at + _LINE)
            line = block[last : close if close >= 0 else min(len(block), at + _LINE)].rstrip(b"\r")
            found[last] = (line, (*found.get(last, (b"", ()))[1], literal))
            if is_alone(line) or not read("", 0, line).origin:
                break
    for first, (line, among) in sorted(found.items()):
        yield Hit(number - block.count(b"\n", first, end), line, among, alike=0)


def _lines(block: bytes, cut: int, searched: _Searched) -> Iterator[_Found]:
    """The lines of a block that have a literal, in their order.

    Where many have one, each line is asked, which takes less time than to search for the next place again and again.
    """
    literals = searched.literals
    if not searched.is_dense:
        yield from _placed(block, 0, cut, literals)
        return
    at = 0
    for number, line in enumerate(block[:cut].split(b"\n")):
        end = at + len(line)
        if len(line) > _LINE:
            for found in _placed(block, at, end, literals):
                yield found._replace(number=number + found.number)
        elif among := literals.among(line):
            yield _Found(number + 1, at, line.rstrip(b"\r"), among)
        at = end + 1


def _placed(block: bytes, at: int, cut: int, literals: Literals) -> Iterator[_Found]:
    """Those in which a literal begins between two places, of which the second may be within a line."""
    counted, number = at, 1
    while found := literals.find(block, at, len(block)):
        start, end = found
        if start >= cut:
            break
        number += block.count(b"\n", counted, start)
        counted = start
        first = block.rfind(b"\n", max(0, start - _LINE), start) + 1 or max(0, start - _LINE)
        last = block.find(b"\n", end, end + _LINE)
        at = last if last >= 0 else min(end + _LINE, len(block))
        line = _whole_words(block, first, found, at).rstrip(b"\r")
        yield _Found(number, first, line, literals.among(line))


def _whole_words(block: bytes, first: int, found: tuple[int, int], last: int) -> bytes:
    """A line with what was found in it; where it is cut, so at a blank: half of a secret may not look like one."""
    start, end = found
    if first and block[first - 1 : first] != b"\n":
        first = block.find(b" ", first, start) + 1 or first
    if last < len(block) and block[last : last + 1] != b"\n":
        last = blank if (blank := block.rfind(b" ", end, last)) >= 0 else last
    return block[first:last]


class _Records:
    """Which line a record of several lines begins with. Each line is looked at once."""

    def __init__(self) -> None:
        self._last = b""  # the line that the record before `seen` begins with
        self.seen = 0  # up to where in the block that is known
        self.is_closed = False  # whether a line of it, up to there, ends in a quotation mark
        self.is_in_turn = False  # whether somebody began to speak in it
        self.is_in_answer = False  # whether the last one who did is a model

    def before(self, block: bytes, first: int) -> tuple[bytes, bool, bool, bool]:
        """Of a line that is no record of its own: how its record begins, and what was seen of it."""
        head = self.head(block, first)
        return head, self.is_closed, self.is_in_turn, self.is_in_answer

    def head(self, block: bytes, first: int) -> bytes:
        """The line that the record before a place in the block begins with; empty where none is known."""
        end, is_closed, turn = first, False, False
        for _ in range(_RECORD):
            if end <= self.seen:
                break
            begin = block.rfind(b"\n", self.seen, end - 1) + 1 or self.seen
            if is_record(line := block[begin : min(end, begin + _LINE)]):
                self._last, self.is_closed, self.is_in_turn = line, False, False
                self.is_in_answer = turn and self.is_in_answer
                break
            is_closed = is_closed or line.rstrip().endswith(_MARKS)
            if not turn and begins_turn(line):
                turn, self.is_in_answer = True, begins_answer(line)
            end = begin
        else:
            self._last, self.is_closed, self.is_in_turn = b"", False, False
            self.is_in_answer = turn and self.is_in_answer
        self.is_closed, self.is_in_turn = self.is_closed or is_closed, self.is_in_turn or turn
        self.seen = max(first, self.seen)
        return self._last
