"""Regular expressions of RE2: the time is linear in the text, whatever the pattern and the line."""

from __future__ import annotations

import functools
import re

import re2


def search(pattern: str, text: str) -> dict[str, str] | None:
    """The named groups that matched, where `pattern` is found in `text`; None where it is not."""
    found = compiled(pattern).search(text)
    return None if found is None else {name: value for name, value in found.groupdict().items() if value is not None}


def is_in(pattern: str, text: str) -> bool:
    """Whether `pattern` is found in `text`.

    What RE2 does not take, the look-ahead of a few shipped rules, Python's own engine searches; knowledge from
    elsewhere has no such pattern (fi_doctor.knowledge.bundles).
    """
    return _either(pattern).search(text) is not None


def wrong_anywhere(pattern: str) -> str:
    """Why neither RE2 nor Python takes it, or ""."""
    try:
        _either(pattern)
    except re.error as error:
        return f"{pattern!r} is not a regular expression: {error}"
    return ""


def wrong(pattern: str) -> str:
    """Why RE2 does not take it, or ""."""
    try:
        compiled(pattern)
    except re2.error as error:
        return f"{pattern!r} is no regular expression of RE2: {error}"
    return ""


@functools.lru_cache(maxsize=4096)
def compiled(pattern: str) -> re2._Regexp[str]:
    """The pattern, ready. Errors: re2.error."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


@functools.lru_cache(maxsize=512)
def _either(pattern: str) -> re2._Regexp[str] | re.Pattern[str]:
    return re.compile(pattern) if wrong(pattern) else compiled(pattern)
