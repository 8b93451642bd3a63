"""Which files of a package read a setting: a registered name that no file reads has no effect."""

from __future__ import annotations

import mmap
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from fi_doctor.facts.files import LARGEST_BYTES, is_file
from fi_doctor.facts.vllm import python_files
from fi_doctor.model import Missing

# Lists of names in them are of what is reported, to a person or to the makers.
_REPORTERS = ("collect_env.py", "usage/usage_lib.py")
_MOST_FILES = 20_000
# Each begins with a text to look for, which is a hundred times as fast as a choice.
_OF_MODULE = re.compile(rb"envs\.(?:\n\s+)?([A-Z][A-Z0-9_]{2,})\b")
_IMPORTED = re.compile(rb"envs import (\([^)]*\)|[^\n]*)")
_WORD = re.compile(rb"\b[A-Z][A-Z0-9_]{2,}\b")
_ASKED = (
    (b"is_set(", re.compile(rb"""is_set\(\s*["'](\w+)["']""")),
    (b".is_set(", re.compile(rb"envs\.(\w+)\.is_set\(")),
    (b"in os.environ", re.compile(rb"""["'](\w+)["'] (?:not )?in os\.environ""")),
)
_ATTRIBUTE = re.compile(rb"""\.(?:\n\s+)?([a-z_]\w*)|\b[gh]etattr\([^,\n]+,\s*["'](\w+)["']""")
_PASSED_ON = re.compile(rb"\b(\w+)=(?:self|args|server_args)\.\1\b")


class Readers:
    """One pass over the Python files of a package."""

    def __init__(self, root: Path, known: Collection[str], marks: tuple[bytes, ...], registry: str) -> None:
        """known: names of variables. marks: what a file holds that reads one. registry: the file that registers."""
        self._root = root
        self._known = frozenset(name.encode() for name in known)
        self._marks = marks
        self._quoted = [re.compile(re.escape(mark) + rb"[A-Z0-9_]+") for mark in marks if mark.endswith(b"_")]
        self._registry = registry
        self.found: dict[str, list[str]] = {}
        self.asked: set[str] = set()
        self.kept: dict[str, bytes] = {}  # the texts of those files
        self.others: dict[str, list[str]] = {}  # quoted names that are not known -> the files that have them

    def run(self) -> Missing | None:
        """Missing where the files cannot be read, or are too many."""
        try:
            for number, (path, text) in enumerate(texts(self._root)):
                if number >= _MOST_FILES:
                    return Missing(reason=f"{self._root} has more than {_MOST_FILES} Python files")
                if path != self._registry and any(mark in text for mark in self._marks):
                    self._take(path, text)
        except OSError as error:
            return Missing(reason=f"{error.filename or self._root}: {error.strerror or error}")
        return None

    def _take(self, path: str, text: bytes) -> None:
        words = {one[1] for one in _OF_MODULE.finditer(text) if not _is_comment(text, one.start())}
        if b"envs import " in text:
            words.update(word for listed in _IMPORTED.findall(text) for word in _WORD.findall(listed))
        quoted = set() if path in _REPORTERS else {word for mark in self._quoted for word in _quoted(mark, text)}
        for word in (words | quoted) & self._known:
            self.found.setdefault(word.decode(), []).append(path)
        for word in quoted - self._known:
            self.others.setdefault(word.decode(), []).append(path)
            self.kept[path] = text
        for mark, pattern in _ASKED:
            if mark in text:
                self.asked |= {name.decode() for name in pattern.findall(text)}


def attribute_readers(
    root: Path, names: Collection[str], *, passing_on: str = ""
) -> dict[str, tuple[str, ...]] | Missing:
    """The files that read an attribute of each name, self.moe_backend: of a flag or key, without saying whose it is.

    passing_on: a file in which `name=self.name` gives it to another object and so does not count.
    """
    wanted = frozenset(name.encode() for name in names)
    found: dict[bytes, list[str]] = {name: [] for name in wanted}
    try:
        for path, text in texts(root):
            read = _PASSED_ON.sub(b"", text) if path == passing_on else text
            words = {word for groups in _ATTRIBUTE.findall(read) for word in groups}
            for name in words & wanted:
                found[name].append(path)
    except OSError as error:
        return Missing(reason=f"{error.filename or root}: {error.strerror or error}")
    return {name.decode(): tuple(paths) for name, paths in found.items()}


def texts(root: Path) -> Iterator[tuple[str, bytes]]:
    """Each Python file below a folder by its path there. Errors: OSError."""
    start = len(str(root)) + 1
    for path in python_files(root):
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - plain files; three thousand Path objects would take as long
            yield path[start:], file.read(LARGEST_BYTES)


def named_in_program(path: Path, names: Collection[str]) -> set[str]:
    """Which of the names a program holds; its strings follow one another without a mark between them."""
    wanted = sorted((name.encode() for name in names), key=len, reverse=True)
    if not wanted or not is_file(path):
        return set()
    pattern = re.compile(b"|".join(re.escape(name) for name in wanted))
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return {name.decode() for name in pattern.findall(data)}
    except (OSError, ValueError):  # an empty file cannot be mapped
        return set()


def _quoted(pattern: re.Pattern[bytes], text: bytes) -> Iterator[bytes]:
    for found in pattern.finditer(text):
        if text[found.start() - 1 : found.start()] in (b'"', b"'") and text[found.end() : found.end() + 1] in (
            b'"',
            b"'",
        ):
            yield found[0]


def _is_comment(text: bytes, at: int) -> bool:
    return text[text.rfind(b"\n", 0, at) + 1 : at].lstrip().startswith(b"#")
