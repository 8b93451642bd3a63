"""YAML files into records: duplicate keys, aliases and unknown keys are errors, and all errors are told at once."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fi_doctor.model import Closed, Strict

if TYPE_CHECKING:
    import re

    import yaml

_LARGEST_BYTES = 1 << 20
_DEEPEST = 50  # lists and mappings in one another
_Record = TypeVar("_Record", bound=Strict)


def read_yaml(
    path: Path, root: Path, errors: list[str], *, without: re.Pattern[bytes] | None = None, is_checked: bool = False
) -> object:
    """What a YAML file holds, as plain values; None with a line in `errors` when it cannot be read.

    without: what of the text is passed over, as if it were not there. is_checked: tests have looked for keys that are
    given twice, aliases and what is nested too deeply.
    """
    import yaml  # noqa: PLC0415 - not paid for by commands that need no knowledge

    name = path.relative_to(root).as_posix()
    try:
        text = path.read_bytes()
    except OSError as error:
        errors.append(f"{name}: cannot be read: {error.strerror}")
        return None
    if len(text) > _LARGEST_BYTES:
        errors.append(f"{name}: {len(text)} bytes; {_LARGEST_BYTES} are allowed")
        return None
    try:
        text = text if without is None else without.sub(b"", text)
        return _construct(text, name, errors, is_checked=is_checked)
    except yaml.YAMLError as error:
        errors.append(f"{name}: {_where(error)}")
    except (ValueError, TypeError, RecursionError) as error:  # a date that is none, a list as a key, too many lists
        errors.append(f"{name}: cannot be read: {error}")
    return None


def decode_record(kind: type[_Record], data: object, place: str, errors: list[str]) -> _Record | None:
    """A record of `kind`, each of its fields decoded by itself so that all their errors are told."""
    if data is None:
        return None
    if not isinstance(data, dict):
        errors.append(f"{place}: expected a mapping, got {type(data).__name__}")
        return None
    fields = _fields(kind)
    wrong = [f"{place}: {key}: no such key; they are {', '.join(fields)}" for key in data if key not in fields]
    wrong += [f"{place}: {name}: missing" for name, field in fields.items() if field.required and name not in data]
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name in fields:
            try:
                values[name] = msgspec.convert(value, fields[name].type)
                wrong += [f"{place}: {line}" for line in _unknown_words(value, values[name], name)]
            except msgspec.ValidationError as error:
                wrong.append(_told(place, name, error))
    errors += wrong
    return None if wrong else kind(**values)


def decode_list(kind: type[_Record], data: object, place: str, errors: list[str]) -> list[_Record]:
    """The records of a file that holds a list of them."""
    if data is None:
        return []
    if not isinstance(data, list):
        errors.append(f"{place}: expected a list, got {type(data).__name__}")
        return []
    found = (decode_record(kind, item, f"{place}: [{number}]", errors) for number, item in enumerate(data))
    return [record for record in found if record is not None]


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a type by name; asking msgspec anew for each record would double the time of loading."""
    return {field.name: field for field in msgspec.structs.fields(kind)}


def _construct(text: bytes, name: str, errors: list[str], *, is_checked: bool) -> object:
    import yaml  # noqa: PLC0415

    # The C loader is ten times as fast and not in every build of PyYAML.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            errors.append(f"{name}: empty")
            return None
        wrong = [] if is_checked else _wrong_nodes(node, set())
        errors += [f"{name}: {line}" for line in wrong]
        return None if wrong else _value(node, loader)
    finally:
        loader.dispose()


def _value(node: yaml.Node, loader: yaml.SafeLoader) -> object:
    """What stands there; PyYAML's own walk takes as long as all else that is read of a file."""
    match node.tag.removeprefix("tag:yaml.org,2002:"):
        case "map":
            return {_value(key, loader): _value(value, loader) for key, value in node.value}
        case "seq":
            return [_value(item, loader) for item in node.value]
        case "str":
            return node.value
    return loader.construct_document(node)


def _wrong_nodes(node: yaml.Node, seen: set[int], depth: int = 0) -> list[str]:
    """Keys given twice, aliases, of which a few can stand for gigabytes, and what is nested too deeply to be walked."""
    import yaml  # noqa: PLC0415

    if isinstance(node, yaml.ScalarNode):
        return []
    if id(node) in seen:
        return [f"line {node.start_mark.line + 1}: aliases are not allowed"]
    if depth > _DEEPEST:
        return [f"line {node.start_mark.line + 1}: nested more than {_DEEPEST} deep"]
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        return [line for item in node.value for line in _wrong_nodes(item, seen, depth + 1)]
    wrong: list[str] = []
    keys: set[str] = set()
    for key, value in node.value:
        if str(key.value) in keys:
            wrong.append(f"line {key.start_mark.line + 1}: key {key.value!r} is given twice")
        keys.add(str(key.value))
        wrong += _wrong_nodes(value, seen, depth + 1)
    return wrong


def _unknown_words(written: object, read: object, path: str) -> list[str]:
    """Words that a closed set does not have: reports of newer versions may hold such, what people write may not."""
    if isinstance(read, Closed):
        known = ", ".join(word.value for word in type(read))
        return [] if written == read.value else [f"{path}: expected one of {known}, got {written!r}"]
    if isinstance(read, tuple) and isinstance(written, list):
        pairs = enumerate(zip(written, read, strict=True))
        return [line for at, (old, new) in pairs for line in _unknown_words(old, new, f"{path}[{at}]")]
    if isinstance(read, msgspec.Struct) and isinstance(written, dict):
        parts = ((old, getattr(read, key), f"{path}.{key}") for key, old in written.items())
        return [line for part in parts for line in _unknown_words(*part)]
    return []


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not YAML"
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)


def _told(place: str, name: str, error: msgspec.ValidationError) -> str:
    """`Expected `str`, got `int` - at `$[0].line`` as `fix[0].line: expected str, got int`."""
    what, _, where = str(error).replace("`", "").partition(" - at $")
    return f"{place}: {name}{where}: {what[0].lower()}{what[1:]}"
