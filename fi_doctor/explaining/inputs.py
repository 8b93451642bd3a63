"""Logs as streams of bytes, whatever they were packed with."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fi_doctor.errors import DataError, UsageError
from fi_doctor.explaining.stream import Readable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@contextmanager
def opened(name: str) -> Iterator[Readable]:
    """A log by the name of its file, "-" for stdin; gzip and zstd are known by how they begin.

    Errors: UsageError where it cannot be opened, DataError where it cannot be unpacked to its end.
    """
    try:
        with _raw(name) as raw:
            yield _unpacked(raw)
    except (gzip.BadGzipFile, zlib.error, zstd.ZstdError, EOFError) as error:
        raise DataError(
            f"{name} cannot be unpacked", why=str(error), todo="copy it anew, or unpack it first"
        ) from error
    except OSError as error:
        todo = "fi-doctor explain FILE, or - for what is piped in"
        raise UsageError(f"{name!r} cannot be read", why=error.strerror or str(error), todo=todo) from error


@contextmanager
def _raw(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"{name!r} is a folder", todo=f"fi-doctor explain {name.rstrip('/')}/*.log")
    with path.open("rb") as file:
        yield file


class _Recoded:
    """A stream of UTF-16, as shells of Windows write it, in UTF-8."""

    def __init__(self, raw: Readable) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def read(self, size: int, /) -> bytes:
        text = ""
        while not text and (data := self._raw.read(size)):
            text = self._decoder.decode(data)
        return text.encode()


def _unpacked(raw: BinaryIO) -> Readable:
    """The stream itself, or what is packed in it, in UTF-8."""
    head = raw.peek(len(_ZSTD))[: len(_ZSTD)] if isinstance(raw, io.BufferedReader) else b""
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=raw)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _Recoded(raw)
    return zstd.ZstdFile(raw) if head.startswith(_ZSTD) else raw
