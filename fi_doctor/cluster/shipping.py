"""fi-doctor and what it depends on, packed in one file for nodes where this very one is not installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

_OURS = ("fi_doctor", "fi_doctor_probes")
_LEFT_OUT = ("__pycache__", "tests")
# Folders of ours that only other commands read: faults of logs, recordings, schemas. A third of all files.
_UNREAD = ("faults", "examples", "schemas")
# Of pages, of coloured code, of logs and of manifests, a third of it all: a node reads itself and writes JSON.
_UNUSED = ("backports-zstd", "dockerfile-parse", "jinja2", "markdown-it-py", "pygments", "python-dotenv")


def packed() -> bytes:
    """A zip file that, unpacked, is laid out as by `pip install --target`; about 20 MB.

    It is not compressed: on nodes that are busy that takes longer than a network does. It holds compiled code: nodes
    have to have the same kind of processor. Ray itself asks for the same Python.
    """
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
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
                yield from _with_bytecode(path, PurePosixPath(package, below))
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
            yield from _with_bytecode(source, PurePosixPath(file))


def _with_bytecode(source: Path, name: PurePosixPath) -> Iterator[tuple[str, bytes]]:
    """A file; of a module also its bytecode, where this Python has it of the source as it is: all of it takes a second.

    The source's time becomes that of unpacking, so the bytecode says that nobody is to compare it with its source.
    Source: PEP 552, bytes 4 to 16 of a .pyc: flags, then the source's time and size, or a hash of it.
    """
    yield str(name), source.read_bytes()
    if source.suffix != ".py":
        return
    cached = Path(importlib.util.cache_from_source(str(source)))
    try:
        data, state = cached.read_bytes(), source.stat()
    except OSError:
        return
    of_source = struct.pack("<III", 0, int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF)
    if data[:16] == importlib.util.MAGIC_NUMBER + of_source:
        yield str(name.parent / "__pycache__" / cached.name), data[:4] + struct.pack("<IQ", 1, 0) + data[16:]


def _metadata(ours: importlib.metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """Name and entry points, by which the probes are found; a checkout keeps them in files of other names."""
    place = f"fi_doctor-{ours.version}.dist-info"
    yield f"{place}/METADATA", (ours.read_text("METADATA") or ours.read_text("PKG-INFO") or "").encode()
    yield f"{place}/entry_points.txt", (ours.read_text("entry_points.txt") or "").encode()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
