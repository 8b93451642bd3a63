"""Removes modules from FlashInfer's cache: only a folder that is still the one that was looked at, where it was."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from fi_doctor.model import CachedModule, stamp_of
from fi_doctor.model.caches import LOCKS, OPS

_OTHER_S = 10.0
_ALL = "flashinfer_jit"  # whose lock build_jit_specs holds while it builds many modules
_ENDS = (".cache", "flashinfer")  # of every cache folder's path
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(module: CachedModule, base: str) -> str:
    """Remove the folder of a module below the cache folder `base`; why not, or "", also where it is gone by now.

    Every folder on the way is opened without following links, and what is removed is removed through the folder that
    was looked at, so that nobody who may write into a shared cache leads the removal elsewhere. The locks of the module
    and of builds of many modules are held meanwhile. Source: JitSpec.lock_path, build_jit_specs in jit/core.py.
    """
    path = Path(module.path)
    parts = path.relative_to(base).parts if path.is_relative_to(base) else ()
    if Path(base).parts[-2:] != _ENDS or len(parts) != 4 or parts[2] != OPS or parts[3] in (os.pardir, LOCKS):
        return f"it is no module below {base}"
    with contextlib.ExitStack() as stack:
        try:
            place = _opened(stack, base, None)
            for part in parts[:3]:
                place = _opened(stack, part, place)
            if not _alone(place):
                return "another process removes modules there"
            if not all(_locked(stack, place, name) for name in (_ALL, parts[3])):
                return "a process builds it"
            return _remove(stack, place, parts[3], module)
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError) and not os.path.lexists(path)
            return "" if is_gone else f"{error.strerror or error}"


def _remove(stack: contextlib.ExitStack, place: int, name: str, module: CachedModule) -> str:
    if stat.S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
        return "it is not the folder that was looked at"
    folder = _opened(stack, name, place)
    state = os.fstat(folder)
    if (state.st_ino, state.st_dev) != (module.inode, module.device):
        return "it is not the folder that was looked at"
    if state.st_dev != os.fstat(place).st_dev:
        return "another file system is mounted there"
    if stamp_of(_states(folder)) != module.stamp:
        return "it has changed since it was looked at"
    if user := _loaded_by({(file, one.st_ino) for file, one in _states(folder)}):
        return f"process {user} has it loaded"
    _empty(folder, state.st_dev)
    os.rmdir(name, dir_fd=place)  # fails where it is another one by now and not empty
    return ""


def _loaded_by(files: set[tuple[str, int]]) -> int:
    """A process that has one of these files (name, inode) mapped, of those whose maps we may read; 0 for none."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            for line in maps.read_bytes().splitlines():
                fields = line.split(None, 5)  # proc(5): address, permissions, offset, device, inode, path
                if len(fields) == 6 and (os.path.basename(os.fsdecode(fields[5])), int(fields[4])) in files:  # noqa: PTH119
                    return int(maps.parent.name)
    return 0


def _empty(folder: int, device: int) -> None:
    """Remove all that is in an open folder; OSError where another file system is mounted in it."""
    with os.scandir(folder) as listing:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    for name, is_folder in entries:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        with contextlib.ExitStack() as stack:
            below = _opened(stack, name, folder)
            if os.fstat(below).st_dev != device:
                raise OSError(f"another file system is mounted at {name}")
            _empty(below, device)
        os.rmdir(name, dir_fd=folder)


def _states(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as listing:
        for entry in listing:
            yield entry.name, entry.stat(follow_symlinks=False)


def _opened(stack: contextlib.ExitStack, name: str, place: int | None) -> int:
    fd = os.open(name, _FOLDER, dir_fd=place)
    stack.callback(os.close, fd)
    return fd


def _alone(place: int) -> bool:
    """Whether no other removal works in this folder; each takes a lock of the folder itself, and none for long."""
    until = time.monotonic() + _OTHER_S
    while not _is_ours(place):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _is_ours(place: int) -> bool:
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # NFS locks no folders; then the stamp alone says whether another removal was here
        return True
    return True


def _locked(stack: contextlib.ExitStack, place: int, name: str) -> bool:
    """Whether nobody holds this lock; then it is ours until the end, as FlashInfer's filelock would take it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(LOCKS, dir_fd=place)
    folder = _opened(stack, LOCKS, place)
    fd = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
    stack.callback(os.close, fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
