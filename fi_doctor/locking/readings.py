"""What is read of installed packages: from the user's cache or from what is shipped of their releases, where it holds.

The former holds while no file that it was read from may have changed, the latter while they are as they were installed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fi_doctor.facts import libraries, released, sources
from fi_doctor.facts.contents import WORD, with_contents
from fi_doctor.facts.files import may_be_file
from fi_doctor.facts.loader import Elf, read_elf
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.remembered import Found, found_key, keep, quick_key, recall, remembered, scan
from fi_doctor.model import Calls, Library, Missing, Named, Vllm

_VLLM = "vllm.json"
_CALLS = "calls.json"
_NAMED = "named.json"
_ELVES = "elves.json"
_RUNNER = ".cuh"  # in names of what is read beside Python
_OF_ELVES = "1"  # another where read_elf says something else of the same file


class _Tree:
    """The files of a package that are read, by their endings."""

    def __init__(self, root: Path, endings: tuple[str, ...], *, without: str = "") -> None:
        self._root, self._endings, self._without = root, endings, without

    @functools.cached_property
    def here(self) -> str:
        """A word for them as they are here, and for who reads them; "" where nothing may be kept of them."""
        word = found_key(self._root, self._endings, without=self._without)
        return _of_readers(_key(self._files) if word is None else word)

    @functools.cached_property
    def shipped(self) -> str:
        """The same as their release has them."""
        return _of_readers("" if self._files is None else released.state(self._root, self._files))

    @functools.cached_property
    def _files(self) -> list[Found] | None:
        """None where not all could be looked at."""
        with contextlib.suppress(OSError):
            return scan(self._root, self._endings, without=self._without)
        return None


class Readings:
    """The readers of one examination, with a folder for what they remember; each tree of files is looked at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trees: dict[Path, _Tree] = {}
        self._locks = {name: threading.Lock() for name in ("vllm", "flashinfer")}

    def vllm(self, survey: Survey) -> Vllm | Missing:
        """The facts of the installed vLLM."""
        root = _root(survey, "vllm")
        if isinstance(root, Missing):
            return sources.read_vllm(survey)
        tree = self._of_vllm(root)

        def read() -> Vllm | Missing:
            shipped = released.recall(released.label(root), tree.shipped, Vllm)
            return with_contents(replace(shipped, root=str(root)) if shipped else sources.read_vllm(survey))

        return remembered(
            self._folder / _VLLM,
            tree.here and f"{tree.here} {root} {WORD}",
            Vllm,
            read,
            is_whole=lambda found: not found.unreadable,
        )

    def calls(self, survey: Survey) -> Calls | Missing:
        """How that vLLM calls the FlashInfer beside it."""
        caller, callee = _root(survey, "vllm"), _root(survey, "flashinfer")
        if isinstance(caller, Missing) or isinstance(callee, Missing):
            return sources.read_calls(survey)
        # FlashInfer's first: another thread looks at vLLM's, and who asks for names waits for this one.
        trees = self._of_flashinfer(callee), self._of_vllm(caller)
        here = _joined(tree.here for tree in trees)

        def read() -> Calls | Missing:
            name = f"{released.label(caller)}-with-{released.label(callee)}"
            shipped = _joined(tree.shipped for tree in reversed(trees))
            return released.recall(name, shipped, Calls) or sources.read_calls(survey)

        return remembered(
            self._folder / _CALLS,
            here and f"{here} {caller} {callee}",
            Calls,
            read,
            is_whole=lambda found: not found.unread,  # what took too long may take less the next time
        )

    def named(self, root: Path, version: str, symbols: tuple[str, ...]) -> Named:
        """What FlashInfer's source says of names."""
        files = None
        with contextlib.suppress(OSError):
            named = {name.partition(":")[0] for name in symbols if _RUNNER in name}
            runners = [name for name in sorted(named) if may_be_file(root / name)]
            files = [Found(name, str(root / name), (root / name).stat()) for name in runners]
        tree = self._of_flashinfer(root)
        here = _joined((tree.here, _of_readers(_key(files))))
        asked = hashlib.sha256("\0".join((version, *symbols)).encode("utf-8", "surrogateescape")).hexdigest()

        def read() -> Named:
            state = "" if files is None else released.state(root, files)
            shipped = _joined((tree.shipped, _of_readers(state), asked))
            return released.recall(released.label(root), shipped, Named) or sources.read_named(root, version, symbols)

        return remembered(self._folder / _NAMED, here and f"{here} {asked} {root}", Named, read)

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

    def _of_vllm(self, root: Path) -> _Tree:
        """All its Python files and programs."""
        with self._locks["vllm"]:
            return self._tree(root, (".py", "vllm-rs"))

    def _of_flashinfer(self, root: Path) -> _Tree:
        with self._locks["flashinfer"]:
            return self._tree(root, (".py",), without="data")

    def _tree(self, root: Path, endings: tuple[str, ...], *, without: str = "") -> _Tree:
        if root not in self._trees:
            self._trees[root] = _Tree(root, endings, without=without)
            _ = self._trees[root].here  # under the lock: each tree is looked at once
        return self._trees[root]


def _key(files: list[Found] | None) -> str:
    return "" if files is None else quick_key(files)


def _of_readers(word: str) -> str:
    """With who reads; nothing where there is no word."""
    return word and f"{released.readers()} {word}"


def _joined(words: Iterable[str]) -> str:
    """All of them, or nothing where one is missing."""
    known = tuple(words)
    return " ".join(known) if all(known) else ""


def _root(survey: Survey, name: str) -> Path | Missing:
    origin = survey.modules.get(name, Missing(reason=f"{name} was not looked for"))
    return origin if isinstance(origin, Missing) else Path(origin).parent
