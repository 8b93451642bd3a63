"""Logs as streams of bytes, whatever they were packed with."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fi_doctor.errors import DataError, UsageError
from fi_doctor.explaining import waiting
from fi_doctor.explaining.stream import Readable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# How what is packed begins, and what unpacks it.
_PACKED: tuple[tuple[bytes, Callable[[BinaryIO], gzip.GzipFile | zstd.ZstdFile | lzma.LZMAFile | bz2.BZ2File]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"\x28\xb5\x2f\xfd", zstd.ZstdFile),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
    (b"BZh", bz2.BZ2File),
)
_DAMAGED = (gzip.BadGzipFile, zlib.error, zstd.ZstdError, lzma.LZMAError, EOFError)
_DEEPEST = 4
_HEAD = 8192  # bytes that are looked at
_MUCH, _LITTLE = 0.4, 0.05  # shares of bytes
_MOST_ZEROS, _FEW_ZEROS = 256 << 20, 16  # bytes at the beginning
_STRANGE = bytes((*range(1, 8), *range(14, 27), *range(28, 32)))  # control characters that no log has


@contextmanager
def opened(name: str, cut: list[str]) -> Iterator[Readable]:
    """A log by the name of its file, "-" for stdin; gzip, zstd, xz and bzip2 are known by how they begin.

    cut: why it is not read to its end is added to it.

    Errors: UsageError where it cannot be opened, DataError where nothing of it can be unpacked, or is text.
    """
    try:
        with _raw(name, cut) as raw:
            yield _unpacked(raw, cut, name)
    except _DAMAGED as error:
        raise DataError(
            f"{name} cannot be unpacked", why=str(error), todo="copy it anew, or unpack it first"
        ) from error
    except OSError as error:
        todo = "fi-doctor explain FILE, or - for what is piped in"
        raise UsageError(f"{name!r} cannot be read", why=error.strerror or str(error), todo=todo) from error


@contextmanager
def _raw(name: str, cut: list[str]) -> Iterator[BinaryIO]:
    if name == "-":
        yield _stdin(cut)
        return
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"{name!r} is a folder", todo=f"fi-doctor explain {name.rstrip('/')}/*.log")
    is_regular = path.is_file() or not path.exists()
    with path.open("rb") if is_regular else io.BufferedReader(waiting.opened(name, cut)) as file:
        yield file


def _stdin(cut: list[str]) -> BinaryIO:
    try:
        number = sys.stdin.fileno()
    except (OSError, ValueError):  # none of the system's, as in tests
        return sys.stdin.buffer
    if stat.S_ISREG(os.fstat(number).st_mode):
        return sys.stdin.buffer
    return io.BufferedReader(waiting.Patient(number, "-", cut, is_own=False))


class _Recoded:
    """A stream of UTF-16, as shells of Windows write it, in UTF-8."""

    def __init__(self, raw: Readable, coding: str) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(coding)("replace")

    def read(self, size: int, /) -> bytes:
        text = ""
        while not text and (data := self._raw.read(size)):
            text = self._decoder.decode(data)
        return text.encode()


class _Unpacked(io.RawIOBase):
    """What is packed, up to where it is cut off or damaged: all before that is read."""

    def __init__(self, packed: gzip.GzipFile | zstd.ZstdFile | lzma.LZMAFile | bz2.BZ2File, cut: list[str]) -> None:
        self._packed = packed
        self._cut = cut
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer)
        if self._read > waiting.MOST_BYTES and not self._cut:
            self._cut.append(f"more than {waiting.MOST_BYTES >> 30} GiB were packed in it")
        try:
            data = b"" if self._cut else self._packed.read1(len(view))
        except _DAMAGED as error:
            if not self._read:
                raise
            self._cut.append(str(error))
            data = b""
        self._read += len(data)
        view[: len(data)] = data
        return len(data)


def _unpacked(raw: BinaryIO, cut: list[str], name: str) -> Readable:
    """The stream itself, or what is packed in it however often, in UTF-8. Errors: DataError where it is no text."""
    if not isinstance(raw, io.BufferedReader):
        return raw
    found = raw
    for _ in range(_DEEPEST):
        head = found.peek(_HEAD)[:_HEAD]
        opener = next((opener for magic, opener in _PACKED if head.startswith(magic)), None)
        if opener is None:
            return _as_text(found, name)
        found = io.BufferedReader(_Unpacked(opener(found), cut))
    raise DataError(f"{name} is packed too often", why=f"more than {_DEEPEST} times", todo="unpack it first")


def _as_text(found: io.BufferedReader, name: str) -> Readable:
    _pass_zeros(found, name)
    if found.peek(_HEAD).startswith(codecs.BOM_UTF8):
        found.read(len(codecs.BOM_UTF8))
    head = found.peek(_HEAD)[:_HEAD]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _Recoded(found, "utf-16")
    nulls = [head[at::2].count(0) * 2 / (len(head) or 1) for at in (0, 1)]
    if max(nulls) > _MUCH and min(nulls) < _LITTLE:  # every other byte: UTF-16 without its mark
        return _Recoded(found, "utf-16-le" if nulls[1] > nulls[0] else "utf-16-be")
    strange = sum(head.count(byte) for byte in _STRANGE)
    if head.startswith(b"PK\x03\x04") or strange > _LITTLE * (len(head) - head.count(0)) or sum(nulls) / 2 > _MUCH:
        raise DataError(f"{name} is no text", why="it is packed or binary", todo="unpack it first")
    return found


def _pass_zeros(found: io.BufferedReader, name: str) -> None:
    """Pass over the hole before a log that was cut down while it was written. Errors: DataError where all is hole."""
    passed = 0
    while (head := found.peek(_HEAD)) and not head.strip(b"\0") and passed < _MOST_ZEROS:
        passed += len(found.read(len(head)))
    if passed and (not head or passed >= _MOST_ZEROS):
        raise DataError(
            f"{name} is binary, and no log", why=f"it begins with {passed} zero bytes", todo="give the log itself"
        )
    zeros = len(head) - len(head.lstrip(b"\0"))
    if passed or zeros > _FEW_ZEROS:
        found.read(zeros)
