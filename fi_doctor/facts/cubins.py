"""The folder of kernels that FlashInfer fetches: how many there are, and which of them are empty or cut off.

FlashInfer's list of them, checksums.txt, has no sizes, and to hash a gigabyte takes seconds. A cubin is an ELF file,
whose tables say where it ends: all 10524 of flashinfer-cubin 0.6.7.post3 end there.
"""

from __future__ import annotations

import os
import stat
import struct

from fi_doctor.model import Missing

# ruff: noqa: PTH118 - thousands of files

_MOST_ENTRIES = 200_000  # of the folder; flashinfer-cubin brings some ten thousand
_MOST_LOOKED_AT = 512  # of a check that is watched for time: 35 us for each
_HEADER = 64
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOBITS = 8  # the type of a section without bytes in the file
_PACKAGE = "flashinfer_cubin"


def count_cubins(folder: str | Missing) -> int | Missing:
    """How many .cubin files lie below a folder; none when it does not exist. Nothing is downloaded."""
    if isinstance(folder, Missing):
        return folder
    problems: list[OSError] = []
    count = entries = 0
    for _, _, files in os.walk(folder, onerror=problems.append):
        entries += len(files)
        count += sum(name.endswith(".cubin") for name in files)
        if entries > _MOST_ENTRIES:
            return Missing(reason=f"{folder} holds more than {_MOST_ENTRIES} files, which were not counted further")
    bad = next((error for error in problems if not isinstance(error, FileNotFoundError)), None)
    return count if bad is None else Missing(reason=f"{bad.filename}: {bad.strerror}")


def damaged_cubins(folder: str | Missing, most: int = _MOST_LOOKED_AT) -> dict[str, str]:
    """Cubins that were fetched and are not whole -> how, by path: "0 bytes", "4096 bytes of at least 18016".

    Those of the package are none that were fetched: they are not looked at here.
    """
    if isinstance(folder, Missing) or _PACKAGE in folder.split("/"):
        return {}
    found: dict[str, str] = {}
    looked_at = 0
    for place, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".cubin"):
                if looked_at == most:
                    return dict(sorted(found.items()))
                looked_at += 1
                if how := _damage(os.path.join(place, name)):
                    found[os.path.join(place, name)] = how
    return dict(sorted(found.items()))


def _damage(path: str) -> str:
    """In words; "" for one that is whole, or that cannot be looked at."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    except OSError:
        return ""
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            return "it is not a file"
        return _damage_of(descriptor, state.st_size)
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _damage_of(descriptor: int, size: int) -> str:
    """The same of an open file. Where its tables come first, their entries tell where the rest ends."""
    head = os.pread(descriptor, _HEADER, 0)
    if not head:
        return "0 bytes"
    if not head.startswith(b"\x7fELF"):
        return "it is not ELF"
    if len(head) < _HEADER:
        return f"{size} bytes of at least {_HEADER}"
    # e_phoff and e_shoff; e_phentsize, e_phnum, e_shentsize and e_shnum.
    (programs, sections), sizes = struct.unpack_from("<QQ", head, 32), struct.unpack_from("<HHHH", head, 54)
    end = max(programs + sizes[0] * sizes[1], sections + sizes[2] * sizes[3])
    if end < size and sizes[2] == _SECTION.size:
        table = os.pread(descriptor, sizes[2] * sizes[3], sections)
        # sh_offset and sh_size of what lies in the file
        ends = (one[4] + one[5] for one in _SECTION.iter_unpack(table) if one[1] != _NOBITS)
        end = max(end, *ends, 0)
    return f"{size} bytes of at least {end}" if size < end else ""
