"""The few parts of an ELF file that facts are made of: sections by name, what it asks of the loader.

A libtorch_cuda.so has more than a gigabyte, of which some hundred kilobytes are read with pread: a file that shrinks
meanwhile gives a short read, where a mapping would give SIGBUS. (pyelftools takes 60 ms for its import and 5 ms for a
file, which is more than a static check has for all of them.) Only files for 64 bits, little endian, as CUDA has them.
Source: elf(5).
"""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 14, 15, 29

_MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine
_NAMES = {number: name for name, number in _MACHINES.items()}
_BLOCK = 4096
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_STRSZ = 5, 10
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
        machine = struct.unpack_from("<H", head, 18)[0]
        if machine != _MACHINES.get(platform.machine(), machine):  # where we do not know our number, all are taken
            raise Unreadable(f"it is for another processor ({_NAMES.get(machine, f'e_machine {machine}')})")
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
        return tuple(name.decode("utf-8", "backslashreplace") for name in self.dynamic(DT_NEEDED)[DT_NEEDED])

    def dynamic(self, *tags: int) -> dict[int, list[bytes]]:
        """The texts that the dynamic section has under these tags, in order."""
        found: dict[int, list[bytes]] = {tag: [] for tag in tags}
        table = self._program_headers()
        place = next((one for one in table if one[0] == _PT_DYNAMIC), None)
        if place is None:
            return found
        data = self.read(place[2], min(place[5], _BLOCK * 4))
        entries = list(_DYNAMIC.iter_unpack(data[: len(data) // 16 * 16]))
        values = dict(reversed(entries))  # the first of each
        start = _file_offset(table, values.get(_DT_STRTAB, 0))
        for tag, value in entries if start else ():
            if tag in found and value < values.get(_DT_STRSZ, 0):
                found[tag].append(self.read(start + value, _BLOCK).partition(b"\0")[0])
            elif not tag:
                break
        return found

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


@contextlib.contextmanager
def opened(path: str) -> Iterator[ElfFile]:
    """The file, closed afterwards; of a FIFO nobody is waited for. Errors: Unreadable, OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield ElfFile(fd)
    finally:
        os.close(fd)


def _file_offset(table: list[tuple[int, ...]], address: int) -> int:
    """Where in the file a virtual address lies; 0 where no segment loads it."""
    for kind, _, offset, start, _, length, *_ in table:
        if kind == _PT_LOAD and start <= address < start + length:
            return offset + address - start
    return 0
