"""Whether a user may write a folder, by mode bits, groups and ACLs, where that user is not the one of this process.

Source: path_resolution(7), acl(5); the bytes of an ACL: include/uapi/linux/posix_acl_xattr.h.
"""

from __future__ import annotations

import os
import stat
import struct
from typing import NamedTuple

from fi_doctor.model import Missing, User

READ, WRITE, SEARCH = 4, 2, 1
# ruff: noqa: PTH116 - a Path costs more than the question

_ACL = "system.posix_acl_access"
_NAMED_USER, _GROUP, _NAMED_GROUP, _MASK = 0x02, 0x04, 0x08, 0x10  # the owner's and all others' are the mode's
_ENTRY = struct.Struct("<HHI")
# The server or another process decides there, and no mode bit says how.
_DECIDED_ELSEWHERE = ("cifs", "smb3", "9p", "afs", "virtiofs")
_OVERFLOW = 65534  # whom the kernel shows for an owner that this user namespace does not have


class Acl(NamedTuple):
    """An access control list: permissions by user and group, and the mask over them."""

    users: dict[int, int]
    groups: dict[int, int]
    group: int  # of the owning group
    mask: int


class Answer(NamedTuple):
    """Whether it may, and what decides."""

    may: bool | Missing
    why: str


def may_write(path: str, user: User, *, filesystem: str = "", root: str = "/") -> Answer:
    """Whether the user may make files in a folder that exists; path: absolute.

    root: where the file system of that user is seen from here. Links are followed from "/" only: elsewhere they would
    lead out of that root.
    """
    if user.is_own and root == "/":
        return _asked(path)
    if _is_decided_elsewhere(filesystem):
        why = f"a file system of type {filesystem} decides by other things than mode bits"
        return Answer(Missing(reason=why), why)
    real = os.path.realpath(path) if root == "/" else path
    for folder in _above(real):
        answer = _may(folder, user, SEARCH, filesystem, root)
        if answer.may is not True:
            return answer
    return _may(real, user, WRITE | SEARCH, filesystem, root)


def may_write_file(path: str, user: User, *, filesystem: str = "", root: str = "/") -> bool | Missing:
    """Whether the user may write a file or folder that is there, once its folder is reached."""
    if user.is_own and root == "/":
        return os.access(path, os.W_OK)
    if _is_decided_elsewhere(filesystem):
        return Missing(reason=f"a file system of type {filesystem} decides")
    return _may(path, user, WRITE, filesystem, root).may


def may(path: str, user: User, wanted: int, filesystem: str = "") -> Answer:
    """Whether another user has all of these permissions of what is there, once its folder is reached."""
    if _is_decided_elsewhere(filesystem):
        why = f"a file system of type {filesystem} decides by other things than mode bits"
        return Answer(Missing(reason=why), why)
    return _may(path, user, wanted, filesystem, "/")


def parse_acl(data: bytes) -> Acl | None:
    """The bytes of the attribute; None for those of another version."""
    if len(data) < 4 or struct.unpack_from("<I", data)[0] != 2 or (len(data) - 4) % _ENTRY.size:
        return None
    entries = list(_ENTRY.iter_unpack(data[4:]))
    single = {tag: bits for tag, bits, _ in entries}
    return Acl(
        users={who: bits for tag, bits, who in entries if tag == _NAMED_USER},
        groups={who: bits for tag, bits, who in entries if tag == _NAMED_GROUP},
        group=single.get(_GROUP, 0),
        mask=single.get(_MASK, READ | WRITE | SEARCH),
    )


def granted(found: os.stat_result, user: User, acl: Acl | None, wanted: int) -> bool:
    """Whether mode bits, or the list where there is one, give all that is wanted."""
    mode = stat.S_IMODE(found.st_mode)
    ours = {user.gid, *user.groups}
    if found.st_uid == user.uid:
        return mode >> 6 & wanted == wanted
    # The kernel asks no list where the group's bits, which are then its mask, are all off (acl_permission_check).
    if acl is None or not mode & stat.S_IRWXG:
        bits = mode >> 3 if found.st_gid in ours else mode
        return bits & wanted == wanted
    if user.uid in acl.users:
        return acl.users[user.uid] & acl.mask & wanted == wanted
    grants = [bits for gid, bits in ((found.st_gid, acl.group), *acl.groups.items()) if gid in ours]
    if grants:
        return any(bits & acl.mask & wanted == wanted for bits in grants)
    return mode & wanted == wanted


def _asked(path: str) -> Answer:
    if os.access(path, os.W_OK | os.X_OK):
        return Answer(may=True, why="the kernel says so (access)")
    try:
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return Answer(may=False, why="its file system is read-only")
        return Answer(may=False, why=_told(path, os.stat(path), None))
    except OSError:
        return Answer(may=False, why="the kernel says so (access)")


def _may(path: str, user: User, wanted: int, filesystem: str, root: str) -> Answer:
    seen = path if root == "/" else f"{root}{path}"
    try:
        found = os.stat(seen, follow_symlinks=root == "/")
        acl = _read_acl(seen)
    except OSError as error:
        why = f"{path} cannot be looked at: {error.strerror or error}"
        return Answer(Missing(reason=why), why)
    if stat.S_ISLNK(found.st_mode):
        why = f"{path} is a link in another mount namespace, which is not followed"
        return Answer(Missing(reason=why), why)
    told = _told(path, found, acl)
    if granted(found, user, acl, wanted):
        return Answer(may=True, why=told)
    unsure = _unsure(found, user, filesystem)
    if unsure:
        return Answer(Missing(reason=f"{told}; {unsure}"), f"{told}; {unsure}")
    return Answer(may=user.overrides_modes is True, why=told)


def _told(path: str, found: os.stat_result, acl: Acl | None) -> str:
    mode = f"mode {stat.S_IMODE(found.st_mode):04o}{' and an ACL' if acl else ''}"
    return f"{path} has owner {found.st_uid}, group {found.st_gid}, {mode}"


def _unsure(found: os.stat_result, user: User, filesystem: str) -> str:
    """Why a refusal by mode bits is not the last word; "" where it is."""
    if filesystem.startswith("nfs") and user.uid == 0:
        return "whether the server squashes root is not known"
    if isinstance(user.overrides_modes, Missing):
        return user.overrides_modes.reason
    if found.st_uid == _OVERFLOW and user.uid != _OVERFLOW and _is_mapped():
        return "its owner is not known in this user namespace"
    return ""


def _is_decided_elsewhere(filesystem: str) -> bool:
    return filesystem in _DECIDED_ELSEWHERE or filesystem.startswith("fuse.")


def _is_mapped() -> bool:
    """Whether this is a user namespace of its own."""
    try:
        with open("/proc/self/uid_map", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - no Path is made
            return file.read().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def _read_acl(path: str) -> Acl | None:
    try:
        return parse_acl(os.getxattr(path, _ACL))
    except OSError:  # none there, or a file system without
        return None


def _above(path: str) -> list[str]:
    """The folders above it, from the root on."""
    parts = [part for part in path.split("/") if part]
    return ["/" + "/".join(parts[:number]) for number in range(len(parts))]
