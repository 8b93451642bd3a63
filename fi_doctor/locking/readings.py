"""What is read of installed packages, from the user's cache while no file that it was read from may have changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from fi_doctor.facts import calls, flashinfer, libraries, vllm
from fi_doctor.facts.loader import Elf, read_elf
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.remembered import Found, keep, quick_key, recall, remembered, scan
from fi_doctor.facts.runners import ENDING as RUNNER
from fi_doctor.model import Calls, Library, Missing, Named, Vllm

_VLLM = "vllm.json"
_CALLS = "calls.json"
_NAMED = "named.json"
_ELVES = "elves.json"
_OF_ELVES = "1"  # another where read_elf says something else of the same file


class Readings:
    """The readers of one examination, with a folder for what they remember; each tree of files is looked at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: dict[Path, str] = {}
        self._locks = {name: threading.Lock() for name in ("vllm", "flashinfer")}

    def vllm(self, survey: Survey) -> Vllm | Missing:
        """The facts of the installed vLLM."""
        root = _root(survey, "vllm")
        if isinstance(root, Missing):
            return vllm.read_vllm(survey)
        key = self._of_vllm(root)
        return remembered(
            self._folder / _VLLM,
            key and f"{key} {root}",
            Vllm,
            lambda: vllm.read_vllm(survey),
            is_whole=lambda found: not found.unreadable,
        )

    def calls(self, survey: Survey) -> Calls | Missing:
        """How that vLLM calls the FlashInfer beside it."""
        roots = _root(survey, "vllm"), _root(survey, "flashinfer")
        if isinstance(roots[0], Missing) or isinstance(roots[1], Missing):
            return calls.read_calls(survey)
        keys = self._of_vllm(roots[0]), self._of_flashinfer(roots[1])
        key = " ".join((*keys, *map(str, roots))) if all(keys) else ""
        return remembered(
            self._folder / _CALLS,
            key,
            Calls,
            lambda: calls.read_calls(survey),
            is_whole=lambda found: not found.unread,  # what took too long may take less the next time
        )

    def named(self, root: Path, version: str, symbols: tuple[str, ...]) -> Named:
        """What FlashInfer's source says of names."""
        key = ""
        with contextlib.suppress(OSError):
            named = {name.partition(":")[0] for name in symbols if RUNNER in name}
            runners = [name for name in sorted(named) if (root / name).exists()]
            files = [Found(name, str(root / name), (root / name).stat()) for name in runners]
            source = self._of_flashinfer(root)
            key = source and quick_key(files) and f"{source} {quick_key(files)}"
        asked = hashlib.sha256("\0".join((str(root), version, *symbols)).encode("utf-8", "surrogateescape")).hexdigest()
        read = partial(flashinfer.read_named, root, version, symbols)
        return remembered(self._folder / _NAMED, key and f"{key} {asked}", Named, read)

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

    def _of_vllm(self, root: Path) -> str:
        """Of all its Python files and programs."""
        with self._locks["vllm"]:
            return self._key(root, (".py", "vllm-rs"))

    def _of_flashinfer(self, root: Path) -> str:
        with self._locks["flashinfer"]:
            return self._key(root, (".py",), without="data")

    def _key(self, root: Path, endings: tuple[str, ...], *, without: str = "") -> str:
        if root not in self._keys:
            self._keys[root] = ""
            with contextlib.suppress(OSError):
                self._keys[root] = quick_key(scan(root, endings, without=without))
        return self._keys[root]


def _root(survey: Survey, name: str) -> Path | Missing:
    origin = survey.modules.get(name, Missing(reason=f"{name} was not looked for"))
    return origin if isinstance(origin, Missing) else Path(origin).parent
