"""Who serves: the user of this process, one that is named, or that of another process."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from fi_doctor.errors import UsageError
from fi_doctor.model import Missing, User
from fi_doctor.model.numbers import whole

_NOBODY = (1 << 32) - 1  # (uid_t) -1, which setuid takes for "as it is"
_DAC_OVERRIDE = 1 << 1  # CAP_DAC_OVERRIDE in include/uapi/linux/capability.h
_TRY = "fi-doctor check --as-user 1000:1000"


def own_user(environ: Mapping[str, str], root: Path = Path("/")) -> User:
    """The user of this process."""
    uid = os.geteuid()
    entry = _entry(uid)
    return User(
        uid=uid,
        gid=os.getegid(),
        groups=tuple(sorted(set(os.getgroups()) - {os.getegid()})),
        name=_name(entry, uid),
        home=_home(environ, entry),
        found_by="this process",
        is_own=True,
        overrides_modes=overrides_modes(_read(root / "proc/self/status")),
    )


def named_user(words: str, environ: Mapping[str, str]) -> User:
    """The user of --as-user NAME|UID[:GROUP|GID]. Errors: UsageError for one that nobody knows.

    As with docker run --user: a user without an entry in /etc/passwd has group 0 and HOME=/ unless more is said, and
    with a group it has no further ones. HOME is taken from the entry.
    """
    who, colon, group = words.partition(":")
    entry = _entry_named(who)
    uid = int(who) if _is_id(who) else entry.pw_uid if entry else None
    if uid is None or (colon and not group):
        raise UsageError(
            f"--as-user: {words!r} names no user of this machine"
            if uid is None
            else f"--as-user: {words!r} has no group",
            why="it takes NAME, UID, NAME:GROUP or UID:GID",
            todo=_TRY,
        )
    gid = _group(group, words) if colon else entry.pw_gid if entry else 0
    groups = () if colon or entry is None else tuple(sorted({*os.getgrouplist(entry.pw_name, gid)} - {gid}))
    is_own = uid == os.geteuid() and gid == os.getegid() and set(groups) <= {*os.getgroups()}
    return User(
        uid=uid,
        gid=gid,
        groups=groups,
        name=_name(entry, uid),
        home=_home(environ if is_own else {}, entry),
        found_by=f"--as-user {words}",
        is_own=is_own,
        overrides_modes=_may_override(uid, is_own=is_own),
    )


def user_of_status(status: str, environ: Mapping[str, str], pid: int) -> User | Missing:
    """The user of a process by the text of its /proc/PID/status: effective ids, groups and capabilities."""
    lines = _lines(status)
    try:
        uid, gid = int(lines["Uid"].split()[1]), int(lines["Gid"].split()[1])
        groups = tuple(sorted({int(word) for word in lines.get("Groups", "").split()} - {gid}))
    except (KeyError, IndexError, ValueError):
        return Missing(reason=f"/proc/{pid}/status names no user")
    entry = _entry(uid)
    mine = uid == os.geteuid() and gid == os.getegid() and set(groups) == {*os.getgroups()} - {gid}
    overrides = overrides_modes(status)
    return User(
        uid=uid,
        gid=gid,
        groups=groups,
        name=_name(entry, uid),
        home=_home(environ, entry),
        found_by=f"--pid {pid}",
        is_own=mine and overrides == overrides_modes(_read(Path("/proc/self/status"))),
        overrides_modes=overrides,
    )


def overrides_modes(status: str) -> bool | Missing:
    """Whether the process of this /proc/PID/status may pass over mode bits."""
    try:
        return bool(int(_lines(status)["CapEff"], 16) & _DAC_OVERRIDE)
    except (KeyError, ValueError):
        return Missing(reason="the process does not tell its capabilities")


def _may_override(uid: int, *, is_own: bool) -> bool | Missing:
    if is_own:
        return overrides_modes(_read(Path("/proc/self/status")))
    if uid != 0:
        return False
    return Missing(reason="whether root keeps CAP_DAC_OVERRIDE is not known of a process that does not run")


def _lines(status: str) -> dict[str, str]:
    parts = (line.partition(":") for line in status.splitlines())
    return {name: value.strip() for name, _, value in parts}


def _is_id(word: str) -> bool:
    number = whole(word)
    return number is not None and number < _NOBODY


def _group(word: str, words: str) -> int:
    if _is_id(word):
        return int(word)
    try:
        return grp.getgrnam(word).gr_gid
    except (KeyError, ValueError) as error:
        raise UsageError(f"--as-user: {words!r}: there is no group {word!r}", todo=_TRY) from error


def _entry(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        return None


def _entry_named(who: str) -> pwd.struct_passwd | None:
    if _is_id(who):
        return _entry(int(who))
    try:
        return pwd.getpwnam(who)
    except (KeyError, ValueError):  # ValueError: a null character
        return None


def _home(environ: Mapping[str, str], entry: pwd.struct_passwd | None) -> str:
    """As Path.home() has it: a variable that is set but empty stands for the root."""
    if "HOME" in environ:
        return environ["HOME"] or "/"
    return entry.pw_dir if entry else "/"


def _name(entry: pwd.struct_passwd | None, uid: int) -> str | Missing:
    return entry.pw_name if entry else Missing(reason=f"user {uid} has no entry in the user database")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
