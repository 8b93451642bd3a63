"""Which Python files parse as a whole, told without parsing them: those that a Python has compiled as they are."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from fi_doctor.facts.files import read_head, read_whole

_CACHE = "__pycache__"
_HEADER_BYTES = 16  # magic, flags, then the source's time and size, or its hash
_WORD = 1 << 32
_BY_HASH = 1


class Compiled:
    """What lies in the `__pycache__` folders; each is listed once."""

    def __init__(self) -> None:
        self._listed: dict[Path, list[str]] = {}

    def has(self, path: Path) -> bool:
        """Whether some Python wrote bytecode for this very content, by size and time or by hash, as imports ask."""
        return any(_is_of(path, header) for header in self._headers(path))

    def _headers(self, path: Path) -> Iterator[bytes]:
        folder = path.parent / _CACHE
        if folder not in self._listed:
            try:
                self._listed[folder] = [one.name for one in os.scandir(folder)]
            except OSError:
                self._listed[folder] = []
        for name in self._listed[folder]:
            if name.startswith(f"{path.stem}.") and name.endswith(".pyc"):
                try:
                    yield read_head(folder / name, _HEADER_BYTES)
                except OSError:
                    continue


def _is_of(path: Path, header: bytes) -> bool:
    """Source: _validate_timestamp_pyc and _validate_hash_pyc of importlib's _bootstrap_external."""
    flags, time, size = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    try:
        if flags & _BY_HASH:
            return header[8:] == importlib.util.source_hash(read_whole(path))
        state = path.stat()
    except OSError:
        return False
    return len(header) == _HEADER_BYTES and (time, size) == (int(state.st_mtime) % _WORD, state.st_size % _WORD)
