"""The dynamic linker's search, replayed on files: which shared objects a process would map, and why those.

The order is that of ld.so(8), _dl_map_object in glibc's elf/dl-load.c: RPATH of the requester and of its loaders (only
where the requester has no RUNPATH), RPATH of the program, LD_LIBRARY_PATH, RUNPATH of the requester, ld.so.cache,
default folders. A name that is already mapped is not searched again. Nothing is loaded or run.
"""

from __future__ import annotations

import os
import platform
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from fi_doctor.facts import asking
from fi_doctor.facts.elf import DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, Unreadable, opened
from fi_doctor.model import Missing

# ruff: noqa: PTH100, PTH113, PTH118, PTH120 - paths are joined as ld.so joins them, and Path would rewrite them

# Every process has these from its own start or loads them from the system; nothing of CUDA hangs on them.
_BASE = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+))\.so\b")
_CACHE_LINE = re.compile(r"^\t(\S+) \(([^)]*)\) => (\S+)$", re.MULTILINE)
_CACHE_KINDS = {"x86_64": "x86-64", "aarch64": "AArch64"}


class Elf(NamedTuple):
    """What the dynamic section of a shared object asks for."""

    soname: str  # "" when it has none
    needed: tuple[str, ...]
    rpath: tuple[str, ...]  # $ORIGIN is not replaced; empty when there is a RUNPATH, which disables it
    runpath: tuple[str, ...]
    has_runpath: bool


ElfOf = Callable[[str], "Elf | None"]


class Mapped(NamedTuple):
    """One shared object in the imagined process."""

    path: str  # as found, symlinks unresolved
    elf: Elf
    how: str  # "RPATH", "LD_LIBRARY_PATH", "RUNPATH", "ld.so.cache", "default folder", "opened by path"
    loader: Mapped | None  # whose NEEDED brought it


class Unresolved(NamedTuple):
    """A name that ld.so would not find, which ends the dlopen that asked for it."""

    name: str
    asked_by: str  # path of the object that needs it, "" for a plain dlopen


def read_elf(path: str) -> Elf | None:
    """The dynamic section of an ELF file that this machine can load; None for every other file."""
    try:
        with opened(path) as elf:
            said = elf.dynamic(DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH)
    except (OSError, Unreadable):
        return None
    words = {tag: [os.fsdecode(word) for word in found] for tag, found in said.items()}
    has_runpath = bool(words[DT_RUNPATH])
    return Elf(
        soname=(words[DT_SONAME] or [""])[0],
        needed=tuple(words[DT_NEEDED]),
        rpath=() if has_runpath else tuple(_split(words[DT_RPATH])),
        runpath=tuple(_split(words[DT_RUNPATH])),
        has_runpath=has_runpath,
    )


def parse_cache(text: str, kind: str) -> dict[str, str]:
    """`ldconfig -p` as name -> path, the first of each name; kind: "x86-64" or "AArch64"."""
    found: dict[str, str] = {}
    for name, flags, path in _CACHE_LINE.findall(text):
        words = {word.strip() for word in flags.split(",")}
        if kind in words and not any(word.startswith("hwcap") for word in words):
            found.setdefault(name, path)
    return found


def read_cache(environ: Mapping[str, str]) -> dict[str, str] | Missing:
    """The entries of /etc/ld.so.cache; empty without an ldconfig (musl) or a cache, Missing when it does not answer."""
    kind = _CACHE_KINDS.get(platform.machine(), platform.machine())
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        said = asking.ask([program], "-p", environ={**environ, "LC_ALL": "C"}, max_output=4 << 20)
        if silence := asking.silence([program], said):
            return Missing(reason=silence)
        if not said.error:
            return parse_cache(said.stdout.decode(errors="replace"), kind)
    return {}


