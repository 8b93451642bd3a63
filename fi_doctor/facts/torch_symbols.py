"""Which symbols of torch's C++, or of apache-tvm-ffi, a shared object needs and the installed one does not define.

torch promises no stable C++ ABI: an extension built for another release fails at import with "undefined symbol".
FlashInfer's modules need functions of libtvm_ffi.so, to which releases add, and name no library for them.
The symbols that the libraries define are looked up in their .gnu.hash tables as ld.so does, a few bytes each.
Source: glibc elf/dl-lookup.c (do_lookup_x); c10 and at are torch's namespaces, tvm::ffi is that of apache-tvm-ffi.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from fi_doctor.facts.elf import ElfFile, Section, Unreadable
from fi_doctor.model import Missing

# ruff: noqa: PTH116, PTH118, PTH208 - as in binaries.py

# Of namespaces c10, at, torch, caffe2: _ZN3c10..., _ZNK2at6Tensor..., _ZTIN3c105Error...
_TORCH = re.compile(rb"_Z(?:T[VIST]|GV)?N?[KV]*(?:3c10|2at|5torch|6caffe2)")
_AOTI = rb"aoti_torch_|torch_"  # the stable C interface, whose functions later releases add to
TORCH = re.compile(rb"(?:%s|%s)" % (_TORCH.pattern, _AOTI))
TVM_FFI = re.compile(rb"TVMFFI|_Z(?:T[VIST]|GV)?N?[KV]*3tvm3ffi")
_SYMBOL = struct.Struct("<IBBHQQ")
_GLOBAL = 1
_MOST_BYTES = 16 << 20  # of a table of symbols or names
_MOST_TOLD = 8


class LibrarySymbols:
    """The symbols that the libraries in torch/lib or tvm_ffi/lib define; nothing is opened before it is asked.

    meant: the names that must be among them.
    """

    def __init__(self, folder: Path, meant: re.Pattern[bytes]) -> None:
        self._folder, self._meant = str(folder), meant
        self._tables: list[_Table] | Missing | None = None
        self._fds: list[int] = []

    def key(self) -> str:
        """One word for the libraries as they are: what was compared with others has to be compared again."""
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(".so"))
            states = [os.stat(os.path.join(self._folder, name)) for name in names]
        except OSError:
            return "unread"
        return str(hash(tuple((one.st_size, one.st_mtime_ns, one.st_ino) for one in states)) & 0xFFFFFFFFFFFF)

    def unresolved(self, elf: ElfFile) -> tuple[str, ...] | Missing:
        """At most some of the names that none of the libraries defines; empty: all are there."""
        try:
            wanted = sorted(_undefined(elf, self._meant))
        except Unreadable as error:
            return Missing(reason=str(error))
        if not wanted:
            return ()
        if self._tables is None:
            self._tables = self._open()
        if isinstance(self._tables, Missing):
            return self._tables
        tables = self._tables
        lost = [name for name in wanted if not any(table.defines(name) for table in tables)]
        return tuple(name.decode("utf-8", "backslashreplace") for name in lost[:_MOST_TOLD])

    def close(self) -> None:
        """Let go of the files; what is asked later opens them again."""
        while self._fds:
            os.close(self._fds.pop())
        self._tables = None

    def _open(self) -> list[_Table] | Missing:
        try:
            names = [name for name in sorted(os.listdir(self._folder)) if name.endswith(".so")]
            for name in names:
                self._fds.append(os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            return [_Table(fd) for fd in self._fds]
        except OSError as error:
            return Missing(reason=f"{self._folder}: {error.strerror or error}")
        except Unreadable as error:
            return Missing(reason=f"{self._folder}: {error}")


class _Table:
    """The .gnu.hash of one library, whose file stays open."""

    def __init__(self, fd: int) -> None:
        self._elf = ElfFile(fd)
        sections = self._elf.sections()
        parts = [sections.get(name) for name in (b".gnu.hash", b".dynsym", b".dynstr")]
        if None in parts:
            raise Unreadable("a library in it has no .gnu.hash, so that its symbols cannot be looked up")
        hashes, self._symbols, self._names = (part for part in parts if part is not None)
        data = self._elf.read(hashes.offset, min(hashes.size, _MOST_BYTES))
        if len(data) < 16:
            raise Unreadable("a library in it is cut off in .gnu.hash")
        buckets, self._first, blooms, self._shift = struct.unpack_from("<IIII", data)
        start = 16 + 8 * blooms
        if not buckets or not blooms or len(data) < start + 4 * buckets:
            raise Unreadable("a library in it has a .gnu.hash that is not whole")
        self._data, self._blooms, self._buckets = data, blooms, buckets
        self._start, self._chain = start, start + 4 * buckets

    def defines(self, name: bytes) -> bool:
        number = _hash(name)
        (word,) = struct.unpack_from("<Q", self._data, 16 + 8 * (number // 64 % self._blooms))
        if not (word >> number % 64) & (word >> (number >> self._shift) % 64) & 1:
            return False
        (index,) = struct.unpack_from("<I", self._data, self._start + 4 * (number % self._buckets))
        return index >= self._first and any(self._names_are(at, name) for at in self._in_chain(index, number))

    def _in_chain(self, index: int, number: int) -> Iterator[int]:
        at = self._chain + 4 * (index - self._first)
        while at + 4 <= len(self._data):
            (value,) = struct.unpack_from("<I", self._data, at)
            if value | 1 == number | 1:
                yield index
            if value & 1:
                return
            at, index = at + 4, index + 1

    def _names_are(self, index: int, name: bytes) -> bool:
        head = self._elf.read(self._symbols.offset + _SYMBOL.size * index, _SYMBOL.size)
        if len(head) < _SYMBOL.size:
            return False
        return self._elf.read(self._names.offset + _SYMBOL.unpack(head)[0], len(name) + 1) == name + b"\0"


def _undefined(elf: ElfFile, meant: re.Pattern[bytes]) -> set[bytes]:
    """The symbols so named that the file needs and does not define; weak ones may stay undefined."""
    sections = elf.sections()
    symbols, names = sections.get(b".dynsym"), sections.get(b".dynstr")
    if symbols is None or names is None:
        raise Unreadable("it has no table of dynamic symbols")
    table, text = _whole(elf, symbols), _whole(elf, names)
    found: set[bytes] = set()
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(table[: len(table) // _SYMBOL.size * _SYMBOL.size]):
        if section or info >> 4 != _GLOBAL or name >= len(text):
            continue
        word = text[name : text.find(b"\0", name)]
        if meant.match(word):
            found.add(word)
    return found


def _whole(elf: ElfFile, section: Section) -> bytes:
    if section.size > _MOST_BYTES:
        raise Unreadable("its table of dynamic symbols is too long to be compared")
    data = elf.read(section.offset, section.size)
    if len(data) < section.size:
        raise Unreadable("it is cut off in its dynamic symbols")
    return data


def _hash(name: bytes) -> int:
    """The hash of .gnu.hash (DJB2, 32 bits)."""
    value = 5381
    for byte in name:
        value = value * 33 + byte & 0xFFFFFFFF
    return value
