"""The files that the objects of a JIT module were compiled from, by the log that ninja keeps of dependencies."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from fi_doctor.facts.files import read_whole

NAME = ".ninja_deps"

_SIGNATURE = b"# ninjadeps\n"
_MOST_BYTES = 64 << 20
_DEPS = 0x80000000  # the bit that tells a record of dependencies from one of a path


def sources(ops: Path, module: str) -> tuple[str, ...]:
    """Absolute paths of what a module below `ops` (cached_ops) was compiled from, sorted; empty where nothing tells.

    The log lies in the module's folder, or up to FlashInfer 0.5 in the one above, for all modules.
    """
    for folder in (ops / module, ops):
        found = {
            os.path.normpath(folder / path)
            for output, paths in read(folder / NAME).items()
            if _is_of(output, module, own=folder.name == module)
            for path in paths
        }
        if found:
            return tuple(sorted(found))
    return ()


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
