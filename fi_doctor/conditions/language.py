"""The closed language of conditions: {"all": [...]}, {"any": [...]}, {"not": ...} or {subject: test}.

A condition holds, does not hold, or cannot be told: a fact that is Missing makes its leaf unknown, and
unknown spreads as in Kleene's logic (no matter what it is, `any` with one yes is yes). Nothing in it is executed.
"""

from __future__ import annotations

import difflib
import enum
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fi_doctor.conditions import leaves
from fi_doctor.conditions.leaves import Kind, Truth
from fi_doctor.model import Missing

# The values of a subject: a test passes when any of them does. Missing as a whole: nothing is known of it.
Reading = tuple[object, ...] | Missing
_View = TypeVar("_View")

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(?P<name>[a-z_0-9]+)(?::(?P<key>[\w.-]+))?\}|[{}]")
_ORDER = (Truth.NO, Truth.UNKNOWN, Truth.YES)


class _Word(str, enum.Enum):
    ALL = "all"
    ANY = "any"
    NOT = "not"
    MISSING = "missing"


@dataclass(frozen=True)
class Subject(Generic[_View]):
    """One thing to ask about."""

    kind: Kind
    read: Callable[[_View], Reading]


@dataclass(frozen=True)
class Keyed(Generic[_View]):
    """A family of things to ask about, each under its own key: {package: {torch: ">=2.9"}}."""

    kind: Kind
    key: str  # what the key is
    read: Callable[[_View, str], Reading]


@dataclass(frozen=True)
class Special(Generic[_View]):
    """A word whose test has a grammar of its own."""

    check: Callable[[object, str], list[str]]  # what is wrong with a test at a place
    holds: Callable[[Any, _View], Truth]


