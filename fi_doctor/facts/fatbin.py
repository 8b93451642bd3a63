"""The GPU code inside a shared object: what nvcc has put into its section .nv_fatbin, without the code itself.

The section is a row of containers, each a row of entries, and every entry says for which architecture it is. Little
endian, in bytes:

    container  magic u32 = 0xBA55ED50, version u16, header size u16, size of what follows u64
    entry      kind u16 (1 PTX, 2 cubin), version u16, header size u32, size of what follows u64,
               at 24 version of the language u16 minor, u16 major, at 28 architecture u32 (90, 100, 120),
               at 40 flags u64

Compared with what cuobjdump 13.5 lists of binaries built by CUDA 12.8 to 13.0; of the suffix f it lists less.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import NamedTuple

from fi_doctor.facts.elf import ElfFile, NotReadableError

SECTIONS = (".nv_fatbin", "__nv_relfatbin")  # the second where device code is linked separately

_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ8xHHI8xQ")
_PTX = 1
_KINDS = {_PTX: "compute_", 2: "sm_"}  # others hold no code for a GPU by themselves
_SPECIFIC, _FAMILY = 0x100000, 0x200000  # flags: the suffixes a and f
_ALIGNED = 8  # bytes between containers are zero
_MOST_ENTRIES = 200_000  # libtorch_cuda has some ten thousand


class Code(NamedTuple):
    """What a shared object holds."""

    entries: dict[str, int]  # how many for each architecture, {"sm_90a": 27, "compute_80": 19}; empty without GPU code
    ptx: str  # the newest version of the PTX language, "9.0"; "" without PTX


class _Found:
    """What was counted so far."""

    def __init__(self) -> None:
        self.entries: Counter[str] = Counter()
        self.ptx = (0, 0)


def gpu_code(elf: ElfFile) -> Code:
    """The GPU code of an open file. Raises NotReadableError where sizes contradict each other."""
    found = _Found()
    sections = elf.sections()
    for name in SECTIONS:
        if name in sections:
            offset, size = sections[name]
            _containers(elf, offset, offset + size, found)
    return Code(dict(sorted(found.entries.items())), "{}.{}".format(*found.ptx) if any(found.ptx) else "")


def _containers(elf: ElfFile, at: int, end: int, found: _Found) -> None:
    while at + _CONTAINER.size <= end:
        magic, _, header, size = _CONTAINER.unpack(elf.read(at, _CONTAINER.size))
        if magic == 0:
            at += _ALIGNED
        elif magic != _MAGIC or header < _CONTAINER.size or at + header + size > end:
            raise NotReadableError(f"has GPU code that cannot be read: no whole container at {at}")
        else:
            _entries(elf, at + header, at + header + size, found)
            at += header + size


def _entries(elf: ElfFile, at: int, end: int, found: _Found) -> None:
    while at + _ENTRY.size <= end:
        kind, _, header, size, minor, major, architecture, flags = _ENTRY.unpack(elf.read(at, _ENTRY.size))
        if header < _ENTRY.size or at + header + size > end:
            raise NotReadableError(f"has GPU code that cannot be read: no whole entry at {at}")
        if kind in _KINDS:
            suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
            found.entries[f"{_KINDS[kind]}{architecture}{suffix}"] += 1
        if kind == _PTX:
            found.ptx = max(found.ptx, (major, minor))
        if found.entries.total() > _MOST_ENTRIES:
            raise NotReadableError(f"has more than {_MOST_ENTRIES} entries of GPU code")
        at += header + size
