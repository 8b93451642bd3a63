"""What an ELF file holds in .nv_fatbin: headers are read, never what they stand before.

Sizes in a file may lie: every step goes forward, stays in the section, and their number has a bound.
Source: the layout was compared with `cuobjdump -lelf -lptx` (13.5) of vLLM's 0.14.1 to 0.33.0 wheels.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fi_doctor.facts.elf import ElfFile, Section, Unreadable
from fi_doctor.model.gpu_code import architectures

SECTION = b".nv_fatbin"

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of what follows
_ENTRY = struct.Struct("<HHIQIIHHIQQ")  # kind, version, header, payload, compressed, -, minor, major, arch, -, flags
_MAGIC = 0xBA55ED50
_PTX, _CUBIN = 1, 2
_SPECIFIC, _FAMILY = 0x100000, 0x200000  # flags: sm_90a, sm_100f
_SMALLEST_ENTRY = 64
_MOST_STEPS = 1 << 17  # containers and entries; libtorch_cuda.so has some ten thousand
_TOO_MANY = "its GPU code has more entries than are read"
_BLOCK = 4096


class Code(NamedTuple):
    """What the fatbin of one file holds; `units` and `ptx` as in model.Binary."""

    units: dict[str, int]
    ptx: dict[str, str]
    problem: str  # why not all of it could be read; "" when all was


def read_code(elf: ElfFile) -> Code:
    """For which GPUs the file has code; nothing in one without .nv_fatbin."""
    section = elf.sections().get(SECTION)
    units: Counter[str] = Counter()
    ptx: dict[str, tuple[int, int]] = {}
    problem = ""
    try:
        for unit in _units(elf, section) if section else ():
            units[" ".join(architectures(name for name, _ in unit))] += 1
            for name, version in unit:
                if name.startswith("compute_"):
                    ptx[name] = min(ptx.get(name, version), version)
    except Unreadable as error:
        problem = str(error)
    versions = {name: f"{major}.{minor}" for name, (major, minor) in sorted(ptx.items())}
    return Code({names: units[names] for names in sorted(units)}, versions, problem)


def architecture(kind: int, number: int, flags: int) -> str:
    """As cuobjdump names it, with the suffix: "sm_100f", "compute_80"."""
    suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
    return f"{'sm' if kind == _CUBIN else 'compute'}_{number}{suffix}"


def _units(elf: ElfFile, section: Section) -> Iterator[set[tuple[str, tuple[int, int]]]]:
    """Of each container its entries, architecture and version; those without GPU code are left out."""
    end = section.offset + section.size
    if end > elf.size:
        raise Unreadable("it is cut off in its GPU code")
    at, steps = section.offset, 0
    while at + _CONTAINER.size <= end:
        head = elf.read(at, _CONTAINER.size)
        if len(head) < _CONTAINER.size:
            raise Unreadable("it is cut off in its GPU code")
        magic, _, size, payload = _CONTAINER.unpack(head)
        if not magic and at % 8:
            at += 8 - at % 8
            continue
        if magic != _MAGIC:
            if end - at <= _BLOCK and not any(elf.read(at, end - at)):
                return  # what the linker left empty at the end
            raise Unreadable(f"byte {at - section.offset} of its GPU code is no fatbin header")
        if size < _CONTAINER.size or payload > end - at - size:
            raise Unreadable("a fatbin in it says that it is longer than its section")
        if steps >= _MOST_STEPS:
            raise Unreadable(_TOO_MANY)
        unit, taken = _entries(elf, at + size, at + size + payload, _MOST_STEPS - steps)
        steps += taken + 1
        if unit:
            yield unit
        at += size + payload


def _entries(elf: ElfFile, at: int, end: int, most: int) -> tuple[set[tuple[str, tuple[int, int]]], int]:
    """The entries of one container and how many there are."""
    found: set[tuple[str, tuple[int, int]]] = set()
    steps = 0
    while at + _SMALLEST_ENTRY <= end:
        steps += 1
        if steps > most:
            raise Unreadable(_TOO_MANY)
        head = elf.read(at, _ENTRY.size)
        if len(head) < _ENTRY.size:
            raise Unreadable("it is cut off in its GPU code")
        kind, _, size, payload, _, _, minor, major, number, _, flags = _ENTRY.unpack(head)
        if size < _SMALLEST_ENTRY or payload > end - at - size:
            raise Unreadable("an entry of a fatbin in it says that it is longer than the fatbin")
        if kind in (_PTX, _CUBIN):
            found.add((architecture(kind, number, flags), (major, minor)))
        at += size + payload
    return found, steps
