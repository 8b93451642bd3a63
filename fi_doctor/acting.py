"""As whom children run: as this process does, or as the user of --as-user, for whom root gives up what it has.

The variables of a child say so, since they reach every place that starts one; they hold a word that only this process
knows, which no child is given. Source: credentials(7), capabilities(7), user_namespaces(7).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

VARIABLE = "FI_DOCTOR_AS"
# What it takes to give files away, to end a process of another user, and to become that user.
_NEEDED = {0: "CAP_CHOWN", 5: "CAP_KILL", 6: "CAP_SETGID", 7: "CAP_SETUID"}
_SEARCHED, _OWN = 0o711, 0o700
_INNER = "own"
_MOST_BYTES = 8 << 20  # of an answer
_HELD = "held"


class Account(NamedTuple):
    """Whom a child runs as, with no groups but these."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


_WORDS: dict[str, Account] = {}


def word_for(account: Account) -> str:
    """The value of VARIABLE with which children run as that one."""
    word = os.urandom(16).hex()
    _WORDS[word] = account
    return word


def account_of(environ: Mapping[str, str]) -> Account | None:
    """Whom a child with these variables runs as; None for whom this process is. A word of others means nothing."""
    return _WORDS.get(environ.get(VARIABLE, ""))


def without_word(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables as a child is given them."""
    return {name: value for name, value in environ.items() if name != VARIABLE}


def obstacle(account: Account, proc: Path = Path("/proc/self")) -> str:
    """Why this process cannot start one as that user, in words; "" where nothing is known against it."""
    if os.geteuid() != 0:
        return f"this is user {os.geteuid()}, and only root can become another one"
    try:
        held = int((proc / "status").read_text().partition("CapEff:")[2].split()[0], 16)
        refuses_groups = (proc / "setgroups").read_text().strip() == "deny"
        maps = [_ranges((proc / name).read_text()) for name in ("uid_map", "gid_map")]
    except (OSError, ValueError, IndexError):
        return f"{proc} does not tell what root may do here"
    if lacking := [name for bit, name in _NEEDED.items() if not held >> bit & 1]:
        return f"root has no {' and no '.join(lacking)} here"
    if refuses_groups:
        return "no groups can be set in this user namespace"
    for kind, ids, map_ in (("user", (account.uid,), maps[0]), ("group", (account.gid, *account.groups), maps[1])):
        if strange := [number for number in ids if not any(first <= number < end for first, end in map_)]:
            return f"this user namespace has no {kind} {strange[0]}"
    return ""


def is_led_astray(path: Path) -> bool:
    """Whether a link on the way there belongs to another user than root and this one, who decides where it leads."""
    for one in (path, *path.parents):
        with contextlib.suppress(OSError):
            state = one.lstat()
            if stat.S_ISLNK(state.st_mode) and state.st_uid not in (0, os.geteuid()):
                return True
    return False


@contextlib.contextmanager
def folder(
    prefix: str,
    account: Account | None,
    *,
    place: str | None = None,
    files: Mapping[str, bytes] | None = None,
    folders: tuple[str, ...] = (),
) -> Iterator[tuple[Path, Path]]:
    """A private temporary folder of whom a child runs as, with these files and folders, and a folder of ours around it.

    Nothing may be written there by this process once it is another user's, who may have put a link in its way: what
    it needs is made beforehand. Both are the same where it is nobody else's. They are removed afterwards, which follows
    no links, as are those of commands that were killed. Raises OSError.
    """
    outer = Path(tempfile.mkdtemp(prefix=prefix, dir=place)).absolute()
    inner = outer / _INNER if account else outer
    stack = contextlib.ExitStack()
    try:
        stack.callback(os.close, _hold(outer))
        remove_left(prefix, outer.parent)
        if account:
            outer.chmod(_SEARCHED)
            inner.mkdir(mode=_OWN)
        for name in folders:
            (inner / name).mkdir(mode=_OWN)
        for name, data in (files or {}).items():
            (inner / name).write_bytes(data)
        if account:
            for path in (*map(inner.joinpath, (*folders, *(files or {}))), inner):
                os.chown(path, account.uid, account.gid, follow_symlinks=False)
        yield outer, inner
    finally:
        with contextlib.suppress(OSError):
            (outer / _HELD).unlink()  # while it is locked: nobody else removes what has it no longer
        stack.close()
        shutil.rmtree(outer, ignore_errors=True)


def _hold(folder: Path) -> int:
    """A descriptor that says, as long as this process lives, that its folder is in use."""
    made = folder / "made"
    held = os.open(made, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks: without that name nobody removes it
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made.rename(folder / _HELD)  # locked before anybody sees it by this name
    return held


def remove_left(prefix: str, place: Path) -> None:
    """Remove what commands left that were killed at once, if they were this user's."""
    for path in place.glob(f"{prefix}*/{_HELD}"):
        with contextlib.suppress(OSError):  # in use, another user's, or gone meanwhile
            if path.parent.is_symlink() or path.parent.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(descriptor)


def read_answer(path: Path) -> bytes:
    """What a child wrote there, who may be another user: a plain file, through no link. Errors: OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
            raise OSError(errno.EINVAL, "it is no file, or has another name elsewhere", str(path))
        return file.read(_MOST_BYTES)


def _ranges(text: str) -> list[tuple[int, int]]:
    """The ids that a map of a user namespace has inside, as first and end."""
    lines = [[int(word) for word in line.split()] for line in text.splitlines()]
    return [(first, first + count) for first, _, count in lines]
