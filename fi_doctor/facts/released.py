"""What releases say in their files, read beforehand and shipped, so that a first check need not read it again.

It counts while three things hold: the readers are those that read it, the installed files have the names and sizes of
the release's, and none of them was changed after its package was installed: none is younger than the package's RECORD,
which installers write last.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from fi_doctor.facts.recorded import record_of
from fi_doctor.facts.remembered import Found, kept_under

FOLDER = Path(__file__).parents[1] / "knowledge" / "releases"
ENDING = ".json.xz"
# The modules of this package that decide what is read of vLLM and FlashInfer, beside those in calls/.
READERS = (
    *("admissions", "branches", "collecting", "compiled", "definitions", "expressions", "files", "majors", "named"),
    *("own_versions", "packages", "public", "recorded", "runners", "sources", "symbols", "values", "vllm", "walk"),
)

_Kept = TypeVar("_Kept")


@functools.cache
def readers() -> str:
    """One word for the code that reads, which is another where it says something else of the same file."""
    here = Path(__file__).parent
    paths = [here / f"{name}.py" for name in READERS]
    whole = hashlib.sha256()
    for path in (*paths, *sorted((here / "calls").glob("*.py"))):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def label(root: Path) -> str:
    """What an installed package is called here ("vllm-0.33.0"), by the metadata beside its folder; "" without any."""
    record = record_of(root)
    return record.parent.name.removesuffix(".dist-info").partition("+")[0] if record else ""


def state(root: Path, files: Iterable[Found]) -> str:
    """One word for the names and sizes of files of a package; "" where one may have been changed since."""
    record = record_of(root)
    whole = hashlib.sha256()
    with contextlib.suppress(OSError):
        installed_ns = record.stat().st_mtime_ns if record else 0
        for name, _, found in files:
            if found.st_mtime_ns > installed_ns:
                return ""
            whole.update(f"{name}\0{found.st_size}\n".encode("utf-8", "surrogateescape"))
        return whole.hexdigest() if record else ""
    return ""


def recall(name: str, key: str, kind: type[_Kept]) -> _Kept | None:
    """What is shipped under this name, if it was read with this key."""
    with contextlib.suppress(OSError, EOFError, lzma.LZMAError, msgspec.MsgspecError):
        return kept_under(key, _unpacked(FOLDER / f"{name}{ENDING}"), kind)
    return None


def of_release(name: str, kind: type[_Kept]) -> _Kept | None:
    """What is shipped under this name, whatever is installed; None where that is nothing, or other readers read it."""
    with contextlib.suppress(OSError, EOFError, lzma.LZMAError, msgspec.MsgspecError):
        path = FOLDER / f"{name}{ENDING}"
        key = key_of(path)
        return kept_under(key, _unpacked(path), kind) if key.startswith(readers()) else None
    return None


def key_of(path: Path) -> str:
    """What a shipped file was read with."""
    key, _ = msgspec.json.decode(_unpacked(path), type=tuple[str, msgspec.Raw])
    return key


def write(path: Path, key: str, found: object) -> None:
    """Write one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(msgspec.json.encode((key, found)), preset=9 | lzma.PRESET_EXTREME))


def _unpacked(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes())
