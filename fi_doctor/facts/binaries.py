"""Shared objects with GPU code: vLLM's, torch's, FlashInfer's, those of its JIT's cache and those that are named.

What was read of a file is kept in fi-doctor's cache, and taken while its path, size, times and inode are as they were.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fi_doctor.facts.elf import Unreadable, opened
from fi_doctor.facts.fatbin import read_code
from fi_doctor.facts.files import matching
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.remembered import Found, keep, memory_folder, quick_key, recall
from fi_doctor.facts.torch_symbols import TORCH, TVM_FFI, LibrarySymbols
from fi_doctor.model import Binaries, Binary, Missing

# ruff: noqa: PTH112, PTH116, PTH118 - hundreds of files, of which mostly the names are wanted

NAMED = "--binary"
CACHED, SHIPPED = "flashinfer cache", "flashinfer-jit-cache"
MODULES = (CACHED, SHIPPED)  # FlashInfer's, which tvm_ffi loads
_ENDING = ".so"
_MOST_FILES = 4096  # flashinfer-jit-cache has some five hundred
_MOST_LISTED = 65536  # entries of a folder that somebody names
_DEEPEST = 8
_MEMORY = "binaries.json"
_FORMAT = "3"  # another where what is read of the same file changes
_Kept = dict[str, tuple[str, Binary, str]]  # path -> key, what was read, why not all


class Reader:
    """Reads shared objects, each once; `read_packages` first, then `finish`.

    named: files and folders that somebody names. folder: where the memory is kept.
    """

    def __init__(self, named: tuple[str, ...] = (), folder: Path | None = None) -> None:
        self._named = named
        self._memory = (memory_folder() if folder is None else folder) / _MEMORY
        self._known = recall(self._memory, _FORMAT, _Kept) or {}
        self._seen: _Kept = {}
        self._files: dict[str, Binary] = {}
        self._unread: dict[str, str] = {}
        self._asked: set[str] = set()
        self._torch: LibrarySymbols | None = None
        self._tvm_ffi: LibrarySymbols | None = None
        self._torch_key = self._tvm_ffi_key = ""

    def read_packages(self, survey: Survey) -> Reader:
        """Read those of the installed packages, and what is named."""
        torch = _root(survey, "torch")
        self._torch = LibrarySymbols(torch / "lib", TORCH) if torch else None
        self._torch_key = self._torch.key() if self._torch else ""
        tvm_ffi = _root(survey, "tvm_ffi")
        self._tvm_ffi = LibrarySymbols(tvm_ffi / "lib", TVM_FFI) if tvm_ffi else None
        self._tvm_ffi_key = self._tvm_ffi.key() if self._tvm_ffi else ""
        for owner, path in _of_packages(survey):
            self._read(path, owner)
        for place in self._named:
            self._read_named(os.path.abspath(os.path.expanduser(place)))  # noqa: PTH100, PTH111
        return self

    def finish(self, cache_dir: str | Missing) -> Binaries:
        """Everything, with the modules in FlashInfer's cache folder; what was read is kept for the next time."""
        if not isinstance(cache_dir, Missing):
            for path in _below(os.path.join(cache_dir, "cached_ops"), 2):
                self._read(path, CACHED)
        for symbols in (self._torch, self._tvm_ffi):
            if symbols is not None:
                symbols.close()
        if self._seen != self._known:
            keep(self._memory, msgspec.json.encode((_FORMAT, self._seen)))
        return Binaries(
            files=tuple(self._files[path] for path in sorted(self._files)),
            unread=dict(sorted(self._unread.items())),
            named=tuple(sorted(self._asked)),
        )

    def _read_named(self, place: str) -> None:
        if not os.path.isdir(place):
            self._read(place, NAMED)
            return
        found = list(_below(place, _DEEPEST, whole=True))
        for path in found:
            self._read(path, NAMED)
        if not found:
            self._unread[place] = "there is no shared object in this folder"

    def _read(self, path: str, owner: str) -> None:
        if owner == NAMED:
            self._asked.add(path)
        if path in self._files or path in self._unread:
            return
        if len(self._files) + len(self._unread) >= _MOST_FILES:
            if owner == NAMED:
                self._unread[path] = f"there are more than {_MOST_FILES} files to read before it"
            return
        try:
            binary, problem = self._recalled(path, owner)
        except OSError as error:
            self._unread[path] = error.strerror or str(error)
        except Unreadable as error:
            self._unread[path] = str(error)
        else:
            self._files[path] = binary
            if problem:
                self._unread[path] = problem

    def _recalled(self, path: str, owner: str) -> tuple[Binary, str]:
        state = quick_key([Found(path, path, os.stat(path))])
        is_module = owner in MODULES
        key = state and f"{state} {owner} {self._tvm_ffi_key if is_module else self._torch_key}"
        kept = self._known.get(path)
        if kept is None or not key or kept[0] != key:
            torch = None if owner == "torch" or is_module else self._torch
            kept = (key, *read_binary(path, owner, torch, tvm_ffi=self._tvm_ffi if is_module else None))
        if key and path.isprintable():  # its name can be written as JSON
            self._seen[path] = kept
        return kept[1], kept[2]


