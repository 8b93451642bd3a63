"""What is stale in a cache that is not to be written to, where FlashInfer wrote its files elsewhere instead.

FlashInfer cannot say what it would build without writing ninja files and generated sources. So it works in a folder
with the same layout, and what it wrote there is read as if it stood in the cache: the names of files are changed back,
but for sources that the cache does not hold as they are now, which makes ninja see that they changed.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from fi_doctor.inside.modules import Module, look_at_all

_BUILD = re.compile(r"^build (\S+):", re.MULTILINE)


def look_at(modules: Iterable[Module], cache: Path) -> None:
    """Count what is stale in `cache` of the modules that are not settled; nothing is written there.

    cache: FlashInfer's folder for its version and architectures. The other one ends in the same four names.
    """
    found = [one for one in modules if not one.state]
    for module in found:
        place = _root(Path(module.ninja_file), cache)
        if place is None:
            module.settle("left", f"it is built outside the cache, by {module.ninja_file}")
            continue
        there = cache / Path(module.workdir).relative_to(place)
        text = as_in(Path(module.ninja_file).read_text(encoding="utf-8"), place, cache)
        outputs = (there / output.replace("$name", module.name) for output in _BUILD.findall(text))
        # Ninja makes the folders of what it would build even in a dry run. Where one is not there, all is stale.
        if there.is_dir() and all(output.parent.is_dir() for output in outputs):
            Path(module.ninja_file).write_text(text, encoding="utf-8")
            module.workdir = str(there)
            module.moved = (str(place), str(cache))
    look_at_all(found)


def as_in(text: str, place: Path, cache: Path) -> str:
    """A ninja file with names below `place` as names below `cache`, where the same file is there or no file is here."""

    def name(match: re.Match[str]) -> str:
        here = Path(match[0])
        there = cache / here.relative_to(place)
        is_here = os.path.isfile(here)  # noqa: PTH113 - Path.is_file raises where a name is too long
        return match[0] if is_here and not _is_same(here, there) else str(there)

    return re.sub(re.escape(str(place)) + r"(?=/)[^\s:$'\"]*", name, text)


def _root(path: Path, cache: Path) -> Path | None:
    """The folder above that has the last four names of the cache."""
    return next((one for one in path.parents if one.parts[-4:] == cache.parts[-4:]), None)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except OSError:
        return False
