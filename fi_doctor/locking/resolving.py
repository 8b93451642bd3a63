"""Which file an import of a name would load, by the folders of sys.path; nothing is imported.

Source: importlib.machinery.FileFinder and PathFinder. What a package does to its own __path__ is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

# Importing pathlib's paths for some thousand names would cost more than all else.
# ruff: noqa: PTH112, PTH113, PTH118, PTH208

NAMESPACE = "namespace"  # in place of a file: a package that is only folders


class Place(NamedTuple):
    """Where a module is."""

    file: str  # "" where there is none, NAMESPACE of a package without __init__
    folders: tuple[str, ...]  # in which its submodules are looked for


_NOWHERE = Place("", ())


class Resolver:
    """One sys.path; every folder is listed at most once."""

    def __init__(self, sys_path: Iterable[str], version: str) -> None:
        self.sys_path = tuple(os.path.normpath(entry) for entry in sys_path if entry)
        major, minor = (*version.split("."), "", "")[:2]
        self._tags = (f"cpython-{major}{minor}", f"pypy{major}{minor}")
        self._listed: dict[str, dict[str, list[str]]] = {}
        self._places: dict[str, Place] = {}

    def place(self, name: str) -> Place:
        """Where a dotted name would be found."""
        if name not in self._places:
            parent, _, last = name.rpartition(".")
            folders = self.place(parent).folders if parent else self.sys_path
            self._places[name] = self._find(last, folders) if folders else _NOWHERE
        return self._places[name]

    def below(self, path: str) -> str:
        """The first file of this path below a folder of sys.path; "" where there is none."""
        files = (os.path.join(entry, path) for entry in self.sys_path)
        return next((file for file in files if os.path.isfile(file)), "")

    def _find(self, name: str, folders: tuple[str, ...]) -> Place:
        portions = []
        for folder in folders:
            there = self.listing(folder).get(name)
            if not there:
                continue
            inside = os.path.join(folder, name)
            if name in there:
                first = self._best("__init__", inside, self.listing(inside).get("__init__", []))
                if first:
                    return Place(first, (inside,))
            if file := self._best(name, folder, there):
                return Place(file, ())
            if name in there and os.path.isdir(inside):
                portions.append(inside)
        return Place(NAMESPACE, tuple(portions)) if portions else _NOWHERE

    def _best(self, name: str, folder: str, there: list[str]) -> str:
        """The file that comes first: compiled for this Python, for any, then source, then bytecode alone."""
        ranked = sorted((rank, file) for file in there if (rank := self._rank(file[len(name) :])) >= 0)
        paths = (os.path.join(folder, file) for _, file in ranked)
        return next((path for path in paths if os.path.isfile(path)), "")

    def _rank(self, ending: str) -> int:
        if ending.endswith(".so") and ending.startswith(tuple(f".{tag}" for tag in self._tags)):
            return 0
        order = (".abi3.so", ".so", ".py", ".pyc")
        return order.index(ending) + 1 if ending in order else -1

    def listing(self, folder: str) -> dict[str, list[str]]:
        """The names in a folder, by what stands before their first dot; none where it cannot be read."""
        if folder not in self._listed:
            found: dict[str, list[str]] = {}
            try:
                names = os.listdir(folder)
            except OSError:
                names = []
            for name in names:
                found.setdefault(name.partition(".")[0], []).append(name)
            self._listed[folder] = found
        return self._listed[folder]
