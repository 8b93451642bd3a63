"""What the keys of a policy are made of: words, tables and their values, each with the error that it may be."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from fi_doctor.model import AllowTable, RequireTable


def plain(kind: Any) -> Callable[[Any, str, list[str]], Any]:
    """What reads a value of this type; None where it is none, which is then an error."""

    def read(value: Any, place: str, errors: list[str]) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            errors.append(_told(place, error))
            return None

    return read


def words(value: Any, place: str, errors: list[str]) -> tuple[str, ...]:
    """One word, or a list of them."""
    found: tuple[str, ...] | None = plain(tuple[str, ...])([value] if isinstance(value, str) else value, place, errors)
    return found or ()


def record(kind: type[AllowTable | RequireTable], value: Any, place: str, errors: list[str]) -> dict[str, Any] | None:
    """The keys of a table that could be read, each decoded by itself; None where it is no table."""
    if not isinstance(value, dict):
        errors.append(f"{place}: expected a table, got {type(value).__name__}")
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    errors += [f"{place}.{quoted(key)}: no such key{nearest(key, fields)}" for key in value if key not in fields]
    errors += [f"{place}.{name}: missing" for name, field in fields.items() if field.required and name not in value]
    found: dict[str, Any] = {}
    for key in (key for key in value if key in fields):
        read = words if fields[key].type == tuple[str, ...] else plain(fields[key].type)
        before = len(errors)
        one = read(value[key], f"{place}.{key}", errors)
        if len(errors) == before:
            found[key] = one
    return found


def items(value: Any, place: str, errors: list[str]) -> Iterator[tuple[str, Any]]:
    """The keys and values of a table."""
    if isinstance(value, dict):
        return iter(value.items())
    errors.append(f"{place}: expected a table, got {type(value).__name__}")
    return iter(())


def quoted(key: str) -> str:
    """A key as TOML writes it in a path."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'


def not_one(word: str, of: Iterable[str]) -> str:
    """That a word is none of those that there are."""
    return f"{word!r} is not one of {', '.join(of)}{nearest(word, of)}"


def nearest(word: str, of: Iterable[str]) -> str:
    """The end of a message that names the word which is meant, "" where none is near."""
    near = difflib.get_close_matches(word, list(of), n=1, cutoff=0.5)
    return f"; the nearest is {near[0]}" if near else ""


def _told(place: str, error: msgspec.ValidationError) -> str:
    """`Expected `str`, got `int` - at `$[0]`` as `format[0]: expected str, got int`."""
    what, _, where = str(error).replace("`", "").replace(" | null", "").partition(" - at $")
    return f"{place}{where}: {what[0].lower()}{what[1:]}"
