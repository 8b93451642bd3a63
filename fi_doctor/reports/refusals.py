"""What no report holds, and a reader would take: seen in a document before anything is made of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import yaml

MAX_DEPTH = 64  # a report nests about ten deep
# What YAML takes for a number and is longer than any in a report: there 0xfff... and 59:59:59... have no limit, and the
# latter, to the base 60, takes time with the square of its length.
_LONG_NUMBER = re.compile(r"(?=.{65})[-+]?(?:0x[\da-fA-F_]+|0b[01_]+|[\d_.:]+(?:[eE][-+]?\d+)?)")


class _Row(Protocol):
    @property
    def feature(self) -> str: ...

    @property
    def sm(self) -> object: ...


class _TwiceError(Exception):
    """A key that an object has twice."""


def of_json(data: bytes) -> str:
    """Why JSON that can be read is refused, "" for nothing: of a key that is there twice the last value would count."""
    try:
        json.loads(data, object_pairs_hook=_object, parse_int=str, parse_float=str)
    except _TwiceError as error:
        return f"it has {str(error)!r:.100} twice in one object"
    except ValueError:  # what only one of two readers takes
        return ""
    return ""


def of_rows(rows: Iterable[_Row]) -> str:
    """The same of rows: a feature is judged once for each SM, and of two verdicts nobody knows which counts."""
    counts = Counter((row.feature, row.sm if isinstance(row.sm, int) else None) for row in rows)
    (feature, sm), most = counts.most_common(1)[0] if counts else (("", None), 0)
    return "" if most < 2 else f"it has the row {feature!r:.100}{'' if sm is None else f' on SM{sm}'} twice"


def of_yaml(events: Iterator[yaml.Event]) -> str:
    """The same of YAML, also for what blows up when it is made; RecursionError where it nests deeper than a report."""
    import yaml  # noqa: PLC0415 - only when YAML is read

    nested: list[_Level] = []
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            return f"{_line(event)} has an alias, which reports never have"
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            if event.tag not in (None, "!"):
                return f"{_line(event)} has a tag, which reports never have"
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _LONG_NUMBER.fullmatch(event.value):
                return f"{_line(event)} has a number of {len(event.value)} digits"
            text = event.value if isinstance(event, yaml.ScalarEvent) else None
            if nested and nested[-1].has_already(text):
                return f"{_line(event)} has {text!r:.100} a second time"
        if isinstance(event, yaml.CollectionStartEvent):
            nested.append(_Level(is_mapping=isinstance(event, yaml.MappingStartEvent)))
        elif isinstance(event, yaml.CollectionEndEvent):
            nested.pop()
        if len(nested) > MAX_DEPTH:
            raise RecursionError
    return ""


class _Level:
    """A mapping that is being read, with its keys, or a list."""

    def __init__(self, *, is_mapping: bool) -> None:
        self._keys: set[str] = set()
        self._is_mapping = is_mapping
        self._is_key = is_mapping  # what comes next

    def has_already(self, text: str | None) -> bool:
        """Take what comes next; whether it is a key that is there. text: of a scalar."""
        is_key, self._is_key = self._is_key, self._is_mapping and not self._is_key
        if not is_key or text is None:
            return False
        is_known = text in self._keys
        self._keys.add(text)
        return is_known


def _object(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _TwiceError(key)
        seen.add(key)


def _line(event: yaml.Event) -> str:
    return f"line {event.start_mark.line + 1}" if event.start_mark else "it"
