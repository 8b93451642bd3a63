"""The lock file: JSON, sorted and indented, so that a difference can be read and committed."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import stat
from pathlib import Path
from typing import Any

import msgspec

from fi_doctor.errors import NEWER, DataError
from fi_doctor.locking import sound
from fi_doctor.locking.model import LOCK_NAME, LOCK_SCHEMA, Lock

MAX_BYTES = 64 << 20

_MOST_FAULTS = 5  # that are told

_SCHEMA = re.compile(r"fi-doctor\.lock/(\d{1,6})\.(\d{1,6})")
_MAJOR = 1
_AGAIN = f"fi-doctor lock -o {LOCK_NAME}"


def to_json(lock: Lock) -> str:
    """The lock as text: keys sorted, rows and outcomes by feature, indented by one, a newline at the end."""
    plain = _finite(msgspec.to_builtins(lock, order="deterministic"))
    return json.dumps(plain, indent=1, sort_keys=True, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema of a lock, generated from the types."""
    return {"$id": LOCK_SCHEMA, "title": LOCK_NAME, **msgspec.json.schema(Lock)}


def read_file(path: Path) -> Lock:
    """The lock in a file; DataError when there is none to be had."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f'cannot read the lock "{path}"', why="it is not a file", todo=_AGAIN)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f'cannot read the lock "{path}"', why=error.strerror or str(error), todo=_AGAIN) from error
    return read(data, str(path), today=dt.datetime.now(dt.timezone.utc).date())


def read(data: bytes, name: str, *, today: dt.date | None = None) -> Lock:
    """The lock that `data` holds; fields of a newer minor version are ignored. DataError says what is wrong.

    today: no row was measured later.
    """
    if len(data) > MAX_BYTES:
        raise _no_lock(name, f"it is over {MAX_BYTES >> 20} MiB")
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "it is empty" if not data.strip() else f"it is damaged or not written to its end: {error}"
        raise _no_lock(name, why) from error
    _check_schema(document.get("schema") if isinstance(document, dict) else None, name)
    try:
        lock = msgspec.convert(document, Lock)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _no_lock(name, str(error)) from error
    if found := sound.faults(lock, today):
        rest = f"; and {len(found) - _MOST_FAULTS} more" if len(found) > _MOST_FAULTS else ""
        raise _no_lock(name, "; ".join(found[:_MOST_FAULTS]) + rest)
    return lock


def _check_schema(found: object, name: str) -> None:
    match = _SCHEMA.fullmatch(found) if isinstance(found, str) else None
    if match is None:
        said = f'its "schema" is {found!r:.100}' if found is not None else 'it has no "schema"'
        raise _no_lock(name, f"{said}; a lock says {LOCK_SCHEMA}")
    if (major := int(match[1])) != _MAJOR:
        age, todo = ("a newer", NEWER) if major > _MAJOR else ("an older", _AGAIN)
        why = f'its schema is "{found}"; this one reads {_MAJOR}.x'
        raise DataError(f'"{name}" was written by {age} fi-doctor', why=why, todo=todo)


def _no_lock(name: str, why: str) -> DataError:
    return DataError(f'"{name}" is not a lock of fi-doctor', why=why, todo=_AGAIN)


def _finite(value: Any) -> Any:
    """The same without numbers that JSON cannot say: measurements may be infinite, or none."""
    match value:
        case dict():
            return {key: _finite(one) for key, one in value.items()}
        case list() | tuple():
            return [_finite(one) for one in value]
        case float() if not math.isfinite(value):
            return str(value)
    return value