def default_folders() -> tuple[str, ...]:
    """ld.so's own folders: the multiarch ones of Debian, then those of everybody."""
    triple = f"{platform.machine()}-linux-gnu"
    return (f"/lib/{triple}", f"/usr/lib/{triple}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


class Process:
    """An imagined process: open() maps an object and what it needs, find() looks a plain name up.

    elf_of: reads the dynamic section of a file, as read_elf does.
    """

    def __init__(
        self,
        *,
        library_path: str = "",
        cache: Mapping[str, str] | None = None,
        program: str = "",
        defaults: tuple[str, ...] | None = None,
        elf_of: ElfOf = read_elf,
    ) -> None:
        self.mapped: list[Mapped] = []  # in the order of loading
        self.library_path = tuple(folder or "." for folder in re.split("[:;]", library_path)) if library_path else ()
        self._cache = dict(cache or {})
        self._defaults = default_folders() if defaults is None else defaults
        self._elf_of = elf_of
        program_elf = elf_of(os.path.realpath(program)) if program else None
        self._program_rpath = _expand(program_elf.rpath, os.path.realpath(program)) if program_elf else ()
        self._by_name: dict[str, Mapped] = {}
        self._by_file: dict[str, Mapped] = {}

    def open(self, path: str, *, partial: bool = False) -> tuple[Unresolved, ...]:
        """Map the object at this path and all that it needs, breadth first as ld.so does; what is not found.

        ld.so unmaps everything again when one name is not found, and so does this, unless partial.
        """
        kept = (list(self.mapped), dict(self._by_name), dict(self._by_file))
        missing = self._map_all(path)
        if missing and not partial:
            self.mapped, self._by_name, self._by_file = kept
        return missing

    def find(self, name: str, loader: Mapped | None = None) -> Mapped | None:
        """What dlopen(name), or a NEEDED of `loader`, gives: what has that name already, else what the search finds."""
        if name in self._by_name:
            return self._by_name[name]
        if os.sep in name:
            return self._try(name, "opened by path", loader)
        for folder, how in self._folders(loader):
            found = self._try(os.path.join(folder, name), how, loader)
            if found is not None:
                return found
        cached = self._cache.get(name)
        found = self._try(cached, "ld.so.cache", loader) if cached is not None else None
        if found is not None:
            return found
        tries = (self._try(os.path.join(folder, name), "default folder", loader) for folder in self._defaults)
        return next((found for found in tries if found is not None), None)

    def _map_all(self, path: str) -> tuple[Unresolved, ...]:
        root = self._try(path, "opened by path", None)
        if root is None:
            return (Unresolved(path, ""),)
        missing: list[Unresolved] = []
        waiting = deque([root] if self._add(path, root) else [])
        while waiting:
            current = waiting.popleft()
            for name in current.elf.needed:
                if _BASE.match(name):
                    continue
                found = self.find(name, current)
                if found is None:
                    missing.append(Unresolved(name, current.path))
                elif self._add(name, found):
                    waiting.append(found)
        return tuple(missing)

    def _add(self, name: str, found: Mapped) -> bool:
        """Whether the object is new. A second file with a name that is taken is mapped, but never found by it."""
        real = os.path.realpath(found.path)
        known = self._by_file.get(real)
        if known is None:
            self._by_file[real] = found
            self.mapped.append(found)
        for alias in (name, found.elf.soname):
            if alias:
                self._by_name.setdefault(alias, known or found)
        return known is None

    def _folders(self, loader: Mapped | None) -> Iterator[tuple[str, str]]:
        """Folders before ld.so.cache, in order, each with the rule that names it."""
        if loader is None or not loader.elf.has_runpath:
            above = loader
            while above is not None:
                yield from ((folder, "RPATH") for folder in _expand(above.elf.rpath, above.path))
                above = above.loader
            yield from ((folder, "RPATH") for folder in self._program_rpath)
        yield from ((folder, "LD_LIBRARY_PATH") for folder in self.library_path)
        if loader is not None:
            yield from ((folder, "RUNPATH") for folder in _expand(loader.elf.runpath, loader.path))

    def _try(self, path: str, how: str, loader: Mapped | None) -> Mapped | None:
        """The object at this path; None when there is none that this machine can load."""
        if not os.path.isfile(path):
            return None
        known = self._by_file.get(os.path.realpath(path))
        if known is not None:
            return known
        elf = self._elf_of(path)
        return None if elf is None else Mapped(path, elf, how, loader)


def _split(values: list[str]) -> Iterator[str]:
    return (folder for value in values for folder in value.split(":") if folder)


def _expand(folders: tuple[str, ...], path: str) -> tuple[str, ...]:
    """RPATH or RUNPATH with $ORIGIN replaced: the folder of the object as it was found, symlinks unresolved."""
    origin = os.path.dirname(os.path.abspath(path))
    return tuple(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for folder in folders)
