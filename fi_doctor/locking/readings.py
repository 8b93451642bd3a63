"""What is read of installed packages: from the user's cache or from what is shipped of their releases, where it holds.

The former holds while no file that it was read from may have changed, the latter while they are as they were installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fi_doctor.facts import libraries, released, sources
from fi_doctor.facts.files import may_be_file
from fi_doctor.facts.loader import Elf, read_elf
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.remembered import Found, keep, quick_key, recall, remembered, scan
from fi_doctor.model import Calls, Library, Missing, Named, Vllm

_VLLM = "vllm.json"
_CALLS = "calls.json"
_NAMED = "named.json"
_ELVES = "elves.json"
_RUNNER = ".cuh"  # in names of what is read beside Python
_OF_ELVES = "1"  # another where read_elf says something else of the same file


class _Keys(NamedTuple):
    """Words for the files of a package: as they are here, and as a release has them. "" where nothing may be kept."""

    here: str = ""
    released: str = ""


class Readings:
    """The readers of one examination, with a folder for what they remember; each tree of files is looked at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: dict[Path, _Keys] = {}
        self._locks = {name: threading.Lock() for name in ("vllm", "flashinfer")}

    def vllm(self, survey: Survey) -> Vllm | Missing:
        """The facts of the installed vLLM."""
        root = _root(survey, "vllm")
        if isinstance(root, Missing):
            return sources.read_vllm(survey)
        keys = self._of_vllm(root)

        def read() -> Vllm | Missing:
            shipped = released.recall(released.label(root), keys.released, Vllm)
            return replace(shipped, root=str(root)) if shipped else sources.read_vllm(survey)

        return remembered(
            self._folder / _VLLM,
            keys.here and f"{keys.here} {root}",
            Vllm,
            read,
            is_whole=lambda found: not found.unreadable,
        )

    def calls(self, survey: Survey) -> Calls | Missing:
        """How that vLLM calls the FlashInfer beside it."""
        caller, callee = _root(survey, "vllm"), _root(survey, "flashinfer")
        if isinstance(caller, Missing) or isinstance(callee, Missing):
            return sources.read_calls(survey)
        here, shipped = map(_joined, zip(self._of_vllm(caller), self._of_flashinfer(callee), strict=True))
        name = f"{released.label(caller)}-with-{released.label(callee)}"
        return remembered(
            self._folder / _CALLS,
            here and f"{here} {caller} {callee}",
            Calls,
            lambda: released.recall(name, shipped, Calls) or sources.read_calls(survey),
            is_whole=lambda found: not found.unread,  # what took too long may take less the next time
        )

    def named(self, root: Path, version: str, symbols: tuple[str, ...]) -> Named:
        """What FlashInfer's source says of names."""
        keys = _Keys()
        with contextlib.suppress(OSError):
            named = {name.partition(":")[0] for name in symbols if _RUNNER in name}
            runners = [name for name in sorted(named) if may_be_file(root / name)]
            files = [Found(name, str(root / name), (root / name).stat()) for name in runners]
            of_runners = quick_key(files), released.state(root, files)
            keys = _Keys(*map(_joined, zip(self._of_flashinfer(root), of_runners, strict=True)))
        asked = hashlib.sha256("\0".join((version, *symbols)).encode("utf-8", "surrogateescape")).hexdigest()
        shipped = keys.released and f"{keys.released} {asked}"
        return remembered(
            self._folder / _NAMED,
            keys.here and f"{keys.here} {asked} {root}",
            Named,
            lambda: released.recall(released.label(root), shipped, Named) or sources.read_named(root, version, symbols),
        )

    def libraries(self, environ: Mapping[str, str], survey: Survey) -> dict[str, Library | Missing]:
        """The CUDA libraries that a process would load; where they are looked for is asked each time."""
        path = self._folder / _ELVES
        known = recall(path, _OF_ELVES, dict[str, tuple[str, Elf | None]]) or {}
        seen: dict[str, tuple[str, Elf | None]] = {}

        def elf_of(file: str) -> Elf | None:
            key = ""
            with contextlib.suppress(OSError):
                key = quick_key([Found(file, file, os.stat(file))])  # noqa: PTH116 - as the loader names it
            kept = seen.get(file) or known.get(file, ("", None))
            elf = kept[1] if key and kept[0] == key else read_elf(file)
            if key:
                seen[file] = (key, elf)
            return elf

        found = libraries.read_libraries(environ, survey, elf_of)
        if seen != known:
            keep(path, msgspec.json.encode((_OF_ELVES, seen)))
        return found

    def _of_vllm(self, root: Path) -> _Keys:
        """Of all its Python files and programs."""
        with self._locks["vllm"]:
            return self._key(root, (".py", "vllm-rs"))

    def _of_flashinfer(self, root: Path) -> _Keys:
        with self._locks["flashinfer"]:
            return self._key(root, (".py",), without="data")

    def _key(self, root: Path, endings: tuple[str, ...], *, without: str = "") -> _Keys:
        if root not in self._keys:
            self._keys[root] = _Keys()
            with contextlib.suppress(OSError):
                files = scan(root, endings, without=without)
                both = quick_key(files), released.state(root, files)
                self._keys[root] = _Keys(*(word and f"{released.readers()} {word}" for word in both))
        return self._keys[root]


def _joined(words: tuple[str, ...]) -> str:
    return " ".join(words) if all(words) else ""


def _root(survey: Survey, name: str) -> Path | Missing:
    origin = survey.modules.get(name, Missing(reason=f"{name} was not looked for"))
    return origin if isinstance(origin, Missing) else Path(origin).parent
