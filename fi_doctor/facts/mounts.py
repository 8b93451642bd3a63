"""Mounted file systems: which one holds a path. Source: /proc/PID/mountinfo, proc(5)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of mountinfo."""

    point: str
    filesystem: str  # "ext4", "overlay", "fuse.sshfs"
    device: str  # "/dev/vda", "overlay"


def parse_mounts(text: str) -> list[Mount]:
    """All that are mounted; of two at one point the later one hides the other."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) >= 6 and len(kind) >= 2:
            mounts.append(Mount(_plain(fields[4]), kind[0], _plain(kind[1])))
    return mounts


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The one that holds an absolute path without links."""
    found = None
    for mount in mounts:
        is_above = mount.point in ("/", path) or path.startswith(f"{mount.point}/")
        if is_above and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def read_mounts(process: str = "self", root: Path = Path("/")) -> list[Mount]:
    """Those that a process sees; none where it does not tell."""
    try:
        text = (root / "proc" / process / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    return parse_mounts(text)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
