"""Removes modules from FlashInfer's cache: only a folder that is still the one that was looked at, where it was."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from pathlib import Path

from fi_doctor.model import CachedModule

_OPS, _LOCKS = "cached_ops", "tmp"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(module: CachedModule, base: str) -> str:
    """Remove the folder of a module below the cache folder `base`; why not, or "".

    Every folder on the way is opened without following links, so that nobody who may write into a shared cache leads
    the removal out of it, and the module's lock is held meanwhile.
    """
    path = Path(module.path)
    parts = path.relative_to(base).parts if path.is_relative_to(base) else ()
    if len(parts) != 4 or parts[2] != _OPS or parts[3] in (os.pardir, _LOCKS):
        return f"it is no module below {base}"
    with contextlib.ExitStack() as stack:
        try:
            place = _opened(stack, base, None)
            for part in parts[:3]:
                place = _opened(stack, part, place)
            if not _locked(stack, place, parts[3]):
                return "a process builds it"
            return _remove(place, parts[3], module)
        except OSError as error:
            return f"{error.strerror or error}"


def _remove(place: int, name: str, module: CachedModule) -> str:
    state = os.stat(name, dir_fd=place, follow_symlinks=False)
    if not stat.S_ISDIR(state.st_mode) or (state.st_ino, state.st_dev) != (module.inode, module.device):
        return "it is not the folder that was looked at"
    root = f"/proc/self/fd/{place}/{name}"
    if _youngest(root) > module.modified:
        return "it has changed since it was looked at"
    shutil.rmtree(root)  # which follows no links: shutil.rmtree.avoids_symlink_attacks
    return ""


def _opened(stack: contextlib.ExitStack, name: str, place: int | None) -> int:
    fd = os.open(name, _FOLDER, dir_fd=place)
    stack.callback(os.close, fd)
    return fd


def _locked(stack: contextlib.ExitStack, place: int, name: str) -> bool:
    """Whether nobody builds the module; then its lock is ours until the end. Source: JitSpec.lock_path, filelock."""
    try:
        fd = os.open(f"{_LOCKS}/{name}.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    except FileNotFoundError:
        return True  # nobody has ever built it since the lock was removed
    stack.callback(os.close, fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _youngest(folder: str) -> float:
    latest = 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                latest = max(latest, os.lstat(os.path.join(place, name)).st_mtime)  # noqa: PTH118 - as above
    return latest
