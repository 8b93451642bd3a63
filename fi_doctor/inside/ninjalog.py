"""What objects took to build here, by the log that ninja keeps; it may be of any size and hold anything.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from fi_doctor.inside.elf import is_library

NAME = ".ninja_log"
MOST_BYTES = 4 << 20  # of one log, its end: the last entry of an output is the one that counts
MOST_LOGS = 500
MOST_TOTAL = 32 << 20  # bytes of all logs

_AT_A_TIME = 200  # outputs in one command line
_LONGEST_MS = 7 * 86_400_000


class Built(Protocol):
    """A module that has entries in a log."""

    name: str
    workdir: str  # where the log is
    part_of: str  # "" for a whole module


class Entry(NamedTuple):
    """One command: when it began and ended, in milliseconds since its ninja began."""

    start_ms: int
    end_ms: int
    mtime: int  # of what it wrote, which tells two builds of the same length apart

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ms - self.start_ms) / 1000


def read(folder: Path) -> dict[str, Entry]:
    """What the log in a folder says of each output, as ninja names it; nothing where there is none."""
    return parse(_tail(folder / NAME))


def parse(text: str) -> dict[str, Entry]:
    """The last entry of each output. Source: ninja, src/build_log.cc, versions 5 to 7: start, end, mtime, output, hash.

    Lines that are none of these are skipped, as the one that was cut at the beginning of a tail.
    """
    entries: dict[str, Entry] = {}
    for line in text.split("\n"):
        fields = line.split("\t")
        if len(fields) != 5 or not fields[3] or not all(_is_number(field) for field in fields[:3]):
            continue
        start, end, mtime = map(int, fields[:3])
        if start <= end <= _LONGEST_MS:
            entries[fields[3]] = Entry(start, end, mtime)
    return entries


def by_module(entries: Mapping[str, Entry], folder: Path) -> dict[str, dict[str, Entry]]:
    """The same for each module: its outputs lie in a folder of its name, by default the one with the log."""
    modules: dict[str, dict[str, Entry]] = {}
    for output, entry in entries.items():
        modules.setdefault(Path(output).parent.name or folder.name, {})[output] = entry
    return modules


def taken(folders: Iterable[Path]) -> dict[str, dict[str, float]]:
    """For each module that was built in these folders or just below them: objects, and the seconds that they took."""
    told: dict[str, dict[str, float]] = {}
    left = MOST_TOTAL
    for number, folder in enumerate(_with_folders_below(folders)):
        if number >= MOST_LOGS or left <= 0:
            break
        text = _tail(folder / NAME)
        left -= len(text)
        for name, outputs in by_module(parse(text), folder).items():
            seconds = [entry.seconds for output, entry in outputs.items() if output.endswith(".o")]
            if seconds:
                told[name] = {"objects": len(seconds), "slowest_s": max(seconds), "total_s": round(sum(seconds), 3)}
    return told


def _with_folders_below(folders: Iterable[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for folder in folders:
        found[folder] = None
        try:
            below = sorted(Path(one.path) for one in os.scandir(folder) if one.is_dir(follow_symlinks=False))
        except OSError:
            continue
        found.update(dict.fromkeys(below[:MOST_LOGS]))
    return list(found)


def _tail(path: Path) -> str:
    """The end of a plain file. A pipe that nobody writes to is opened without waiting, and is not read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(fd, "rb", buffering=0) as file:
        kind = os.fstat(fd)
        if not stat.S_ISREG(kind.st_mode):
            return ""
        try:
            file.seek(max(0, kind.st_size - MOST_BYTES))
            return (file.read(MOST_BYTES) or b"").decode(errors="replace")
        except OSError:
            return ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def forget_missing(modules: Sequence[Built]) -> None:
    """Have ninja's log, which is to be locked, not vouch for outputs of these modules that are not there or damaged.

    Ninja takes a file for finished when it is newer than its inputs and its log knows of an earlier one, made since
    the inputs changed. So a library that somebody deleted and whose link is then killed half-way would be loaded. An
    object that is none is removed: ninja would link it again and again.
    """
    workdir = Path(modules[0].workdir)
    names = {name for module in modules for name in (module.name, f"{module.part_of}.common")}
    known = by_module(read(workdir), workdir)
    outputs = [output for name in sorted(names & known.keys()) for output in known[name]]
    for output in outputs:
        if output.endswith(".o") and (workdir / output).is_file() and not is_library(str(workdir / output)):
            (workdir / output).unlink(missing_ok=True)
    gone = [output for output in outputs if not (workdir / output).exists()]
    for number in range(0, len(gone), _AT_A_TIME):
        command = ["ninja", "-C", str(workdir), "-t", "restat", *gone[number : number + _AT_A_TIME]]
        subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True)
