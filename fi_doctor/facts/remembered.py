"""What was read of many files, remembered in the user's cache while names, sizes and times stay as they were."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import platformdirs

from fi_doctor import acting
from fi_doctor.facts.asking import ask
from fi_doctor.facts.files import read_whole

FRESH_NS = 2_000_000_000  # a file that is younger can change again without changing its times

_Kept = TypeVar("_Kept")
_LARGEST_MEMORY = 256 << 20
_LARGEST_LISTING = 16 << 20
_FIND = "/usr/bin/find"
_SECONDS = re.compile(rb" (\d+)\.\d")
_Read = TypeVar("_Read")


class Found(NamedTuple):
    """One file below a folder."""

    name: str  # its path below the folder, with "/"
    path: str
    state: os.stat_result


def memory_folder() -> Path:
    """Where it is kept what was read, between two commands; by user, since what one can read another may not."""
    return Path(platformdirs.user_cache_dir("fi-doctor"), f"read-by-{os.geteuid()}")


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


def found_key(folder: Path, endings: tuple[str, ...], *, without: str = "") -> str | None:
    """A word as that of quick_key, for the files that `scan` finds: GNU find looks at them beside what else is done.

    Another word than quick_key's for the same files. None where find is not there, or has not looked at everything:
    links to files are followed by `scan` only.
    """
    names = [word for ending in endings for word in ("-o", "-name", f"*{ending}")][1:]
    left_out = ["-path", f"{folder}/{without}", "-prune", "-o"] if without else []
    told = ["-printf", r"%P\0%s %T@ %C@ %i %D %y\n"]
    words = [_FIND, str(folder), *left_out, "(", *names, ")", "!", "-type", "d", *told]
    result = ask(words, environ={"LC_ALL": "C"}, max_output=_LARGEST_LISTING)
    lines = sorted(result.stdout.splitlines())
    if result.returncode != 0 or result.truncated or not all(line.endswith(b" f") for line in lines):
        return None
    latest = max((int(second) for second in _SECONDS.findall(result.stdout)), default=0)
    whole = hashlib.sha256(b"\n".join(lines)).hexdigest()
    return whole if time.time() - latest > 1 + FRESH_NS / 1e9 else ""


def remembered(
    path: Path,
    key: str,
    kind: type[_Kept],
    read: Callable[[], _Read],
    *,
    is_whole: Callable[[_Kept], bool] = lambda _: True,
) -> _Kept | _Read:
    """What a file keeps under this key; else what is read now, which it keeps then. "": there is no key to keep it.

    is_whole: of what is read whether it is worth keeping; what is of another kind never is.
    """
    known = recall(path, key, kind)
    if known is not None:
        return known
    found = read()
    if key and isinstance(found, kind) and is_whole(found):
        keep(path, msgspec.json.encode((key, found)))
    return found


def recall(path: Path, key: str, kind: type[_Kept]) -> _Kept | None:
    """What was kept in a file under this key; None where there is none, or no key."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if not _is_trusted(path):  # who can write it would tell us what we have read
            return None
        return kept_under(key, read_whole(path, _LARGEST_MEMORY), kind)
    return None


def kept_under(key: str, data: bytes, kind: type[_Kept]) -> _Kept | None:
    """What a memory holds, if it is under this key. Errors: MsgspecError, UnicodeDecodeError."""
    known, found = msgspec.json.decode(data, type=tuple[str, msgspec.Raw])
    return msgspec.json.decode(found, type=kind) if key and known == key else None


def keep(path: Path, data: bytes) -> None:
    """Write a memory whole or not at all; a folder that cannot be written costs time and nothing else.

    Nothing is written below a folder of another user, as root would in a home that sudo has left in HOME: a link
    there would lead anywhere.
    """
    scratch = ""
    try:
        if not _is_trusted(next(one for one in path.parents if one.exists())):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            scratch = file.name
            file.write(data)
        Path(scratch).replace(path)
    except OSError:
        if scratch:
            Path(scratch).unlink(missing_ok=True)


def _is_trusted(path: Path) -> bool:
    """Whether what is there belongs to root or to this user, and no link of others leads there. Errors: OSError."""
    return path.stat().st_uid in (0, os.geteuid()) and not acting.is_led_astray(path)


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
