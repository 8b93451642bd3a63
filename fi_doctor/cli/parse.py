"""Words of the command line, checked: each error names the nearest word that exists."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.errors import UsageError
from fi_doctor.model.nearness import nearest
from fi_doctor.model.policy import DURATION, MOST_JOBS, SIZE

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
# ASCII: int() and float() take the digits of every script, and a reader of CI's log need not.
_DURATION = re.compile(DURATION, re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([smh]?)", re.ASCII)
_LONGEST_S = 7 * 86400.0
_SIZE = re.compile(SIZE, re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,6}")
_UNITS_MIB = {"m": 1, "g": 1 << 10, "t": 1 << 20}
_KEY = re.compile(r"(?:\S+: )?[a-z][a-z-]*")  # of a policy: budget, fi-doctor.toml: budget
_MOST_MIB = 1 << 30
_RELEASES = {"--flashinfer": "0.7.2.post1", "--sglang": "0.5.18"}  # examples
# How like a word must be to one of a few, and to one of many, of which some are like anything: nope and none.
_NEAR, _NEAR_OF_MANY = 0.5, 0.76


def choice(value: str, allowed: Iterable[str], option: str, *, listed_by: str = "") -> str:
    """`value` if it is one of `allowed`; UsageError with the nearest one otherwise.

    listed_by: the command that lists the choices, where they are many.
    """
    words = tuple(allowed)
    if value in words:
        return value
    raise UsageError(
        f"{option}: there is no {value!r}",
        why=f"`{listed_by}` lists them all" if listed_by else f"the choices are {', '.join(words)}",
        todo=_nearest(value, words, option) or listed_by or written(option, words[0]),
    )


def duration_s(value: str, option: str) -> float:
    """Seconds of "90s", "10m", "1h30m" or "600"; UsageError for anything else, for zero and for over a week."""
    seconds = 0.0
    if _DURATION.fullmatch(value):
        seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(value))
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(
            f"{option}: {value!r} is not a duration",
            why="a number of s, m or h, up to a week",
            todo=written(option, "10m"),
        )
    return seconds


def memory_mib(value: str, option: str) -> int:
    """MiB of "16g", "8192m" or "1.5g", 0 of "auto"; UsageError for anything else, for zero and for over 1 PiB."""
    if value == "auto":
        return 0
    found = _SIZE.fullmatch(value.lower())
    mib = int(float(found[1]) * _UNITS_MIB[found[2]]) if found else 0
    if not 1 <= mib <= _MOST_MIB:
        raise UsageError(f"{option}: {value!r} is not a size", why="a number of m, g or t", todo=written(option, "16g"))
    return mib


def version(value: str, option: str) -> str:
    """A version that can be compared, as it was written; UsageError for anything else."""
    if parse_version(value) is None:
        raise UsageError(
            f"{option}: {value!r} is no version",
            why="a release, as pip names it",
            todo=written(option, _RELEASES.get(option, "0.33.0")),
        )
    return value


def whole(value: str) -> int:
    """The number that its digits say; ValueError for anything else, also for what only Python writes, as 1_0."""
    if not _NUMBER.fullmatch(value):
        raise ValueError(f"is not a whole number up to {MOST_JOBS}")
    return int(value)


def names(patterns: Iterable[str], known: Iterable[str], option: str) -> tuple[str, ...]:
    """The patterns (names or globs, also separated by commas), each of which matches a known name."""
    words, typed = tuple(known), tuple(patterns)
    asked = tuple(part.strip() for pattern in typed for part in pattern.split(",") if part.strip())
    if typed and not asked:
        raise UsageError(f"{option}: no feature is named", why="its value is empty", todo="fi-doctor features")
    for pattern in asked:
        if not fnmatch.filter(words, pattern):
            raise UsageError(
                f"{option}: no feature is called {pattern!r}",
                why="`fi-doctor features` lists them all",
                todo=_nearest(pattern, _families(words) if pattern.endswith(".*") else words, option)
                or "fi-doctor features",
            )
    return asked


def written(option: str, value: str) -> str:
    """An option, a variable or a key of a policy with its value, as it is to be written."""
    if _KEY.fullmatch(option):
        return f'{option.rpartition(": ")[2]} = "{value}"'
    return f"{option}={value}" if option.isupper() else f"{option} {value}"


def together(errors: list[UsageError]) -> None:
    """Raise what is wrong, if anything is: one error as it is, several as one that says them all."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        told = (f"{error.what}{f'; {error.why}' if error.why else ''}; try: {error.todo}" for error in errors)
        raise UsageError(f"{len(errors)} values cannot be used", why="\n".join(told), todo="mend each of them")


def _families(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({f"{word.partition('.')[0]}.*" for word in words}))


def _nearest(value: str, words: tuple[str, ...], option: str) -> str:
    """The option with the word that is meant, or "" where none is near: a slip of the keyboard, or a part of one."""
    parts = (word for word in words if len(value) > 2 and value.lower() in word.lower())
    near = nearest(value, words, _NEAR if len(words) < 10 else _NEAR_OF_MANY) or next(parts, None)
    return written(option, near) if near else ""
