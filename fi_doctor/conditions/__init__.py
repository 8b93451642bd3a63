"""The closed language of conditions: {"all": [...]}, {"any": [...]}, {"not": ...} or {subject: test}.

A condition holds, does not hold, or cannot be told: a fact that is Missing makes its leaf unknown, and
unknown spreads as in Kleene's logic (no matter what it is, `any` with one yes is yes). Nothing in it is executed.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Iterator
from typing import Any

from fi_doctor.conditions import leaves
from fi_doctor.conditions.leaves import Truth
from fi_doctor.conditions.subjects import KEYED, SUBJECTS, Reading, View, nearest
from fi_doctor.model import Missing

__all__ = ["Truth", "View", "check", "check_text", "fill", "holds", "parts", "unknowns"]

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(?P<name>[a-z_0-9]+)(?::(?P<key>[\w.-]+))?\}|[{}]")


class _Word(str, enum.Enum):
    ALL = "all"
    ANY = "any"
    NOT = "not"
    MISSING = "missing"
    OUTCOME = "outcome"


def check(condition: object, path: str) -> list[str]:
    """What is wrong with a condition, each error with its place in the data; empty when nothing is."""
    if not isinstance(condition, dict) or len(condition) != 1:
        return [f'{path}: expected one key, "all", "any", "not" or a subject, got {_show(condition)}']
    [(word, rest)] = condition.items()
    here = f"{path}.{word}"
    if word in (_Word.ALL, _Word.ANY):
        if not isinstance(rest, list) or not rest:
            return [f"{here}: expected a list of conditions, got {_show(rest)}"]
        return [error for place, part in enumerate(rest) for error in check(part, f"{here}[{place}]")]
    if word == _Word.NOT:
        return check(rest, here)
    if word == _Word.MISSING:
        return _check_missing(rest, here)
    if word == _Word.OUTCOME:
        return leaves.check_outcome(rest, here)
    if word in KEYED:
        return _check_keyed(str(word), rest, here)
    if word in SUBJECTS:
        return leaves.check_test(SUBJECTS[word].kind, rest, here)
    return [f"{here}: no such subject; the nearest is {nearest(str(word))!r}"]


def holds(condition: dict[str, Any], view: View) -> Truth:
    """Whether a checked condition holds in what is known."""
    [(word, rest)] = condition.items()
    if word == _Word.ALL:
        return min((holds(part, view) for part in rest), key=_ORDER.index)
    if word == _Word.ANY:
        return max((holds(part, view) for part in rest), key=_ORDER.index)
    if word == _Word.NOT:
        return _ORDER[2 - _ORDER.index(holds(rest, view))]
    if word == _Word.MISSING:
        return _is_missing(rest, view)
    if word == _Word.OUTCOME:
        return leaves.outcomes_pass(rest, view.outcomes)
    if word in KEYED:
        subject = KEYED[word]
        parts = (leaves.reading_passes(subject.kind, test, subject.read(view, key)) for key, test in rest.items())
        return min(parts, key=_ORDER.index)
    return leaves.reading_passes(SUBJECTS[word].kind, rest, SUBJECTS[word].read(view))


def parts(condition: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The leaves of a checked condition, each a condition by itself; of a family of subjects one for each key."""
    [(word, rest)] = condition.items()
    if word in (_Word.ALL, _Word.ANY):
        for part in rest:
            yield from parts(part)
    elif word == _Word.NOT:
        yield from parts(rest)
    elif word in KEYED:
        yield from ({word: {key: test}} for key, test in rest.items())
    else:
        yield condition


def fill(text: str, view: View, *, quote: bool = False) -> str:
    """`text` with its {subject} and {subject:key} placeholders filled; {{ and }} stand for braces.

    quote: the text is a shell line, so that each value that is filled in must be one word of it.
    """

    def one(found: re.Match[str]) -> str:
        if not found["name"]:
            return found[0][0]
        reading = _reading(found["name"], found["key"], view)
        return _shell_words(reading) if quote else _words(reading)

    return _PLACEHOLDER.sub(one, text)


