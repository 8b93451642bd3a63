"""What is in files, as SHA-256, read again only where size, times or inode say that a file may have changed."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from fi_doctor.facts import recorded
from fi_doctor.facts.files import matching, read_whole
from fi_doctor.facts.remembered import FRESH_NS, Found, keep, quick_key, scan
from fi_doctor.locking.model import ABSENT, UNREADABLE

_Key = tuple[int, int, int, int, int]  # size, mtime in ns, ctime in ns, inode, device
_NAME = "digests.json"
_MOST_ENTRIES = 20_000
_LARGE = 16 << 20  # bytes, from which on what pip wrote down is believed
_CHUNK = 1 << 20
_RECORD_LINE = re.compile(rb"^(?P<path>[^,\n]+),sha256=(?P<digest>[\w-]+),(?P<size>\d+)\r?$", re.MULTILINE)


class _Entry(msgspec.Struct, array_like=True):
    """One file as it was when it was read last."""

    key: _Key
    digest: str


class _Memory(msgspec.Struct):
    """What is kept between two commands."""

    files: dict[str, _Entry] = {}
    trees: dict[str, tuple[str, str]] = {}


class Digests:
    """Digests of files and folders, with a memory in the user's cache folder.

    A file whose size, mtime, ctime, inode and device are those of the last reading is not read again, and of one above
    16 MiB that pip installed, pip's own record is believed while the size agrees. thorough: every file is read.
    """

    def __init__(self, folder: Path | None = None, *, thorough: bool = False) -> None:
        self._memory = None if folder is None else folder / _NAME
        self._thorough = thorough
        self._known = _Memory() if self._memory is None or thorough else _remembered(self._memory)
        self._trees = dict(self._known.trees)
        self._used: dict[str, _Entry] = {}
        self._records: dict[Path, dict[str, tuple[str, int]]] = {}
        self.newest_ns = 0  # when the last of all files that were looked at since `begin` was changed

    def file(self, path: Path) -> str:
        """The word "sha256:..." for a plain file, "absent", or why it cannot be read."""
        try:
            kind = path.stat()
            if not stat.S_ISREG(kind.st_mode):
                return "not a file"
            self.newest_ns = max(self.newest_ns, _written_ns(kind))
            return self._digest(path, kind)
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            return f"{UNREADABLE}{error.strerror or error}"

    def tree(self, folder: Path, ending: str = "", *, without: str = "") -> str:
        """One digest of all files below a folder whose names end so, by name and content; "absent" without any.

        without: a folder in it that is left out. All of them are read again when one of them may have changed.
        """
        try:
            files = scan(folder, (ending,), without=without)
            self.newest_ns = max([self.newest_ns, *(_written_ns(found.state) for found in files)])
            key, name = quick_key(files), f"{folder}/**{ending}"
            known = self._trees.get(name)
            if known is None or not key or known[0] != key or self._thorough:
                known = (key, _read_all(files))
            if key:
                self._trees[name] = known
        except OSError as error:
            return f"{UNREADABLE}{error.strerror or error}"
        return known[1]

    def files(self, name: str, files: Iterable[tuple[str, str]]) -> str:
        """One digest of files, each under a word; "" in place of a path says that there is none.

        name: under which it is remembered; "absent" where none is there.
        """
        listed = tuple(files)
        try:
            found = [Found(word, path, os.stat(path)) for word, path in listed if path]  # noqa: PTH116 - thousands
        except OSError as error:
            return f"{UNREADABLE}{error.strerror or error}"
        self.newest_ns = max([self.newest_ns, *(_written_ns(one.state) for one in found)])
        key = quick_key(found)
        key = key and f"{key} {of_text(chr(0).join(word for word, _ in listed))}"  # those that lead to nothing, too
        known = self._trees.get(name)
        if known is None or not key or known[0] != key or self._thorough:
            lines = (f"{word}\0{self.file(Path(path)) if path else ABSENT}\n" for word, path in listed)
            known = (key, of_text("".join(lines)) if found else ABSENT)
        if key:
            self._trees[name] = known
        return known[1]

    def listing(self, folder: Path, ending: str) -> str:
        """One digest of the names and sizes of files below a folder; what is in them is not read."""
        try:
            files = scan(folder, (ending,))
        except OSError as error:
            return f"{UNREADABLE}{error.strerror or error}"
        return of_text("".join(f"{found.name}\0{found.state.st_size}\n" for found in files)) if files else ABSENT

    def save(self) -> None:
        """Write the memory down; a folder that cannot be written costs time and nothing else."""
        if self._memory is None:
            return
        rest = [(path, entry) for path, entry in self._known.files.items() if path not in self._used]
        files = {**dict(rest[: max(0, _MOST_ENTRIES - len(self._used))]), **self._used}
        memory = _Memory(files=files, trees=self._trees)
        if memory != self._known:
            keep(self._memory, msgspec.json.encode(memory))

    def _digest(self, path: Path, kind: os.stat_result) -> str:
        key = (kind.st_size, kind.st_mtime_ns, kind.st_ctime_ns, kind.st_ino, kind.st_dev)
        name = str(path)
        known = self._used.get(name) or self._known.files.get(name)
        if known is not None and known.key == key:
            self._used[name] = known
            return known.digest
        digest = self._recorded(path, kind.st_size) or _read(path)
        if time.time_ns() - max(kind.st_mtime_ns, kind.st_ctime_ns) > FRESH_NS:
            self._used[name] = _Entry(key, digest)
        return digest

    def _recorded(self, path: Path, size: int) -> str:
        """What pip wrote down of a large file, where the size is still that; "" else."""
        if self._thorough or size < _LARGE:
            return ""
        for site in path.parents:
            if site.name in ("site-packages", "dist-packages"):
                if site not in self._records:
                    self._records[site] = dict(_records(site))
                digest, told = self._records[site].get(path.relative_to(site).as_posix(), ("", -1))
                return digest if told == size else ""
        return ""


def of_text(text: str) -> str:
    """The digest of words."""
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()}"


def _written_ns(state: os.stat_result) -> int:
    """When a file came to be what it is and where it is: the time of writing can be set, and copies keep it."""
    return max(state.st_mtime_ns, state.st_ctime_ns)


def _read(path: Path) -> str:
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            whole.update(chunk)
    return f"sha256:{whole.hexdigest()}"


def _read_all(files: list[Found]) -> str:
    whole = hashlib.sha256()
    for found in files:
        whole.update(f"{found.name}\0{_read(Path(found.path))}\n".encode("utf-8", "surrogateescape"))
    return f"sha256:{whole.hexdigest()}" if files else ABSENT


def _records(site: Path) -> Iterable[tuple[str, tuple[str, int]]]:
    """The large files of every RECORD in a folder of packages."""
    for path in matching(site, "*.dist-info/RECORD"):
        with contextlib.suppress(OSError):
            for line in _RECORD_LINE.finditer(read_whole(path, recorded.LARGEST_BYTES)):
                if int(line["size"]) >= _LARGE:
                    digest = base64.urlsafe_b64decode(line["digest"] + b"=" * (-len(line["digest"]) % 4)).hex()
                    yield line["path"].decode(errors="replace"), (f"sha256:{digest}", int(line["size"]))


def _remembered(memory: Path) -> _Memory:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=_Memory)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Memory()
