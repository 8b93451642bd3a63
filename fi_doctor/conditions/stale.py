"""Modules in FlashInfer's cache that would go on being built with the toolkit of an earlier try."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.relations import Relation
from fi_doctor.model import Facts, Missing

_MOST_NAMED = 8  # files that one line can name and still be read before it is pasted


def stale_modules(facts: Facts) -> Relation:
    """All whose build.ninja names another toolkit than the JIT takes today."""
    package = facts.flashinfer
    return package if isinstance(package, Missing) else tuple(package.stale_modules)


def stale_modules_unbuilt(facts: Facts) -> Relation:
    """Those among them without a library, which the next use therefore builds."""
    package = facts.flashinfer
    if isinstance(package, Missing):
        return package
    built = {*package.cached_modules, *package.jit_cache_modules}
    return tuple(name for name in package.stale_modules if name not in built)


def stale_toolkits(facts: Facts) -> Relation:
    """What their build files say, and what they would say today."""
    package = facts.flashinfer
    return package if isinstance(package, Missing) else tuple(package.stale_modules.values())


def stale_build_files(facts: Facts) -> Relation:
    """Their build.ninja; Missing when they are too many to name."""
    package = facts.flashinfer
    if isinstance(package, Missing):
        return package
    if len(package.stale_modules) > _MOST_NAMED:
        return Missing(reason=f"there are {len(package.stale_modules)} of them")
    folder = cached_ops(facts)
    if isinstance(folder, Missing):
        return folder
    return tuple(f"{folder[0]}/{name}/build.ninja" for name in package.stale_modules)


def cached_ops(facts: Facts) -> Relation:
    """The folder in which FlashInfer keeps a folder for each module (FLASHINFER_JIT_DIR in jit/env.py)."""
    package = facts.flashinfer
    folder = package if isinstance(package, Missing) else package.cache_dir
    return folder if isinstance(folder, Missing) else (str(PurePosixPath(folder) / "cached_ops"),)


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "cached_ops": (Kind.TEXT, cached_ops),
    "stale_modules": (Kind.TEXT, stale_modules),
    "stale_modules_unbuilt": (Kind.TEXT, stale_modules_unbuilt),
    "stale_toolkits": (Kind.TEXT, stale_toolkits),
    "stale_build_files": (Kind.TEXT, stale_build_files),
}
