"""Knowledge from elsewhere: a folder, or a zip file of one with the digests of all that is in it.

Nothing but data is taken: files with the names that a folder of knowledge has, bounded in number and size. The digests
find what was damaged or left out on the way; whoever can write the file can write them too.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fi_doctor.errors import DataError
from fi_doctor.knowledge import faults, load
from fi_doctor.model import Fault, KnowledgeBase

LIST = "SHA256SUMS"  # as sha256sum writes it, sorted by name
MOST_FILES = 4000
LARGEST_FILE = 1 << 20  # bytes, as for every YAML file of knowledge
LARGEST = 32 << 20  # bytes of all files
LARGEST_BUNDLE = 16 << 20  # bytes of the zip file
_NAME = "[a-z0-9][a-z0-9_.-]{0,99}"
_FILE = re.compile(
    rf"(?:kb|features|operators)\.yaml|settings/{_NAME}\.yaml|(?:rules|faults)/{_NAME}/{_NAME}\.yaml", re.ASCII
)
_LINE = re.compile(r"([0-9a-f]{64}) [ *](\S+)")
_MOST_ERRORS = 20  # that are told
_EPOCH = (1980, 1, 1, 0, 0, 0)  # so that the same folder gives the same file
_SHA = 16  # digits that are shown of a digest
_TODO = "fetch it again, or make one: fi-doctor knowledge pack FOLDER -o FILE"


class Opened(NamedTuple):
    """Knowledge that was read and checked, faults too."""

    folder: Path
    kb: KnowledgeBase
    faults: tuple[Fault, ...]
    digest: str  # SHA-256 of the list of the digests of its files: the same for a folder and a bundle of it
    files: int


@contextlib.contextmanager
def opened(place: Path) -> Iterator[Opened]:
    """The knowledge in a folder or a bundle; what a bundle holds lies in a temporary folder meanwhile.

    Errors: DataError, which names every file that is wrong, and how.
    """
    name = str(place)
    if place.is_dir():
        yield _checked(place, name, _verified(_read_folder(place), name, needs_list=False))
        return
    files = _verified(_read_zip(place), name, needs_list=True)
    with tempfile.TemporaryDirectory(prefix="fi-doctor-knowledge-") as scratch:
        folder = Path(scratch)
        for file, data in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(data)
        yield _checked(folder, name, files)


def pack(place: Path, bundle: Path) -> Opened:
    """Write the knowledge in a folder as a bundle. Errors: DataError where it cannot be used, OSError."""
    with opened(place) as found:
        files = {name: (found.folder / name).read_bytes() for name in _names(found.folder)}
        with tempfile.TemporaryDirectory(dir=bundle.parent, prefix=".fi-doctor-") as folder:  # ours alone
            scratch = Path(folder, bundle.name)
            with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in sorted({**files, LIST: _listed(files).encode()}.items()):
                    archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
            scratch.replace(bundle)
        return found


def _checked(folder: Path, name: str, files: Mapping[str, bytes]) -> Opened:
    digest = hashlib.sha256(_listed(files).encode()).hexdigest()
    try:
        return _read_all(folder, name, digest, len(files))
    except RecursionError as error:
        raise _refused(name, ["something in it is nested too deeply"]) from error


def _read_all(folder: Path, name: str, digest: str, number: int) -> Opened:
    kb = load(folder, name=name, origin=f"{Path(name).absolute().name}, sha256 {digest[:_SHA]}")
    found = faults.load_all(folder / "faults", name=name)
    return Opened(folder, kb, found, digest, number)


def _verified(files: dict[str, bytes], name: str, *, needs_list: bool) -> dict[str, bytes]:
    """The files without their list, if they are those that it names. Errors: DataError."""
    written = files.pop(LIST, None)
    if written is None and not needs_list:
        return files
    listed, errors = _read_list(written) if written is not None else ({}, [f"{LIST}: missing"])
    if listed:
        errors += [f"{file}: not in {LIST}" for file in files if file not in listed]
        errors += [f"{file}: missing, and in {LIST}" for file in listed if file not in files]
    for file in sorted(files.keys() & listed.keys()):
        if (found := _sha(files[file])) != listed[file]:
            errors.append(f"{file}: its SHA-256 is {found[:_SHA]}..., and {LIST} has {listed[file][:_SHA]}...")
    if errors:
        raise _refused(name, errors)
    return files


def _read_list(written: bytes) -> tuple[dict[str, str], list[str]]:
    listed: dict[str, str] = {}
    errors = []
    for number, line in enumerate(written.decode("ascii", "replace").splitlines(), 1):
        found = _LINE.fullmatch(line)
        if found is None:
            errors.append(f"{LIST}: line {number}: expected a SHA-256, two spaces and a name")
        elif found[2] in listed:
            errors.append(f"{LIST}: line {number}: {found[2]} for the second time")
        else:
            listed[found[2]] = found[1]
    return listed, errors or ([] if listed else [f"{LIST}: empty"])


def _names(folder: Path) -> list[str]:
    found = (path.relative_to(folder).as_posix() for glob in ("*", "*/*", "*/*/*") for path in folder.glob(glob))
    return sorted(name for name in found if _FILE.fullmatch(name) and (folder / name).is_file())


def _read_folder(folder: Path) -> dict[str, bytes]:
    """The files of knowledge in a folder: with a list of digests nothing else may lie there, without one anything."""
    names = _names(folder)
    if "kb.yaml" not in names:
        raise DataError(f"{folder} holds no knowledge", why="there is no kb.yaml in it", todo="name another folder")
    if (folder / LIST).is_file():
        there = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
        if beside := sorted(set(there) - {*names, LIST}):
            raise _refused(str(folder), [f"{name!r} is no name of a file of knowledge" for name in beside])
        names.append(LIST)
    if len(names) > MOST_FILES:
        raise _refused(str(folder), [f"{len(names)} files; {MOST_FILES} are allowed"])
    try:
        files = {name: _read(folder / name) for name in names}
    except OSError as error:
        raise _refused(str(folder), [f"{error.filename}: {error.strerror}"]) from error
    if large := [f"{name}: over {LARGEST_FILE} bytes" for name, data in files.items() if len(data) > LARGEST_FILE]:
        raise _refused(str(folder), large)
    return files


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_FILE + 1)


def _read_zip(path: Path) -> dict[str, bytes]:
    """The files of a bundle, once each is one that a bundle may have. Errors: DataError."""
    try:
        if not path.is_file():  # a pipe or a device would be waited for
            raise DataError(f"there is no knowledge in {path}", why="it is neither a folder nor a file")
        if path.stat().st_size > LARGEST_BUNDLE:
            raise _refused(str(path), [f"{path.stat().st_size} bytes; {LARGEST_BUNDLE} are allowed"])
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if errors := _wrong_members(members):
                raise _refused(str(path), errors)
            return {one.filename: archive.read(one) for one in members}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        why = f"it is not a zip file that can be read: {error}"
        raise DataError(f"{path} is no bundle of knowledge", why=why, todo=_TODO) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read", why=error.strerror or str(error)) from error


def _wrong_members(members: list[zipfile.ZipInfo]) -> list[str]:
    if len(members) > MOST_FILES:
        return [f"{len(members)} files; {MOST_FILES} are allowed"]
    if sum(one.file_size for one in members) > LARGEST:
        return [f"{sum(one.file_size for one in members)} bytes unpacked; {LARGEST} are allowed"]
    seen: set[str] = set()
    errors = []
    for one in members:
        kind = stat.S_IFMT(one.external_attr >> 16)
        demands = (
            ("is no name of a file of knowledge", one.filename != LIST and not _FILE.fullmatch(one.filename)),
            ("is there twice", one.filename in seen),
            ("is a link, a device or a folder", kind not in (0, stat.S_IFREG)),
            ("is encrypted", bool(one.flag_bits & 1)),
            (
                "is packed in a way that is not read",
                one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED),
            ),
            (f"has {one.file_size} bytes; {LARGEST_FILE} are allowed", one.file_size > LARGEST_FILE),
        )
        errors += [f"{one.filename!r} {wrong}" for wrong, is_wrong in demands if is_wrong]
        seen.add(one.filename)
    return errors


def _listed(files: Mapping[str, bytes]) -> str:
    return "".join(f"{_sha(data)}  {name}\n" for name, data in sorted(files.items()))


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refused(name: str, errors: list[str]) -> DataError:
    more = len(errors) - _MOST_ERRORS
    shown = [*errors[:_MOST_ERRORS], *([f"and {more} more"] if more > 0 else [])]
    return DataError(f"the knowledge in {name} is refused", why="\n       ".join(shown), todo=_TODO)