@dataclass(frozen=True)
class Language(Generic[_View]):
    """What conditions can say of one kind of view."""

    subjects: Mapping[str, Subject[_View]]
    keyed: Mapping[str, Keyed[_View]]
    special: Mapping[str, Special[_View]] = field(default_factory=dict)

    def check(self, condition: object, path: str) -> list[str]:
        """What is wrong with a condition, each error with its place in the data; empty when nothing is."""
        if not isinstance(condition, dict) or len(condition) != 1:
            return [f'{path}: expected one key, "all", "any", "not" or a subject, got {_show(condition)}']
        [(word, rest)] = condition.items()
        here = f"{path}.{word}"
        if word in (_Word.ALL, _Word.ANY):
            if not isinstance(rest, list) or not rest:
                return [f"{here}: expected a list of conditions, got {_show(rest)}"]
            return [error for place, part in enumerate(rest) for error in self.check(part, f"{here}[{place}]")]
        if word == _Word.NOT:
            return self.check(rest, here)
        if word == _Word.MISSING:
            return self._check_missing(rest, here)
        if word in self.special:
            return self.special[word].check(rest, here)
        if word in self.keyed:
            return self._check_keyed(str(word), rest, here)
        if word in self.subjects:
            return leaves.check_test(self.subjects[word].kind, rest, here)
        return [f"{here}: no such subject; the nearest is {self.nearest(str(word))!r}"]

    def holds(self, condition: dict[str, Any], view: _View) -> Truth:
        """Whether a checked condition holds in what is known."""
        [(word, rest)] = condition.items()
        if word == _Word.ALL:
            return min((self.holds(part, view) for part in rest), key=_ORDER.index)
        if word == _Word.ANY:
            return max((self.holds(part, view) for part in rest), key=_ORDER.index)
        if word == _Word.NOT:
            return _ORDER[2 - _ORDER.index(self.holds(rest, view))]
        if word == _Word.MISSING:
            return self._is_missing(rest, view)
        if word in self.special:
            return self.special[word].holds(rest, view)
        if word in self.keyed:
            subject = self.keyed[word]
            parts = (leaves.reading_passes(subject.kind, test, subject.read(view, key)) for key, test in rest.items())
            return min(parts, key=_ORDER.index)
        return leaves.reading_passes(self.subjects[word].kind, rest, self.subjects[word].read(view))

    def parts(self, condition: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The leaves of a checked condition, each a condition by itself; of a family of subjects one for each key."""
        [(word, rest)] = condition.items()
        if word in (_Word.ALL, _Word.ANY):
            for part in rest:
                yield from self.parts(part)
        elif word == _Word.NOT:
            yield from self.parts(rest)
        elif word in self.keyed:
            yield from ({word: {key: test}} for key, test in rest.items())
        else:
            yield condition

    def fill(self, text: str, view: _View, *, quote: bool = False) -> str:
        """`text` with its {subject} and {subject:key} placeholders filled; {{ and }} stand for braces.

        quote: the text is a shell line, so that each value that is filled in must be one word of it.
        """

        def one(found: re.Match[str]) -> str:
            if not found["name"]:
                return found[0][0]
            reading = self._reading(found["name"], found["key"], view)
            return _shell_words(reading) if quote else _words(reading)

        return _PLACEHOLDER.sub(one, text)

    def unknowns(self, text: str, view: _View) -> tuple[str, ...]:
        """The placeholders of `text` that nothing is known of, as written: such a line is not ready to paste."""
        return tuple(
            found[0]
            for found in _PLACEHOLDER.finditer(text)
            if found["name"] and not _is_known(self._reading(found["name"], found["key"], view))
        )

    def check_text(self, text: str, path: str) -> list[str]:
        """What is wrong with the placeholders of a text, each error with its place in the data."""
        errors = []
        for found in _PLACEHOLDER.finditer(text):
            name, key = found["name"], found["key"]
            if found[0] in "{}":
                errors.append(f"{path}: a lone {found[0]!r}; write it twice to mean a brace")
            elif name and name not in self.subjects and name not in self.keyed:
                errors.append(f"{path}: {found[0]} names no subject; the nearest is {self.nearest(name)!r}")
            elif name and (name in self.keyed) != bool(key):
                errors.append(f"{path}: {found[0]} " + ("takes no key" if key else f"needs a key, {{{name}:KEY}}"))
            elif name == "reason" and key not in self.subjects:
                errors.append(f"{path}: {found[0]} names no subject; the nearest is {self.nearest(key)!r}")
        return errors

    def nearest(self, name: str) -> str:
        """The subject whose name is most like `name`."""
        names = [*self.subjects, *self.keyed, *self.special, *(word.value for word in _Word)]
        return difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]

    def _check_missing(self, rest: object, path: str) -> list[str]:
        name, test = next(iter(rest.items())) if isinstance(rest, dict) and len(rest) == 1 else (rest, None)
        if isinstance(name, str) and name in self.keyed and isinstance(test, str) and test:
            return []
        if not isinstance(name, str) or name not in self.subjects:
            forms = "a subject, {subject: test of the reason} or {family of subjects: key}"
            return [f"{path}: expected {forms}, got {_show(rest)}"]
        return [] if test is None else leaves.check_test(Kind.TEXT, test, f"{path}.{name}")

    def _is_missing(self, rest: str | dict[str, Any], view: _View) -> Truth:
        [(name, test)] = rest.items() if isinstance(rest, dict) else ((rest, None),)
        if name in self.keyed:
            return Truth.YES if isinstance(self.keyed[name].read(view, str(test)), Missing) else Truth.NO
        reading = self.subjects[name].read(view)
        if not isinstance(reading, Missing):
            return Truth.NO
        return Truth.YES if test is None else leaves.reading_passes(Kind.TEXT, test, (reading.reason,))

    def _check_keyed(self, word: str, rest: object, path: str) -> list[str]:
        if not isinstance(rest, dict) or not rest:
            return [f"{path}: expected a mapping of {self.keyed[word].key} to a test, got {_show(rest)}"]
        kind = self.keyed[word].kind
        errors = [error for key, test in rest.items() for error in leaves.check_test(kind, test, f"{path}.{key}")]
        if word == "reason":
            errors += [
                f"{path}.{key}: no such subject; the nearest is {self.nearest(key)!r}"
                for key in rest
                if key not in self.subjects
            ]
        return errors

    def _reading(self, name: str, key: str | None, view: _View) -> Reading:
        return self.keyed[name].read(view, key) if key else self.subjects[name].read(view)


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
