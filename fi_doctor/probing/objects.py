"""The objects of a module that FlashInfer compiles: how many are done, and whether it was finished before."""

from __future__ import annotations

import re
from pathlib import Path

from fi_doctor.model import FlashInfer, Missing

_OBJECT = re.compile(r"^build (\S+\.o):", re.MULTILINE)


class Module:
    """One JIT module in the cache folder that a child will use.

    Source: flashinfer/jit/cpp_ext.py writes build.ninja, with a line "build <object>: ..." for each object.
    """

    def __init__(self, name: str, cache_dir: Path | None, *, prebuilt: bool) -> None:
        self._name = name
        self._cache_dir = cache_dir if name else None
        self._prebuilt = prebuilt and bool(name)
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
        if self._prebuilt:
            return True
        return bool(self._before) and self._before == self._libraries()

    def _folders(self) -> list[Path]:
        """The module's own folder, or all whose names begin with it (a name may go on with dtypes and head sizes)."""
        if self._cache_dir is None:
            return []
        ops = self._cache_dir / "cached_ops"
        exact = ops / self._name
        return [exact] if exact.is_dir() else sorted(path for path in ops.glob(f"{self._name}*") if path.is_dir())

    def _libraries(self) -> dict[Path, int]:
        return {path: _mtime(path) for folder in self._folders() for path in folder.glob("*.so")}

    def _objects(self) -> dict[Path, int]:
        return {path: _mtime(path) for folder in self._folders() for path in folder.rglob("*.o")}


def module_of(name: str, flashinfer: FlashInfer | Missing, base: Path | None) -> Module:
    """The module in the cache of the installed FlashInfer, or in the same place under another base folder."""
    if isinstance(flashinfer, Missing):
        return Module(name, None, prebuilt=False)
    cache_dir = None if isinstance(flashinfer.cache_dir, Missing) else Path(flashinfer.cache_dir)
    if cache_dir is not None and base is not None:
        # base/.cache/flashinfer/<version>/<architectures>: the last four are the same wherever the base is.
        cache_dir = base.joinpath(*cache_dir.parts[-4:])
    return Module(name, cache_dir, prebuilt=name in flashinfer.jit_cache_modules)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
