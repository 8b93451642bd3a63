"""Whether a file is a shared library, as far as its first bytes and its size tell.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import os
import stat
import struct

_HEADER = 64  # bytes, of a 64-bit file
_MAGIC, _WIDE_LITTLE = b"\x7fELF", b"\x02\x01"


def is_library(path: str) -> bool:
    """A plain file that begins as ELF does and is as long as its header says. Source: elf(5), Elf64_Ehdr.

    What a full disk, a killed linker or a person left behind is none: it cannot be loaded, and ninja does not look.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        header = os.read(fd, _HEADER) if stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return False
    finally:
        os.close(fd)
    if len(header) < _HEADER or header[:4] != _MAGIC:
        return False
    if header[4:6] != _WIDE_LITTLE:
        return True
    (sections_at,) = struct.unpack_from("<Q", header, 40)
    size, count = struct.unpack_from("<HH", header, 58)
    return bool(status.st_size >= sections_at + size * count)
