"""What lies in FlashInfer's caches: modules as they were found and judged. `fi-doctor cache --json` writes these."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from fi_doctor.model.base import Closed, Data, Missing
from fi_doctor.model.binaries import Binary

CACHE_SCHEMA = "fi-doctor.cache/1.0"
# Of the folder that FlashInfer keeps for its version and architectures: that of the modules, in it that of the locks.
OPS, LOCKS = "cached_ops", "tmp"


def stamp_of(states: Iterable[tuple[str, os.stat_result]]) -> str:
    """One word for the names, sizes, inodes and times of files: another one once any of them is another file."""
    words = (f"{name}\0{one.st_ino} {one.st_size} {one.st_mtime_ns} {one.st_ctime_ns}\n" for name, one in states)
    return hashlib.sha256("".join(sorted(words)).encode("utf-8", "surrogateescape")).hexdigest()


class CacheState(Closed):
    """How a module in the cache stands to the installed FlashInfer."""

    POISONED = "poisoned"  # it would be taken, and cannot be loaded or run
    STALE = "stale"  # built otherwise than would be done today
    LOCKED = "locked"  # a process builds it, or holds its lock
    UNFINISHED = "unfinished"  # no library yet; what is compiled goes on from there
    PLANNED = "planned"  # nothing but a build file: it was asked for and not compiled
    VALID = "valid"
    UNREAD = "unread"  # it cannot be looked at
    UNUSED = "unused"  # of another version, or of other architectures than those of today

    @property
    def is_bad(self) -> bool:
        """Whether it is better removed."""
        return self in (CacheState.POISONED, CacheState.STALE)


class CachedModule(Data, frozen=True):
    """One folder below cached_ops, as it was read."""

    name: str
    path: str
    version: str  # FlashInfer's, as the folder is called
    architectures: tuple[str, ...]  # "90a", as the folder is called
    library: Binary | None  # its shared object; None where there is none, or none that can be loaded
    lost: str  # why it cannot be loaded; "" where it can, or there is none
    damaged: tuple[str, ...]  # objects that are empty, cut off or for another processor
    objects: int  # that are whole
    sources: int  # that build.ninja compiles, each to an object
    head: str  # the first lines of build.ninja: toolkit and flags; "" without one
    gone: tuple[str, ...]  # sources, and headers that objects were compiled from, that are not there
    newer: tuple[str, ...]  # sources, and the nvcc, younger than the library; headers younger than their object
    holder: int  # the process that holds its lock, 0 without one
    bytes: int
    files: int
    modified: float  # seconds since 1970, of the youngest file
    inode: int
    device: int
    stamp: str  # stamp_of() of what is directly in it
    unread: str = ""  # why it, or its library, cannot be looked at; "" where it can


class CacheEntry(Data, frozen=True):
    """The same, judged."""

    module: CachedModule
    state: CacheState
    why: str
    cuda_home: str  # with which it was built; "" where build.ninja does not say
    flags: tuple[str, ...]  # those that name architectures
    compiles: int = 0  # objects, at its next use (of a poisoned one once it is removed)
    seconds: float = 0.0  # that they take, estimated, with a job for each CPU


class OtherCache(Data, frozen=True):
    """A folder in which other things are kept that a start would make again."""

    name: str  # "cubins", "triton"
    path: str
    bytes: int
    files: int
    empty: int  # files of no bytes
    modified: float | Missing
    owner: int | Missing  # uid
    unread: str = ""  # why some of it cannot be looked at; "" where all was counted
    damaged: dict[str, str] = {}  # cubin that is not whole -> how: "4096 bytes of at least 18016"


class Caches(Data, frozen=True):
    """All of them. Fields are only added within a major version of the schema."""

    schema: str
    base: str  # FlashInfer's folder
    version: str | Missing  # of the installed FlashInfer
    architectures: tuple[str, ...] | Missing  # for which it builds today
    entries: tuple[CacheEntry, ...]  # by path
    others: tuple[OtherCache, ...]
    removed: tuple[str, ...] = ()  # paths of entries, with --prune
    kept: dict[str, str] = {}  # path of an entry that was to be removed -> why it was not
    command: str = ""  # that removes what is bad; "" where nothing is
    unread: dict[str, str] = {}  # folder above modules that cannot be looked at -> why
    next_start: str = ""  # the command that says what a next start compiles
    # Exit code: 0 nothing is bad, or all that was is removed; 1 something is; 3 it is not known where the cache is, or
    # some of it cannot be looked at and nothing is bad in the rest.
    code: int = 0
