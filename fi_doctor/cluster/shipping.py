"""fi-doctor and what it depends on, gathered in a folder that Ray takes to nodes where neither is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

NAME = "fi_doctor_shipped"  # the folder, and the module by which a worker finds it
_OURS = ("fi_doctor", "fi_doctor_probes")
_LEFT_OUT = ("__pycache__", "tests")
# Folders of ours that only other commands read: faults of logs, recordings, schemas. A third of all files.
_UNREAD = ("faults", "examples", "schemas")
# Of pages and of coloured code, a third of it all: a node writes JSON.
_UNUSED = ("jinja2", "markdown-it-py", "pygments")


def gather(into: Path) -> Path:
    """A folder NAME in `into`, laid out as `pip install --target` does; about 14 MB.

    It holds compiled code: nodes have to have the same kind of processor. Ray itself asks for the same Python.
    """
    folder = into / NAME
    folder.mkdir()
    for package in _OURS:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            shutil.copytree(spec.submodule_search_locations[0], folder / package, ignore=_ignored, copy_function=_link)
    for name in sorted(needed("fi-doctor") - {"fi-doctor"}):
        _copy(importlib.metadata.distribution(name), folder)
    _write_metadata(importlib.metadata.distribution("fi-doctor"), folder)
    return folder


def needed(name: str) -> set[str]:
    """A distribution and all that it needs to write JSON, without extras, by normal names; only what is installed."""
    found: set[str] = set()
    open_names = [name]
    while open_names:
        one = _normal(open_names.pop())
        if one in found or one in _UNUSED:
            continue
        try:
            distribution = importlib.metadata.distribution(one)
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(one)
        open_names += _required(distribution)
    return found


def _required(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for line in distribution.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def _copy(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    """The files that a distribution has in its own folder; scripts beside it and files of ours are left out."""
    for file in distribution.files or ():
        if ".." in file.parts or file.parts[0] in _OURS or set(file.parts) & set(_LEFT_OUT):
            continue
        if len(file.parts) == 1 and file.name.startswith(("__editable__", "_editable")):
            continue  # it would lead to the checkout, which the nodes do not have
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            target = folder.joinpath(*file.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(str(source), str(target))


def _write_metadata(ours: importlib.metadata.Distribution, folder: Path) -> None:
    """Name and entry points, by which the probes are found; a checkout keeps them in files of other names."""
    place = folder / f"fi_doctor-{ours.version}.dist-info"
    place.mkdir()
    place.joinpath("METADATA").write_text(ours.read_text("METADATA") or ours.read_text("PKG-INFO") or "", "utf-8")
    place.joinpath("entry_points.txt").write_text(ours.read_text("entry_points.txt") or "", "utf-8")


def _link(source: str, target: str) -> None:
    """The same file under another name where it can have one, since nothing in the folder is written to."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _ignored(folder: str, names: list[str]) -> set[str]:
    del folder
    return {name for name in names if name in (*_LEFT_OUT, *_UNREAD)}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
