"""What a quota leaves to a user, where the kernel tells. Source: quotactl(2), struct if_dqblk in linux/quota.h."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import NamedTuple

from fi_doctor.facts.mounts import Mount
from fi_doctor.model import Missing

_GET_QUOTA = 0x800007 << 8 | 0  # QCMD(Q_GETQUOTA, USRQUOTA)
_BLOCK = struct.Struct("=8QI4x")  # limits of blocks of 1 KiB, space in bytes, limits of inodes, inodes, times, valid
_WITH_QUOTAS = ("ext2", "ext3", "ext4", "xfs", "f2fs", "btrfs", "jfs", "reiserfs")
_WHY = {
    errno.ESRCH: "no quotas for users are switched on there",
    errno.ENOSYS: "this kernel knows no quotas",
    errno.EPERM: "of another user's quota the kernel tells root only",
    errno.ENOENT: "its device is not to be seen from here",
    errno.ENOTBLK: "its device is not to be seen from here",
    errno.EACCES: "its device is not to be seen from here",
}


class Left(NamedTuple):
    """What a user may still take."""

    words: str | Missing  # "12 of 100 MiB left", "no limit for this user"
    mib: int | None = None  # None: no limit, or none that is known
    files: int | None = None


def read_quota(mount: Mount | None, uid: int) -> Left:
    """What the quota of a user leaves. Quotas of groups, projects and servers are not told.

    A project quota of XFS shows in the free space instead, and so do those of most servers.
    """
    if mount is None or mount.filesystem not in _WITH_QUOTAS or not mount.device.startswith("/"):
        kind = mount.filesystem if mount else "an unknown type"
        return Left(Missing(reason=f"quotas of a file system of type {kind} cannot be asked for here"))
    data = ctypes.create_string_buffer(_BLOCK.size)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.quotactl(_GET_QUOTA, os.fsencode(mount.device), uid, data)
    except (OSError, AttributeError, ValueError):
        return Left(Missing(reason="this C library has no quotactl"))
    if failed:
        code = ctypes.get_errno()
        return Left(Missing(reason=_WHY.get(code, f"quotactl: {os.strerror(code)}")))
    return parse_quota(data.raw)


def parse_quota(data: bytes) -> Left:
    """A struct if_dqblk: limits in KiB, what is taken in bytes; 0 stands for no limit."""
    hard, soft, used, files_hard, files_soft, files, *_ = _BLOCK.unpack(data)
    limit, most = hard or soft, files_hard or files_soft
    told, mib, count = [], None, None
    if limit:
        mib = max(0, limit - (used >> 10)) >> 10
        told.append(f"{mib} of {limit >> 10} MiB left")
    if most:
        count = max(0, most - files)
        told.append(f"{count} of {most} files left")
    return Left(", ".join(told) or "no limit for this user", mib, count)
