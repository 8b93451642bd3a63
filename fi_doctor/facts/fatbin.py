"""What an ELF file holds in .nv_fatbin and asks of the loader: headers are read, never what they stand before.

A libtorch_cuda.so has more than a gigabyte, of which this reads some hundred kilobytes with pread: a file that shrinks
meanwhile gives a short read, where a mapping would give SIGBUS. Sizes in a file may lie: every step goes forward, stays
in the section, and their number has a bound.
Source: the layout was compared with `cuobjdump -lelf -lptx` (13.5) of vLLM's 0.14.1 to 0.33.0 wheels.
"""

from __future__ import annotations

import os
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

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
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 1, 5, 10
_SHT_NOBITS = 8
_MOST_BYTES = 4 << 20  # of one table; the strings of libtorch_cpu.so are longer, and of no use here


class Unreadable(Exception):  # noqa: N818 - a reason, which the caller keeps
    """Why a file cannot be read, in words."""


class Section(NamedTuple):
    """Where a section lies in its file."""

    offset: int
    size: int
    entry: int  # bytes of one of its entries
    link: int  # number of the section that it refers to


class Code(NamedTuple):
    """What the fatbin of one file holds; `units` and `ptx` as in model.Binary."""

    units: dict[str, int]
    ptx: dict[str, str]
    problem: str  # why not all of it could be read; "" when all was


class ElfFile:
    """A little-endian ELF64 shared object, open. Errors: Unreadable, OSError."""

    def __init__(self, fd: int) -> None:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            raise Unreadable("it is not a file")
        self._fd, self.size = fd, state.st_size
        head = self.read(0, 64)
        if not head:
            raise Unreadable("it is empty")
        if head[:4] != b"\x7fELF":
            raise Unreadable("it is not ELF")
        if len(head) < 64:
            raise Unreadable("it is cut off in its ELF header")
        if head[4:6] != b"\x02\x01":
            raise Unreadable("it is 32-bit ELF" if head[4] == 1 else "it is not little-endian ELF64")
        self._programs = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        self._headers = struct.unpack_from("<Q", head, 40)[0], *struct.unpack_from("<HHH", head, 58)
        self._sections: dict[bytes, Section] | None = None

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes; fewer where the file ends."""
        if offset >= self.size or offset < 0:
            return b""
        return os.pread(self._fd, size, offset)

    def sections(self) -> dict[bytes, Section]:
        """Sections that lie in the file, by name; of several with one name the first."""
        if self._sections is None:
            self._sections = dict(self._read_sections())
        return self._sections

    def needed(self) -> tuple[str, ...]:
        """DT_NEEDED, in order; names that are not UTF-8 with backslash escapes."""
        table = self._program_headers()
        dynamic = next((one for one in table if one[0] == _PT_DYNAMIC), None)
        if dynamic is None:
            return ()
        data = self.read(dynamic[2], min(dynamic[5], _BLOCK * 4))
        tags = list(_DYNAMIC.iter_unpack(data[: len(data) // 16 * 16]))
        values = dict(reversed(tags))  # the first of each
        start = _file_offset(table, values.get(_DT_STRTAB, 0))
        names = [value for tag, value in tags if tag == _DT_NEEDED]
        return tuple(self._text(start + name) for name in names if name < values.get(_DT_STRSZ, 0)) if start else ()

    def _program_headers(self) -> list[tuple[int, ...]]:
        offset, size, count = self._programs
        if size != _PROGRAM_HEADER.size:
            raise Unreadable("its program headers have another size than those of ELF64")
        data = self.read(offset, size * count)
        if len(data) < size * count:
            raise Unreadable("it is cut off in its program headers")
        return list(_PROGRAM_HEADER.iter_unpack(data))

    def _read_sections(self) -> Iterator[tuple[bytes, Section]]:
        offset, size, count, names_at = self._headers
        if not offset or not count:
            raise Unreadable("it has no section headers, so that its GPU code cannot be found")
        if size != _SECTION_HEADER.size:
            raise Unreadable("its section headers have another size than those of ELF64")
        data = self.read(offset, size * count)
        if len(data) < size * count:
            raise Unreadable("it is cut off before its section headers")
        headers = list(_SECTION_HEADER.iter_unpack(data))
        if names_at >= count:
            raise Unreadable("its section names cannot be found")
        names = self.read(headers[names_at][4], min(headers[names_at][5], _MOST_BYTES))
        found: dict[bytes, Section] = {}
        for name, kind, _, _, at, length, link, _, _, entry in headers:
            word = names[name : names.find(b"\0", name)]
            if kind != _SHT_NOBITS:
                found.setdefault(word, Section(at, length, entry, link))
        yield from found.items()

    def _text(self, offset: int) -> str:
        return self.read(offset, 256).partition(b"\0")[0].decode("utf-8", "backslashreplace")


def read_code(elf: ElfFile) -> Code:
    """For which GPUs the file has code; nothing in one without .nv_fatbin."""
    section = elf.sections().get(SECTION)
    units: Counter[str] = Counter()
    ptx: dict[str, tuple[int, int]] = {}
    problem = ""
    try:
        for unit in _units(elf, section) if section else ():
            units[" ".join(_in_order({name for name, _ in unit}))] += 1
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


def _in_order(names: set[str]) -> list[str]:
    """Cubins before PTX, each by number and suffix."""

    def place(name: str) -> tuple[bool, int, str]:
        kind, _, rest = name.partition("_")
        number = rest.rstrip("af")
        return kind != "sm", int(number), rest

    return sorted(names, key=place)


def _file_offset(table: list[tuple[int, ...]], address: int) -> int:
    """Where in the file a virtual address lies; 0 where no segment loads it."""
    for kind, _, offset, start, _, length, *_ in table:
        if kind == _PT_LOAD and start <= address < start + length:
            return offset + address - start
    return 0
