"""Regular expressions of RE2: the time is linear in the text, whatever the pattern and the line."""

from __future__ import annotations

import functools

import re2


def search(pattern: str, text: str) -> dict[str, str] | None:
    """The named groups that matched, where `pattern` is found in `text`; None where it is not."""
    expression, groups = _named(pattern)
    found = expression.search(text)
    return None if found is None else {name: value for name, at in groups if (value := found[at]) is not None}


def wrong(pattern: str) -> str:
    """Why RE2 does not take it, or ""."""
    try:
        compiled(pattern)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        return f"{pattern!r} is no regular expression of RE2: {said.decode() if isinstance(said, bytes) else said}"
    return ""


@functools.lru_cache(maxsize=4096)
def _named(pattern: str) -> tuple[re2._Regexp[str], tuple[tuple[str, int], ...]]:
    """The pattern, ready, and its groups' names and numbers, which RE2 would collect anew for each group."""
    expression = compiled(pattern)
    return expression, tuple(expression.groupindex.items())


@functools.lru_cache(maxsize=4096)
def compiled(pattern: str) -> re2._Regexp[str]:
    """The pattern, ready. Errors: re2.error."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)
