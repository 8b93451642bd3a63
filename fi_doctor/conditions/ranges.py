"""Ranges of numbers and versions, as conditions and requirements write them: ">=90,<100", ">=0.6,<0.7"."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

_NUMBER = re.compile(r"\s*(==|!=|>=|<=|>|<)\s*(\d+)\s*")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@functools.lru_cache(maxsize=1024)
def number_range(text: str) -> tuple[tuple[str, int], ...]:
    """The bounds that `text` names; all of them must hold.

    Errors: ValueError for anything but comparisons with whole numbers, parted by commas.
    """
    bounds = []
    for part in text.split(","):
        found = _NUMBER.fullmatch(part)
        if found is None:
            raise ValueError(f"{text!r} is not a range of numbers")
        bounds.append((found[1], int(found[2])))
    return tuple(bounds)


def number_in(number: int, text: str) -> bool:
    """Whether `number` is in the range `text`."""
    return all(_COMPARE[sign](number, bound) for sign, bound in number_range(text))


@functools.lru_cache(maxsize=1024)
def version_range(text: str) -> SpecifierSet:
    """The versions that `text` names, pre-releases among them.

    Errors: ValueError when it is empty or not a version specifier.
    """
    if not text.strip():
        raise ValueError("an empty range of versions")
    try:
        found = SpecifierSet(text, prereleases=True)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is not a range of versions") from error
    if not all(one.operator == "===" or parse_version(one.version.removesuffix(".*")) for one in found):
        raise ValueError(f"{text!r} names a version that cannot be compared")
    return found


def version_in(version: str, text: str) -> bool | None:
    """Whether `version` is in the range `text`; None when it is no version that can be compared."""
    parsed = parse_version(version)
    return None if parsed is None else version_range(text).contains(parsed)


@functools.lru_cache(maxsize=1024)
def parse_version(text: str) -> Version | None:
    """`text` as a version that can be compared, or None."""
    try:
        return Version(text)
    except ValueError:  # also by Python, which converts no number of more than 4300 digits
        return None