def read_binary(
    path: str, owner: str, torch: LibrarySymbols | None = None, *, tvm_ffi: LibrarySymbols | None = None
) -> tuple[Binary, str]:
    """One shared object, and why its GPU code could not be read to the end. Errors: Unreadable, OSError.

    torch, tvm_ffi: what it is compared with; of FlashInfer's modules none links torch.
    """
    with opened(path) as elf:
        code = read_code(elf)
        needed = elf.needed()
        found = Binary(path=path, owner=owner, units=code.units, ptx=code.ptx, needed=needed)
        if torch is not None:
            links = any(name.startswith(("libtorch", "libc10")) for name in needed)
            unresolved = torch.unresolved(elf) if links else Missing(reason="it links no library of torch")
            found = msgspec.structs.replace(found, unresolved=unresolved)
        if tvm_ffi is not None:
            found = msgspec.structs.replace(found, unresolved=tvm_ffi.unresolved(elf))
        return found, code.problem


def _of_packages(survey: Survey) -> Iterator[tuple[str, str]]:
    """Owner and path of what the packages bring, where each of them keeps it."""
    if vllm := _root(survey, "vllm"):
        yield from (("vllm", path) for path in _below(str(vllm), 1))
        yield from (("vllm", path) for path in _below(str(vllm / "third_party"), 2))
    if torch := _root(survey, "torch"):
        yield from (("torch", path) for path in _below(str(torch / "lib"), 0))
    for entry in survey.sys_path:
        for folder in matching(entry, "flashinfer_jit_cache*/jit_cache") if entry else ():
            yield from ((SHIPPED, path) for path in _below(str(folder), 2))


def _root(survey: Survey, module: str) -> Path | None:
    origin = survey.modules.get(module)
    return Path(origin).parent if isinstance(origin, str) and origin else None


def _below(folder: str, deepest: int, *, whole: bool = False) -> Iterator[str]:
    """Files named as shared objects, at most so many folders below one; links to folders are not followed.

    whole: also libx.so.12, and folders with a dot in their names, such as numpy.libs.
    """
    waiting, listed = [(folder, 0)], 0
    while waiting:
        place, depth = waiting.pop()
        try:
            with os.scandir(place) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            continue
        listed += len(entries)
        if listed > _MOST_LISTED:
            return
        for entry in entries:
            if entry.name.endswith(_ENDING) or (whole and f"{_ENDING}." in entry.name):
                yield entry.path
            elif depth < deepest and (whole or "." not in entry.name) and _is_folder(entry):
                waiting.append((entry.path, depth + 1))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
