"""What was read of many files, remembered in the user's cache while names, sizes and times stay as they were."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from fi_doctor.facts.flashinfer import read_named as read_source
from fi_doctor.facts.libraries import read_libraries as find_libraries
from fi_doctor.facts.loader import Elf, read_elf
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.runners import ENDING as RUNNER
from fi_doctor.facts.vllm import read_vllm as read_files
from fi_doctor.model import Library, Missing, Named, Vllm

FRESH_NS = 2_000_000_000  # a file that is younger can change again without changing its times

_VLLM = "vllm.json"
_NAMED = "named.json"
_ELVES = "elves.json"
_OF_ELVES = "1"  # another where read_elf says something else of the same file
_Kept = TypeVar("_Kept")


class Found(NamedTuple):
    """One file below a folder."""

    name: str  # its path below the folder, with "/"
    path: str
    state: os.stat_result


def scan(folder: Path, endings: tuple[str, ...] = ("",), *, without: str = "") -> list[Found]:
    """Every file below a folder whose name ends so, compiled Python aside, by name.

    Nothing without such a folder. without: a folder in it that is left out. Links to folders are not followed.
    OSError where something may not be looked at.
    """
    return sorted(_scan(str(folder), endings, without), key=lambda found: found.name)


def quick_key(files: Iterable[Found]) -> str:
    """One word for names, sizes, times and inodes; "" where one of the files is so new that it can change unseen."""
    whole = hashlib.sha256()
    latest = 0
    for name, _, state in files:
        latest = max(latest, state.st_mtime_ns, state.st_ctime_ns)
        words = f"{name}\0{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino} {state.st_dev}\n"
        whole.update(words.encode("utf-8", "surrogateescape"))
    return whole.hexdigest() if time.time_ns() - latest > FRESH_NS else ""


def read_vllm(survey: Survey, folder: Path) -> Vllm | Missing:
    """The facts of the installed vLLM, from `folder` where all its Python files and programs are as they were."""
    origin = survey.modules.get("vllm", "")
    if isinstance(origin, Missing) or not origin:
        return read_files(survey)
    root = Path(origin).parent
    path = folder / _VLLM
    key = ""
    with contextlib.suppress(OSError):
        key = quick_key(scan(root, (".py", "vllm-rs")))
    known = recall(path, key, Vllm)
    if known is not None and known.root == str(root):
        return known
    found = read_files(survey)
    if key and isinstance(found, Vllm) and not found.unreadable:
        keep(path, msgspec.json.encode((key, found)))
    return found


def read_named(root: Path, version: str, symbols: tuple[str, ...], *, folder: Path) -> Named:
    """What FlashInfer's source says of names, from `folder` where its Python files and the runners are as they were."""
    key = ""
    with contextlib.suppress(OSError):
        named = {name.partition(":")[0] for name in symbols if RUNNER in name}
        runners = [name for name in sorted(named) if (root / name).exists()]
        files = [Found(name, str(root / name), (root / name).stat()) for name in runners]
        key = quick_key([*scan(root, (".py",), without="data"), *files])
    asked = hashlib.sha256("\0".join((str(root), version, *symbols)).encode("utf-8", "surrogateescape")).hexdigest()
    return remembered(folder / _NAMED, key and f"{key} {asked}", Named, lambda: read_source(root, version, symbols))


def read_libraries(environ: Mapping[str, str], survey: Survey, *, folder: Path) -> dict[str, Library | Missing]:
    """The CUDA libraries that a process would load; what `folder` knows of a file that is as it was is not read again.

    Where they are looked for is asked each time.
    """
    path = folder / _ELVES
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

    found = find_libraries(environ, survey, elf_of)
    if seen != known:
        keep(path, msgspec.json.encode((_OF_ELVES, seen)))
    return found


def remembered(path: Path, key: str, kind: type[_Kept], read: Callable[[], _Kept]) -> _Kept:
    """What a file keeps under this key; else what is read now, which it keeps then. "": there is no key to keep it."""
    known = recall(path, key, kind)
    if known is not None:
        return known
    found = read()
    if key:
        keep(path, msgspec.json.encode((key, found)))
    return found


def recall(path: Path, key: str, kind: type[_Kept]) -> _Kept | None:
    """What was kept in a file under this key; None where there is none, or no key."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        known, found = msgspec.json.decode(path.read_bytes(), type=tuple[str, msgspec.Raw])
        if key and known == key:
            return msgspec.json.decode(found, type=kind)
    return None


def keep(path: Path, data: bytes) -> None:
    """Write a memory whole or not at all; a folder that cannot be written costs time and nothing else."""
    scratch = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            scratch = file.name
            file.write(data)
        Path(scratch).replace(path)
    except OSError:
        if scratch:
            Path(scratch).unlink(missing_ok=True)


def _scan(folder: str, endings: tuple[str, ...], without: str) -> Iterator[Found]:
    rest = [""]
    while rest:
        below = rest.pop()
        try:
            listing = os.scandir(f"{folder}/{below}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        with listing:
            for entry in listing:
                name = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if name != without:
                        rest.append(f"{name}/")
                elif name.endswith(endings) and not name.endswith(".pyc") and entry.is_file():
                    yield Found(name, entry.path, entry.stat())
