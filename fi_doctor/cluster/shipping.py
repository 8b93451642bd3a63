"""fi-doctor and what it depends on, packed in one file for nodes where this very one is not installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

_OURS = ("fi_doctor", "fi_doctor_probes")
_LEFT_OUT = ("__pycache__", "tests")
# Folders of ours that only other commands read: faults of logs, recordings, schemas. A third of all files.
_UNREAD = ("faults", "examples", "schemas")
# Of pages and of coloured code, a third of it all: a node writes JSON.
_UNUSED = ("jinja2", "markdown-it-py", "pygments")
_QUICKLY = 1  # the level of zlib: the best takes three times as long, and saves a tenth


def packed() -> bytes:
    """A zip file that, unpacked, is laid out as by `pip install --target`; about 6 MB.

    It holds compiled code: nodes have to have the same kind of processor. Ray itself asks for the same Python.
    """
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED, compresslevel=_QUICKLY) as archive:
        for name, data in files():
            archive.writestr(name, data)
    return whole.getvalue()


def files() -> Iterator[tuple[str, bytes]]:
    """All that is packed: names below the folder, and contents."""
    for package in _OURS:
        spec = importlib.util.find_spec(package)
        root = Path(next(iter(spec.submodule_search_locations or ()))) if spec else Path()
        for path in sorted(root.rglob("*")) if spec else ():
            below = path.relative_to(root)
            if not set(below.parts) & {*_LEFT_OUT, *_UNREAD} and path.is_file():
                yield f"{package}/{below.as_posix()}", path.read_bytes()
    for name in sorted(needed("fi-doctor") - {"fi-doctor"}):
        yield from _of(importlib.metadata.distribution(name))
    yield from _metadata(importlib.metadata.distribution("fi-doctor"))


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


def _of(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """The files that a distribution has in its own folder; scripts beside it and files of ours are left out."""
    for file in distribution.files or ():
        if ".." in file.parts or file.parts[0] in _OURS or set(file.parts) & set(_LEFT_OUT):
            continue
        if len(file.parts) == 1 and file.name.startswith(("__editable__", "_editable")):
            continue  # it would lead to the checkout, which the nodes do not have
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            yield file.as_posix(), source.read_bytes()


def _metadata(ours: importlib.metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """Name and entry points, by which the probes are found; a checkout keeps them in files of other names."""
    place = f"fi_doctor-{ours.version}.dist-info"
    yield f"{place}/METADATA", (ours.read_text("METADATA") or ours.read_text("PKG-INFO") or "").encode()
    yield f"{place}/entry_points.txt", (ours.read_text("entry_points.txt") or "").encode()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
