"""Shared objects written byte by byte, as far as a reader of headers looks."""

from __future__ import annotations

import platform
import struct

PTX, CUBIN = 1, 2
MACHINES = {"x86_64": 62, "aarch64": 183}
OWN = MACHINES.get(platform.machine(), 62)
SPECIFIC, FAMILY, LZ4, ZSTD = 0x100000, 0x200000, 0x2000, 0x8000


def entry(kind: int, arch: int, flags: int = 0, *, payload: int = 64, version=(9, 0), size: int | None = None) -> bytes:
    """An entry of a fatbin whose payload is no code at all; size: what it says of its payload's."""
    said = payload if size is None else size
    head = struct.pack("<HHIQIIHHIQQ", kind, 0x101, 64, said, 0, 0, version[1], version[0], arch, 0, flags | 0x11)
    return head.ljust(64, b"\0") + b"\xee" * payload


def container(*entries: bytes, size: int | None = None) -> bytes:
    """A container of these; size: what it says of what follows its header."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body) if size is None else size) + body


def elf(fatbin: bytes | None = None, *, needed: tuple[bytes, ...] = (), undefined: tuple[bytes, ...] = ()) -> bytes:
    """A shared object with these sections and nothing else."""
    text = b"\0" + b"".join(name + b"\0" for name in (*needed, *undefined))
    places = {name: text.index(b"\0" + name + b"\0") + 1 for name in (*needed, *undefined)}
    symbols = bytes(24) + b"".join(struct.pack("<IBBHQQ", places[name], 0x12, 0, 0, 0, 0) for name in undefined)
    dynamic = [*((1, places[name]) for name in needed), (5, 0), (10, len(text)), (0, 0)]
    names = b"\0.nv_fatbin\0.dynstr\0.dynsym\0.dynamic\0.shstrtab\0"
    start = 64 + 2 * 56
    parts = {b".dynstr": text, b".dynsym": symbols, b".dynamic": bytes(16 * len(dynamic)), b".shstrtab": names}
    parts |= {} if fatbin is None else {b".nv_fatbin": fatbin}
    offsets, at = {}, start
    for name, data in parts.items():
        offsets[name], at = at, at + len(data) + -len(data) % 8
    tags = [(tag, offsets[b".dynstr"] if tag == 5 else value) for tag, value in dynamic]
    parts[b".dynamic"] = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    headers = bytes(64) + b"".join(
        struct.pack("<IIQQQQIIQQ", names.index(name), 1, 0, 0, offsets[name], len(data), 0, 0, 8, 24)
        for name, data in parts.items()
    )
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, OWN, 1, 0, 64, at, 0, 64, 56, 2, 64, len(parts) + 1, list(parts).index(b".shstrtab") + 1
    )
    programs = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, at, at, 4096) + struct.pack(
        "<IIQQQQQQ", 2, 4, offsets[b".dynamic"], 0, 0, 16 * len(tags), 16 * len(tags), 8
    )
    body = b"".join(data + bytes(-len(data) % 8) for data in parts.values())
    return head + programs + body + headers


def for_another(data: bytes) -> bytes:
    """The same file for the processor that this machine has not."""
    other = next(number for number in MACHINES.values() if number != OWN)
    return data[:18] + struct.pack("<H", other) + data[20:]


def library(*defined: bytes) -> bytes:
    """A shared object that defines these symbols, with a .gnu.hash of one bucket."""
    text = b"\0" + b"".join(name + b"\0" for name in defined)
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", text.index(b"\0" + name + b"\0") + 1, 0x12, 0, 1, 0, 0) for name in defined
    )
    chain = [_hash(name) & ~1 for name in defined]
    hashes = struct.pack("<IIIIQI", 1, 1, 1, 6, 2**64 - 1, 1 if defined else 0)
    hashes += b"".join(struct.pack("<I", value | (at == len(chain) - 1)) for at, value in enumerate(chain))
    names = b"\0.gnu.hash\0.dynstr\0.dynsym\0.shstrtab\0"
    parts = {b".gnu.hash": hashes, b".dynstr": text, b".dynsym": symbols, b".shstrtab": names}
    at, headers, body = 64, bytes(64), b""
    for name, data in parts.items():
        headers += struct.pack("<IIQQQQIIQQ", names.index(name), 1, 0, 0, at + len(body), len(data), 0, 0, 8, 0)
        body += data
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, OWN, 1, 0, 0, 64 + len(body), 0, 64, 56, 0, 64, len(parts) + 1, len(parts)
    )
    return head + body + headers


def _hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) % 2**32
    return value
