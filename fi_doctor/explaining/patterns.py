"""Regular expressions of RE2: the time is linear in the text, whatever the pattern and the line."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import re2

_MEMORY = 64 << 20  # bytes that the automaton of all literals may take; a thousand of them take 5 MiB


def search(pattern: str, text: str) -> dict[str, str] | None:
    """The named groups that matched, where `pattern` is found in `text`; None where it is not."""
    found = _compiled(pattern).search(text)
    return None if found is None else {name: value for name, value in found.groupdict().items() if value is not None}


def every(pattern: str, text: str) -> Iterator[dict[str, str]]:
    """The named groups of each place where it is found."""
    for found in _compiled(pattern).finditer(text):
        yield {name: value for name, value in found.groupdict().items() if value is not None}


def wrong(pattern: str) -> str:
    """Why RE2 does not take it, or ""."""
    try:
        _compiled(pattern)
    except re2.error as error:
        return f"{pattern!r} is no regular expression of RE2: {error}"
    return ""


def same(text: str) -> str:
    """The text without what differs from rank to rank and from run to run: numbers and addresses."""
    return str(_compiled(r"0x[0-9a-fA-F]+|[0-9]+").sub("#", text))


class Literals:
    """Many literals that are looked for at once."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        self.literals = tuple(sorted(set(literals)))
        quoted = [re2.escape(literal) for literal in self.literals]
        self._any = re2.compile(b"|".join(quoted), _options())
        self._every = re2.Set.SearchSet(_options())
        for one in quoted:
            self._every.Add(one)
        self._every.Compile()

    def find(self, block: bytes, start: int, end: int) -> tuple[int, int] | None:
        """Where the next one stands in a block."""
        found = self._any.search(block, start, end)
        return None if found is None else found.span()

    def among(self, line: bytes) -> tuple[bytes, ...]:
        """Those that stand in a line."""
        return tuple(self.literals[at] for at in self._every.Match(line))


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re2._Regexp[str]:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes as they are, whatever they mean
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MEMORY
    return options