def unknowns(text: str, view: View) -> tuple[str, ...]:
    """The placeholders of `text` that nothing is known of, as written: such a line is not ready to paste."""
    return tuple(
        found[0]
        for found in _PLACEHOLDER.finditer(text)
        if found["name"] and not _is_known(_reading(found["name"], found["key"], view))
    )


def check_text(text: str, path: str) -> list[str]:
    """What is wrong with the placeholders of a text, each error with its place in the data."""
    errors = []
    for found in _PLACEHOLDER.finditer(text):
        name, key = found["name"], found["key"]
        if found[0] in "{}":
            errors.append(f"{path}: a lone {found[0]!r}; write it twice to mean a brace")
        elif name and name not in SUBJECTS and name not in KEYED:
            errors.append(f"{path}: {found[0]} names no subject; the nearest is {nearest(name)!r}")
        elif name and (name in KEYED) != bool(key):
            errors.append(f"{path}: {found[0]} " + ("takes no key" if key else f"needs a key, {{{name}:KEY}}"))
        elif name == "reason" and key not in SUBJECTS:
            errors.append(f"{path}: {found[0]} names no subject; the nearest is {nearest(key)!r}")
    return errors


_ORDER = (Truth.NO, Truth.UNKNOWN, Truth.YES)


def _check_missing(rest: object, path: str) -> list[str]:
    name, test = next(iter(rest.items())) if isinstance(rest, dict) and len(rest) == 1 else (rest, None)
    if not isinstance(name, str) or name not in SUBJECTS:
        return [f"{path}: expected a subject or {{subject: test of the reason}}, got {_show(rest)}"]
    return [] if test is None else leaves.check_test(leaves.Kind.TEXT, test, f"{path}.{name}")


def _is_missing(rest: str | dict[str, Any], view: View) -> Truth:
    [(name, test)] = rest.items() if isinstance(rest, dict) else ((rest, None),)
    reading = SUBJECTS[name].read(view)
    if not isinstance(reading, Missing):
        return Truth.NO
    return Truth.YES if test is None else leaves.reading_passes(leaves.Kind.TEXT, test, (reading.reason,))


def _check_keyed(word: str, rest: object, path: str) -> list[str]:
    if not isinstance(rest, dict) or not rest:
        return [f"{path}: expected a mapping of {KEYED[word].key} to a test, got {_show(rest)}"]
    kind = KEYED[word].kind
    errors = [error for key, test in rest.items() for error in leaves.check_test(kind, test, f"{path}.{key}")]
    if word == "reason":
        errors += [
            f"{path}.{key}: no such subject; the nearest is {nearest(key)!r}" for key in rest if key not in SUBJECTS
        ]
    return errors


def _reading(name: str, key: str | None, view: View) -> Reading:
    return KEYED[name].read(view, key) if key else SUBJECTS[name].read(view)


def _is_known(reading: Reading) -> bool:
    return not isinstance(reading, Missing) and any(not isinstance(value, Missing) for value in reading)


def _words(reading: Reading) -> str:
    if isinstance(reading, Missing):
        return f"(not known: {reading.reason})"
    said = dict.fromkeys(_word(value) for value in reading)
    return ", ".join(said) or "none"


def _shell_words(reading: Reading) -> str:
    """Each value as one word; what is not known, or nothing, as one word too."""
    if isinstance(reading, Missing) or not reading:
        return shlex.quote(_words(reading))
    return " ".join(dict.fromkeys(shlex.quote(_word(value)) for value in reading))


def _word(value: object) -> str:
    if isinstance(value, Missing):
        return f"(not known: {value.reason})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or '""'


def _show(value: object) -> str:
    text = f"{value!r}"
    return text if len(text) <= 60 else text[:57] + "..."
