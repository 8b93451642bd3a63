"""What lines of logs are searched with: patterns of RE2, whose time is linear, and many literals at once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import re2

from fi_doctor.conditions.patterns import compiled, search, wrong

__all__ = ["Literals", "every", "same", "search", "wrong"]

_MEMORY = 64 << 20  # bytes that the automaton of all literals may take; a thousand of them take 5 MiB


def every(pattern: str, text: str) -> Iterator[dict[str, str]]:
    """The named groups of each place where it is found."""
    for found in compiled(pattern).finditer(text):
        yield {name: value for name, value in found.groupdict().items() if value is not None}


def same(text: str) -> str:
    """The text without what differs from rank to rank and from run to run: numbers and addresses."""
    return str(compiled(r"0x[0-9a-fA-F]+|[0-9]+").sub("#", text))


class Literals:
    """Many literals that are looked for at once."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        self._literals = tuple(sorted(set(literals)))
        self._left = frozenset(self._literals)
        self._is_whole = True

    def find(self, block: bytes, start: int, end: int) -> tuple[int, int] | None:
        """Where the next one stands in a block."""
        found = self._any.search(block, start, end)
        return None if found is None else found.span()

    def among(self, line: bytes) -> tuple[bytes, ...]:
        """Those that stand in a line, if one of them is still looked for."""
        found = [self._literals[at] for at in self._every.Match(line) or ()]
        return tuple(found) if self._is_whole or not self._left.isdisjoint(found) else ()

    # Looked up once each: to look them up takes as long as to hash all literals, and a line asks for it.

    @functools.cached_property
    def _any(self) -> re2._Regexp[bytes]:
        return _one_of(tuple(sorted(self._left)))

    @functools.cached_property
    def _every(self) -> re2.Set:
        return _every_of(self._literals)

    def leave_out(self, literals: Iterable[bytes]) -> None:
        """Look no longer for these."""
        left = self._left.difference(literals)
        if left != self._left:
            self._left, self._is_whole = left, False
            self.__dict__.pop("_any", None)


@functools.lru_cache(maxsize=4)
def _every_of(literals: tuple[bytes, ...]) -> re2.Set:
    """Which of them stand in a text: of a line it is told faster than where one is, of a long text much slower."""
    every = re2.Set.SearchSet(_options())
    for literal in literals:
        every.Add(re2.escape(literal))
    every.Compile()
    return every


@functools.lru_cache(maxsize=4)
def _one_of(literals: tuple[bytes, ...]) -> re2._Regexp[bytes]:
    # No literal at all is looked for as what stands nowhere: an empty alternative would stand everywhere.
    quoted = [re2.escape(literal) for literal in literals]
    return re2.compile(b"|".join(quoted) or rb"[^\x00-\xff]", _options())


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes as they are, whatever they mean
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MEMORY
    return options
