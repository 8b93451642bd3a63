"""Fields of a configuration that a stranger wrote: taken where they make sense, else named with the reason."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

_LONGEST = 200
MOST = 1 << 40


class Fields:
    """A JSON object, read field by field. Several names: the first that is there counts, as loaders of models have it.

    unread: "text_config.num_attention_heads" -> why it was not taken.
    """

    def __init__(self, table: Mapping[str, Any], place: str = "", unread: dict[str, str] | None = None) -> None:
        self._table, self._place = table, place
        self.unread: dict[str, str] = {} if unread is None else unread

    def __contains__(self, name: object) -> bool:
        return self._table.get(name) is not None if isinstance(name, str) else False

    def number(self, *names: str, least: int = 1, most: int = MOST) -> int | None:
        """A whole number within bounds; None where there is none."""
        name, value = self._first(names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse(name, value, "a whole number")
            return None
        if least <= value <= most:
            return value
        self._refuse(name, value, f"a number from {least} to {most}")
        return None

    def real(self, *names: str) -> float | None:
        """A positive number; None where there is none."""
        name, value = self._first(names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MOST:
            self._refuse(name, value, "a positive number")
            return None
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """A truth value."""
        name, value = self._first(names)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self._refuse(name, value, "true or false")
        return default

    def word(self, *names: str) -> str:
        """A short text on one line; "" where there is none."""
        name, value = self._first(names)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
            self._refuse(name, value, "a short text")
            return ""
        return value

    def words(self, *names: str) -> tuple[str, ...]:
        """The texts of a list; nothing where one of them is none."""
        name, value = self._first(names)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) and one.isprintable() for one in value):
            self._refuse(name, value, "a list of texts")
            return ()
        return tuple(value)

    def numbers(self, *names: str) -> tuple[int, ...]:
        """The whole numbers of a list; nothing where one of them is none."""
        name, value = self._first(names)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            self._refuse(name, value, "a list of whole numbers")
            return ()
        return tuple(value)

    def below(self, *names: str) -> Fields | None:
        """An object within; None where there is none."""
        name, value = self._first(names)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._refuse(name, value, "an object")
            return None
        return Fields(value, f"{self._place}{name}.", self.unread)

    def names(self) -> tuple[str, ...]:
        """Of all fields that have a value."""
        return tuple(name for name, value in self._table.items() if value is not None)

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        return next(((name, self._table[name]) for name in names if self._table.get(name) is not None), ("", None))

    def _refuse(self, name: str, value: object, wanted: str) -> None:
        self.unread[f"{self._place}{name}"] = f"{reprlib.repr(value)} is not {wanted}"
