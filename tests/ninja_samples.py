"""The log of dependencies that ninja keeps, as tests write one."""

from __future__ import annotations

import struct


def write_deps(folder, module, files, *, output=""):
    """A log as ninja keeps it (test_ninja_deps.py compares with ninja itself)."""
    names = [output or f"{module}/{module}.o", *map(str, files)]
    data = b"# ninjadeps\n" + struct.pack("=I", 4)
    for number, name in enumerate(names):
        padded = name.encode() + b"\0" * (-len(name.encode()) % 4)
        data += struct.pack("=I", len(padded) + 4) + padded + struct.pack("=I", ~number & 0xFFFFFFFF)
    ids = struct.pack(f"={len(names) + 2}I", 0, 1, 0, *range(1, len(names)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".ninja_deps").write_bytes(data + struct.pack("=I", 0x80000000 | len(ids)) + ids)
