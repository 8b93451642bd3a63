"""The few parts of a shared object that facts are made of: its sections by name, and what its dynamic section says.

Read with pread at the places that its headers name, and no more: a library of torch has half a gigabyte, and all
binaries of an installation are read in the time of a static check. (pyelftools takes 60 ms for its import and some
5 ms for a file, a tenth of which is spent here.) Only files for 64 bits, little endian, as CUDA has them.
Source: elf(5).
"""

from __future__ import annotations

import os
import platform
import stat
import struct
from typing import NamedTuple

_MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<qQ")
_LOAD, _IS_DYNAMIC = 1, 2  # p_type
_NO_BITS = 8  # sh_type: without place in the file
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29  # d_tag
_NAMES = {_NEEDED: "NEEDED", _SONAME: "SONAME", _RPATH: "RPATH", _RUNPATH: "RUNPATH"}
_MOST_BYTES = 1 << 22  # of one table
_LONGEST = 4096  # bytes of a name


class NotReadableError(Exception):
    """It is no such file, or not whole; the message says so in words that follow the path."""


class Section(NamedTuple):
    """Where a section lies in the file."""

    offset: int
    size: int


class ElfFile:
    """An open shared object. Raises OSError where it cannot be opened, NotReadableError where it is none."""

    def __init__(self, path: str) -> None:
        # A FIFO would wait for somebody to write.
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """To be called once: contextlib.closing."""
        os.close(self._fd)

    @property
    def is_for_this_machine(self) -> bool:
        """Whether it holds code for the processor of this machine; true where we do not know its number."""
        return bool(self._machine == _MACHINES.get(platform.machine(), self._machine))

    def sections(self) -> dict[str, Section]:
        """Those that have a name and a place in the file. An object that is stripped of their table has none."""
        if not self._sections_at:
            return {}
        count = self._section_count
        if not count:  # there are too many for its field, and the first says how many
            count = _SECTION.unpack(self.read(self._sections_at, _SECTION.size))[5]
        table = list(_SECTION.iter_unpack(self._table(self._sections_at, count * _SECTION.size)))
        if self._names_in >= len(table):
            return {}
        names = self._table(table[self._names_in][4], table[self._names_in][5])
        found = {}
        for name_at, kind, _, _, offset, size, *_ in table:
            name = names[name_at : names.find(b"\0", name_at)].decode(errors="replace")
            if name and kind != _NO_BITS:
                found[name] = Section(offset, size)
        return found

    def dynamic(self) -> dict[str, list[str]]:
        """NEEDED, SONAME, RPATH and RUNPATH, each with all its values in order."""
        found: dict[str, list[str]] = {name: [] for name in _NAMES.values()}
        size = self._program_count * _PROGRAM.size
        programs = list(_PROGRAM.iter_unpack(self._table(self._programs_at, size)))
        place = next((one for one in programs if one[0] == _IS_DYNAMIC), None)
        if place is None:
            return found
        whole = self._table(place[2], place[5])
        tags = list(_DYNAMIC.iter_unpack(whole[: len(whole) // _DYNAMIC.size * _DYNAMIC.size]))
        end = next((number for number, (tag, _) in enumerate(tags) if tag == 0), len(tags))
        address = next((value for tag, value in tags[:end] if tag == _STRTAB), 0)
        base = next((one for one in programs if one[0] == _LOAD and one[3] <= address < one[3] + one[5]), None)
        if base is None:
            return found
        names_at = base[2] + address - base[3]
        for tag, value in tags[:end]:
            if tag in _NAMES:
                # As paths are spelled in Python: bytes that are no UTF-8 are kept.
                found[_NAMES[tag]].append(os.fsdecode(self._text(names_at + value)))
        return found

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file, all of them. Raises NotReadableError where it ends before."""
        found = os.pread(self._fd, size, offset) if 0 <= offset <= self.size else b""
        if len(found) < size:
            raise NotReadableError(f"is cut off: it has {self.size} bytes and names a place at {offset + size}")
        return found

    def _begin(self) -> None:
        state = os.fstat(self._fd)
        if not stat.S_ISREG(state.st_mode):
            raise NotReadableError("is no plain file")
        self.size = state.st_size
        start = os.pread(self._fd, _HEADER.size, 0)
        if not start.startswith(b"\x7fELF"):
            raise NotReadableError("is no ELF file" if start else "is empty")
        if start[4:6] != b"\x02\x01":
            raise NotReadableError("is an ELF file for 32 bits or big endian")
        if len(start) < _HEADER.size:
            raise NotReadableError("is cut off within its header")
        words = _HEADER.unpack(start)
        self._machine = words[2]
        self._programs_at, self._sections_at = words[5], words[6]
        self._program_count, self._section_count, self._names_in = words[10], words[12], words[13]

    def _table(self, offset: int, size: int) -> bytes:
        if size > _MOST_BYTES:
            raise NotReadableError(f"names a table of {size} bytes")
        return self.read(offset, size)

    def _text(self, offset: int) -> bytes:
        return os.pread(self._fd, _LONGEST, offset).partition(b"\0")[0] if 0 <= offset < self.size else b""
