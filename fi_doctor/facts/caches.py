"""The modules in FlashInfer's cache and the other caches of a server, read and not judged.

Below the base there is a folder for each version, in it one for each set of architectures, in that cached_ops with a
folder for each module: build.ninja, objects, the library. Locks lie in cached_ops/tmp and are those of the kernel: a
file of that name without a holder is no lock.
Source: flashinfer/jit/env.py and jit/core.py, 0.5.2 to 0.7.2.post1.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fi_doctor.facts.binaries import CACHED, read_binary
from fi_doctor.facts.cubins import damaged_cubins
from fi_doctor.facts.elf import Unreadable, opened
from fi_doctor.facts.files import matching, read_head, why_no_folder
from fi_doctor.facts.ninja_deps import Times
from fi_doctor.facts.torch_symbols import LibrarySymbols
from fi_doctor.model import Binary, CachedModule, Missing, OtherCache, stamp_of
from fi_doctor.model.caches import LOCKS, OPS

# ruff: noqa: PTH118 - many files, and names are all that is wanted of most

_MOST = 4096  # modules, and files of one
_MOST_TOLD = 64  # files of one that are younger or gone
_MOST_CUBINS = 100_000
_HEAD_BYTES = 16_384
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)  # nothing can lie there
_ARCHITECTURES = re.compile(r"\d{2,3}[af]?(?:_\d{2,3}[af]?)*")
_SOURCES = re.compile(r"^build [^:]+: \w+ (\S+)", re.MULTILINE)
_NAMED = re.compile(r"^(nvcc|cuda_home) = (.*)$", re.MULTILINE)
_LOCK = re.compile(r"^\d+: (?:FLOCK|POSIX|OFDLCK)\s+\S+\s+WRITE (-?\d+) (\w+):(\w+):(\d+) ", re.MULTILINE)


class _Size(NamedTuple):
    bytes: int
    files: int
    empty: int
    modified: float
    unread: str = ""  # the first folder below that cannot be looked at, and why


class _Beside(NamedTuple):
    """What modules are compared with."""

    holders: Mapping[tuple[int, int], int]
    times: Times
    tvm_ffi: LibrarySymbols | None


def read_modules(
    base: Path, unread: dict[str, str] | None = None, tvm_ffi: LibrarySymbols | None = None
) -> tuple[CachedModule, ...]:
    """Every module below FlashInfer's cache folder, of all versions, by path. Links to folders are not followed.

    unread: takes the folders above modules that cannot be looked at, each with the reason.
    tvm_ffi: what the installed apache-tvm-ffi defines.
    """
    unread = {} if unread is None else unread
    beside = _Beside(_holders(), Times(), tvm_ffi)
    found = []
    for version in _folders(base, unread):
        # Its first character is a number of its version; beside those lie the cubins and what is no folder of modules.
        for architectures in _folders(version, unread if version.name[:1].isdigit() else {}):
            if _ARCHITECTURES.fullmatch(architectures.name):
                ops = architectures / OPS
                modules = (folder for folder in _folders(ops, unread) if folder.name != LOCKS)
                for folder in modules:
                    with contextlib.suppress(FileNotFoundError):  # it is being removed
                        found.append(_read(folder, version.name, architectures.name, beside))
        if len(found) > _MOST:
            break
    return tuple(found)


def read_others(base: Path, environ: Mapping[str, str]) -> tuple[OtherCache, ...]:
    """The folders of cubins and of other compilers that are there, as a process with these variables finds them."""
    home = environ.get("HOME") or "/"
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    places = {
        "cubins": environ.get("FLASHINFER_CUBIN_DIR") or str(base / "cubins"),
        "autotuner": environ.get("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR")
        or os.path.join(environ.get("VLLM_CACHE_ROOT") or os.path.join(cache, "vllm"), "flashinfer_autotune_cache"),
        "DeepGEMM (FlashInfer)": environ.get("TRTLLM_DG_CACHE_DIR") or os.path.join(home, ".tensorrt_llm"),
        "DeepGEMM": environ.get("DG_JIT_CACHE_DIR") or os.path.join(home, ".deep_gemm"),
        "vLLM": environ.get("VLLM_CACHE_ROOT") or os.path.join(cache, "vllm"),
        "Triton": environ.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton", "cache"),
        "TorchInductor": environ.get("TORCHINDUCTOR_CACHE_DIR") or f"/tmp/torchinductor_{environ.get('USER', 'root')}",  # noqa: S108 - where torch puts it
        "CuTe DSL": environ.get("CUTE_DSL_CACHE_DIR") or f"/tmp/{environ.get('USER', 'root')}/cutlass_python_cache",  # noqa: S108 - as above
        "driver (PTX)": environ.get("CUDA_CACHE_PATH") or os.path.join(home, ".nv", "ComputeCache"),
    }
    found = (_other(name, Path(path)) for name, path in places.items())
    return tuple(one for one in found if one is not None)


def _other(name: str, path: Path) -> OtherCache | None:
    """None where there is no such folder; one that may not be looked at is said, with the reason."""
    if (why := why_no_folder(path)).endswith("is not a folder"):
        return None
    size = _size(path)
    try:
        owner: int | Missing = path.stat().st_uid
    except OSError as error:
        owner = Missing(reason=why or f"{path}: {error.strerror or error}")
    damaged = damaged_cubins(str(path), _MOST_CUBINS) if name == "cubins" else {}
    return OtherCache(
        name=name,
        path=str(path),
        bytes=size.bytes,
        files=size.files,
        empty=size.empty,
        modified=size.modified or Missing(reason=why or size.unread or "there is no file in it"),
        owner=owner,
        unread=why or size.unread,
        damaged=dict(list(damaged.items())[:_MOST_TOLD]),
    )


def _read(folder: Path, version: str, architectures: str, beside: _Beside) -> CachedModule:
    library = folder / f"{folder.name}.so"
    stamp, unread = _stamp(folder)
    binary, lost = None, ""
    try:
        binary, lost = _library(str(library), beside.tvm_ffi) if os.path.lexists(library) else (None, "")
    except PermissionError as error:  # whoever serves may be able to
        unread = unread or f"{library.name} cannot be read: {error.strerror}"
    head, sources = _ninja(folder / "build.ninja")
    newer, gone = beside.times.outdated(folder)
    newer = (*(path for path in (*_compilers(head), *sources) if _is_newer(path, library)), *newer)
    gone = (*(source for source in sources if not os.path.exists(source)), *gone)  # noqa: PTH110 - as build.ninja has it
    size = _size(folder)
    state = folder.lstat()
    objects = matching(folder, "*.o")
    damaged = tuple(path.name for path in objects if _is_cut(str(path)))
    return CachedModule(
        name=folder.name,
        path=str(folder),
        version=version,
        architectures=tuple(architectures.split("_")),
        library=binary,
        lost=lost,
        damaged=damaged,
        objects=len(objects) - len(damaged),
        sources=len(sources),
        head=head,
        gone=tuple(dict.fromkeys(gone))[:_MOST_TOLD],
        newer=tuple(dict.fromkeys(newer))[:_MOST_TOLD],
        holder=_holder(folder.parent / LOCKS / f"{folder.name}.lock", beside.holders),
        bytes=size.bytes,
        files=size.files,
        modified=size.modified,
        inode=state.st_ino,
        device=state.st_dev,
        stamp=stamp,
        unread=unread,
    )


def _stamp(folder: Path) -> tuple[str, str]:
    """One word for what is in it; what cannot be looked at has none, and is never removed: why."""
    try:
        with os.scandir(folder) as listing:
            return stamp_of([(entry.name, entry.stat(follow_symlinks=False)) for entry in listing]), ""
    except FileNotFoundError:  # it is being removed
        return "", ""
    except OSError as error:
        return "", f"it cannot be looked at: {error.strerror or error}"


def _library(path: str, tvm_ffi: LibrarySymbols | None) -> tuple[Binary | None, str]:
    """What is in a shared object, or why it cannot be loaded. Errors: PermissionError."""
    try:
        binary, problem = read_binary(path, CACHED, tvm_ffi=tvm_ffi)
    except PermissionError:
        raise
    except OSError as error:
        return None, error.strerror or str(error)
    except Unreadable as error:
        return None, str(error)
    return (None, problem) if problem else (binary, "")


def _is_cut(path: str) -> bool:
    """Whether an object is empty, of another processor or cut off; ninja looks at its time only."""
    try:
        with opened(path) as elf:
            elf.sections()
    except Unreadable:
        return True
    except OSError:  # it cannot be looked at
        return False
    return False


def _ninja(path: Path) -> tuple[str, tuple[str, ...]]:
    """The lines before the first rule, and the sources that are compiled."""
    try:
        text = read_head(path, 1 << 20).decode(errors="replace")
    except OSError:
        return "", ()
    sources = (found[1].replace("$:", ":").replace("$ ", " ") for found in _SOURCES.finditer(text))
    absolute = tuple(
        dict.fromkeys(source for source in sources if source.startswith("/") and not source.endswith(".o"))
    )
    return text[: text.find("\nrule ") if "\nrule " in text else None][:_HEAD_BYTES], absolute


def _compilers(head: str) -> tuple[str, ...]:
    """The nvcc that built it; ninja compiles nothing anew when another one comes to lie there."""
    said = dict(_NAMED.findall(head))
    nvcc = said.get("nvcc", "").replace("${cuda_home}", "$cuda_home").replace("$cuda_home", said.get("cuda_home", ""))
    return (nvcc,) if nvcc.startswith("/") else ()


def _is_newer(source: str, library: Path) -> bool:
    try:
        return Path(source).stat().st_mtime > library.stat().st_mtime
    except OSError:
        return False


def _holders() -> dict[tuple[int, int], int]:
    """(device, inode) -> the process that holds a lock for itself alone. Source: /proc/locks, proc_locks(5)."""
    try:
        text = Path("/proc/locks").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return {}
    return {
        (os.makedev(int(major, 16), int(minor, 16)), int(inode)): int(pid)
        for pid, major, minor, inode in _LOCK.findall(text)
    }


def _holder(path: Path, holders: Mapping[tuple[int, int], int]) -> int:
    try:
        state = path.stat()
    except OSError:
        return 0
    return holders.get((state.st_dev, state.st_ino), 0)


def _folders(path: Path, unread: dict[str, str]) -> Iterator[Path]:
    try:
        with os.scandir(path) as listing:
            names = sorted(entry.name for entry in listing if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        if error.errno not in _NOTHING:
            unread[str(path)] = error.strerror or str(error)
        return
    yield from (path / name for name in names)


def _size(folder: Path) -> _Size:
    """Of all plain files below; what cannot be looked at counts for nothing."""
    total = files = empty = 0
    modified = 0.0
    problems: list[OSError] = []
    for place, _, names in os.walk(folder, onerror=problems.append):
        for name in names:
            try:
                state = os.lstat(os.path.join(place, name))
            except OSError:
                continue
            total, files = total + state.st_blocks * 512, files + 1
            empty += state.st_size == 0 and name.endswith((".cubin", ".so", ".o"))
            modified = max(modified, state.st_mtime)
    bad = next((error for error in problems if not isinstance(error, FileNotFoundError)), None)
    unread = f"{bad.filename} cannot be looked at: {bad.strerror}" if bad else ""
    return _Size(total, files, empty, modified, unread)
