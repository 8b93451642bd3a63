"""The objects of a module that FlashInfer compiles: where, how many are done, and whether it was finished before."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fi_doctor.model import FlashInfer, Missing

# ruff: noqa: PTH112, PTH113 - Path.is_dir and Path.is_file raise where permissions deny the look

_MODULES = "cached_ops"  # FLASHINFER_JIT_DIR in flashinfer/jit/env.py
_OBJECT = re.compile(r"^build (\S+\.o):", re.MULTILINE)


class Module:
    """One JIT module in the cache folder that a child will use.

    Source: flashinfer/jit/cpp_ext.py writes build.ninja, with a line "build <object>: ..." for each object.
    """

    def __init__(self, name: str, cache_dir: Path | None, *, prebuilt: bool) -> None:
        self._name = name
        self._cache_dir = cache_dir if name else None
        self.is_prebuilt = prebuilt and bool(name)  # a package brings it
        self._before = self._libraries()
        self._objects_before = self._objects()

    def progress(self) -> tuple[int, int] | None:
        """Objects compiled since the start, and all of them; None when nothing is being compiled."""
        total = sum(len(_OBJECT.findall(_text(folder / "build.ninja"))) for folder in self._folders())
        if total == 0:
            return None
        done = {path for path, mtime in self._objects().items() if self._objects_before.get(path) != mtime}
        return (min(len(done), total), total) if done else None if self._before else (0, total)

    def was_finished(self) -> bool:
        """Whether the library was there and nothing was compiled since."""
        if self.is_prebuilt:
            return True
        return bool(self._before) and self._before == self._libraries()

    def _folders(self) -> list[Path]:
        """The module's own folder, or all whose names begin with it (a name may go on with dtypes and head sizes)."""
        if self._cache_dir is None:
            return []
        ops = self._cache_dir / _MODULES
        exact = ops / self._name
        return (
            [exact]
            if os.path.isdir(exact)
            else sorted(path for path in ops.glob(f"{self._name}*") if os.path.isdir(path))
        )

    def _libraries(self) -> dict[Path, int]:
        return {path: _mtime(path) for folder in self._folders() for path in folder.glob("*.so")}

    def _objects(self) -> dict[Path, int]:
        return {path: _mtime(path) for folder in self._folders() for path in folder.rglob("*.o")}


def module_of(name: str, flashinfer: FlashInfer | Missing, base: Path | None) -> Module:
    """The module in the cache of the installed FlashInfer, or in the same place under another base folder."""
    if isinstance(flashinfer, Missing):
        return Module(name, None, prebuilt=False)
    return Module(name, _cache_dir(flashinfer, base), prebuilt=name in flashinfer.jit_cache_modules)


def modules_folder(flashinfer: FlashInfer | Missing) -> Path | None:
    """Where the installed FlashInfer keeps the modules that it compiled, each in a folder of its own."""
    cache_dir = None if isinstance(flashinfer, Missing) else _cache_dir(flashinfer, None)
    return cache_dir / _MODULES if cache_dir else None


def build_lock(name: str, flashinfer: FlashInfer | Missing, base: Path | None) -> Path | None:
    """The folder to hold while the module is built; None where no build disturbs another, or nothing is built.

    Where ninja keeps one log for all modules it lies in that folder, so builds have to go one at a time.
    """
    if isinstance(flashinfer, Missing) or not shares_log(flashinfer) or name in flashinfer.jit_cache_modules:
        return None
    cache_dir = _cache_dir(flashinfer, base)
    return cache_dir / _MODULES if cache_dir else None


def shares_log(flashinfer: FlashInfer | Missing) -> bool:
    """Whether ninja keeps one log for all modules, so that builds disturb one another."""
    return not isinstance(flashinfer, Missing) and flashinfer.shared_ninja_log


def _cache_dir(flashinfer: FlashInfer, base: Path | None) -> Path | None:
    if isinstance(flashinfer.cache_dir, Missing):
        return None
    # base/.cache/flashinfer/<version>/<architectures>: the last four are the same wherever the base is.
    folder = Path(flashinfer.cache_dir)
    return folder if base is None else base.joinpath(*folder.parts[-4:])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if os.path.isfile(path) else ""
    except OSError:
        return ""


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
