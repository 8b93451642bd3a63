"""The files that the objects of a JIT module were compiled from, by the log that ninja keeps of dependencies."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from fi_doctor.facts.files import read_whole

# ruff: noqa: PTH116 - thousands of files

NAME = ".ninja_deps"

_SIGNATURE = b"# ninjadeps\n"
_MOST_BYTES = 64 << 20
_DEPS = 0x80000000  # the bit that tells a record of dependencies from one of a path


class Times:
    """When files were written; modules share thousands of headers, and each is looked at once."""

    def __init__(self) -> None:
        self._known: dict[str, int | None] = {}  # nanoseconds since 1970; None for what is gone

    def outdated(self, module: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What a module's objects were compiled from and is younger than they are, and what is gone.

        ninja compiles such an object anew. Source: ninja, src/graph.cc, RecomputeOutputDirty.
        """
        newer: dict[str, None] = {}
        gone: dict[str, None] = {}
        for output, paths in dependencies(module.parent, module.name).items():
            built = self._at(output)
            if built is None:
                continue
            for path in paths:
                written = self._at(path)
                if written is None:
                    gone[path] = None
                elif written > built:
                    newer[path] = None
        return tuple(newer), tuple(gone)

    def _at(self, path: str) -> int | None:
        if path not in self._known:
            try:
                self._known[path] = os.stat(path).st_mtime_ns
            except FileNotFoundError:
                self._known[path] = None
            except OSError:  # it is there, and may not be looked at
                self._known[path] = 0
        return self._known[path]


def sources(ops: Path, module: str) -> tuple[str, ...]:
    """Absolute paths of what a module below `ops` (cached_ops) was compiled from, sorted; empty where nothing tells."""
    return tuple(sorted({path for paths in dependencies(ops, module).values() for path in paths}))


def dependencies(ops: Path, module: str) -> dict[str, tuple[str, ...]]:
    """Object of a module -> what it was compiled from, as absolute paths.

    The log lies in the module's folder, or up to FlashInfer 0.5 in the one above, for all modules.
    """
    for folder in (ops / module, ops):
        found = {
            os.path.normpath(folder / output): tuple(os.path.normpath(folder / path) for path in paths)
            for output, paths in read(folder / NAME).items()
            if _is_of(output, module, own=folder.name == module)
        }
        if any(found.values()):
            return found
    return {}


def read(path: Path) -> dict[str, tuple[str, ...]]:
    """Output -> what it depends on, the last record of each; empty where there is no such log.

    Source: ninja, src/deps_log.cc, version 3 and 4: records of native 32-bit words, a path or the ids of paths. A
    record that is cut off, as by a kill, ends the log.
    """
    try:
        data = read_whole(path, _MOST_BYTES)
    except OSError:
        return {}
    if not data.startswith(_SIGNATURE) or len(data) < len(_SIGNATURE) + 4:
        return {}
    names: list[str] = []
    found: dict[str, tuple[str, ...]] = {}
    for is_deps, body in _records(data, len(_SIGNATURE) + 4):
        if not is_deps:
            names.append(body[:-4].rstrip(b"\0").decode(errors="surrogateescape"))
            continue
        # The id of the output, its mtime in two words, then the ids of what it depends on.
        ids = struct.unpack(f"={len(body) // 4}I", body)
        if ids and all(number < len(names) for number in (ids[0], *ids[3:])):
            found[names[ids[0]]] = tuple(names[number] for number in ids[3:])
    return found


def _records(data: bytes, at: int) -> Iterator[tuple[bool, bytes]]:
    while at + 4 <= len(data):
        (head,) = struct.unpack_from("=I", data, at)
        size = head & ~_DEPS
        body = data[at + 4 : at + 4 + size]
        if len(body) < size or size % 4 or size < 4:
            return
        yield bool(head & _DEPS), body
        at += 4 + size


def _is_of(output: str, module: str, *, own: bool) -> bool:
    folder = Path(output).parent.name
    return folder == module or (own and not folder)
