"""A filled JIT cache, packed into one file that other nodes reach, and unpacked there once its digest is known right.

    python share.py pack FOLDER PLACE             prints its digest and size
    python share.py unpack FOLDER PLACE DIGEST    prints what was added

PLACE: a path that all nodes have, or a URL that fsspec (installed on the nodes) can open. Standard library else.

ninja takes what is there for current by the times of files, to the nanosecond, so each file keeps its own. What is in
the folder already stays: a module is taken as a whole or not at all.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any

_TIME = "FIDOCTOR.mtime_ns"
_CHUNK = 1 << 20
_LEVELS = 2  # cached_ops/NAME is a module


def pack(folder: Path, place: str) -> dict[str, Any]:
    """The folder in one file, written whole under its name or not at all. Errors: OSError."""
    with tempfile.TemporaryFile() as whole:
        with tarfile.open(fileobj=whole, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_symlink() or not (path.is_file() or path.is_dir()):
                    continue
                member = archive.gettarinfo(path, path.relative_to(folder).as_posix())
                member.pax_headers = {_TIME: str(path.stat().st_mtime_ns)}
                with path.open("rb") if path.is_file() else _nothing() as file:
                    archive.addfile(member, file if path.is_file() else None)
        size = whole.tell()
        whole.seek(0)
        digest = _digest(whole)
        whole.seek(0)
        _write(whole, place)
    return {"digest": digest, "bytes": size}


def unpack(folder: Path, place: str, digest: str) -> dict[str, Any]:
    """What of it the folder lacks, put there. Errors: ValueError where it is not the file with that digest; OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as whole, tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        with _opened(place, "rb") as source:
            shutil.copyfileobj(source, whole, _CHUNK)
        whole.seek(0)
        found = _digest(whole)
        if found != digest:
            raise ValueError(f"{place} has the digest {found}, not {digest}: nothing of it was used")
        whole.seek(0)
        _extract(whole, Path(scratch))
        added = [one for one in _units(Path(scratch)) if _put(Path(scratch), folder, one)]
    return {"added": sorted(map(str, added))}


def _extract(whole: IO[bytes], into: Path) -> None:
    """Files and folders only, none outside: its digest says that we wrote it, and not that nobody told us wrong."""
    times: list[tuple[Path, int]] = []
    with tarfile.open(fileobj=whole, mode="r|") as archive:
        for member in archive:
            path = into / member.name
            if not (member.isfile() or member.isdir()) or ".." in path.parts or Path(member.name).is_absolute():
                raise ValueError(f"{member.name} is no file below the cache")
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                source = archive.extractfile(member)
                with path.open("wb") as file:
                    shutil.copyfileobj(source, file, _CHUNK)  # type: ignore[arg-type] # a file has one
                path.chmod(member.mode & 0o777)
            times.append((path, int(member.pax_headers[_TIME])))
    for path, mtime_ns in reversed(times):  # a folder's own time last
        os.utime(path, ns=(mtime_ns, mtime_ns))


def _units(scratch: Path) -> list[Path]:
    """What is taken as a whole: modules, and files above them."""
    found = [path.relative_to(scratch) for path in scratch.rglob("*")]
    return [
        one for one in found if len(one.parts) == _LEVELS or (len(one.parts) < _LEVELS and (scratch / one).is_file())
    ]


def _put(scratch: Path, folder: Path, unit: Path) -> bool:
    target = folder / unit
    if os.path.lexists(target):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    os.rename(scratch / unit, target)  # noqa: PTH104 - one step, within one file system
    return True


def _digest(whole: IO[bytes]) -> str:
    found = hashlib.sha256()
    while chunk := whole.read(_CHUNK):
        found.update(chunk)
    return found.hexdigest()


def _write(whole: IO[bytes], place: str) -> None:
    if "://" in place:
        with _opened(place, "wb") as target:
            shutil.copyfileobj(whole, target, _CHUNK)
        return
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    part = Path(f"{place}.{os.getpid()}.part")
    with part.open("wb") as target:
        shutil.copyfileobj(whole, target, _CHUNK)
    part.replace(place)


def _opened(place: str, mode: str) -> Any:
    if "://" in place:
        return importlib.import_module("fsspec").open(place, mode)
    return Path(place).open(mode)


def _nothing() -> IO[bytes]:
    return open(os.devnull, "rb")  # noqa: PTH123 - its caller closes it


def main(words: list[str]) -> int:
    """0 once it is done; 1 with why not."""
    try:
        done = pack(Path(words[1]), words[2]) if words[0] == "pack" else unpack(Path(words[1]), *words[2:])
    except Exception as error:  # what opens a URL raises errors of its own
        print(f"{type(error).__name__}: {error or words[2]}", file=sys.stderr)
        return 1
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    own = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - as the survey
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != own]  # modules here have names of others
    sys.exit(main(sys.argv[1:]))
