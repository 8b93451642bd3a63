"""Reports that lie in folders: found, named by what tells their paths apart, and read one at a time."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fi_doctor.errors import CannotTellError, DataError, UsageError
from fi_doctor.fleet.reading import NodeReport
from fi_doctor.reports.files import data_of

_FLEET = re.compile(rb'\s*(?:\{\s*"schema"|schema):\s*["\']?fi-doctor\.fleet/')
ENDINGS = (".json", ".yaml", ".yml")
_ANEW = "fi-doctor report --json -o NODE.json"
_COLLECT = f"{_ANEW} on each node, then fi-doctor fleet --reports FOLDER"


def paths(words: Sequence[str]) -> list[str]:
    """The files that folders, globs and names stand for, each once, sorted; links to one file are one report.

    Of a folder all files below it that end as a report does, but hidden ones. Errors: UsageError for a word that names
    nothing, CannotTellError where there is no file at all.
    """
    found: dict[str, str] = {}
    for word in words:
        for path in _named(word):
            real = os.path.realpath(path)
            if real not in found or (os.path.islink(found[real]) and not os.path.islink(path)):  # noqa: PTH114
                found[real] = path  # called by a link only where the file itself is not among them
    if not found:
        what = f"--reports: no report in {', '.join(map(repr, words))}"
        raise CannotTellError(what, why=f"no file there ends with {', '.join(ENDINGS)}", todo=_COLLECT)
    return sorted(found.values())


def reports(files: Sequence[str], notes: list[str]) -> Iterator[NodeReport]:
    """What each file holds, or why it cannot be read; a node is called by what tells its path from the others.

    notes: to which is added what is no node's: what an earlier `fleet` wrote beside the reports.
    """
    for path, name in zip(files, names(files), strict=True):
        held = _held(path)
        if isinstance(held, bytes) and _FLEET.match(held):
            notes.append(f"{path} is of a fleet and not of a node: left out")
            continue
        yield NodeReport(name, held, path)


def check_apart(files: Sequence[str], written: Iterable[str]) -> None:
    """Nothing is written over a report. Errors: UsageError."""
    reports = {os.path.realpath(path): path for path in files}
    for path in written:
        if (report := reports.get(os.path.realpath(path))) is not None:
            raise UsageError(
                f"-o: {path!r} is one of the reports",
                why=f"{report!r} is read by --reports",
                todo="-o FILE, outside of the folder of the reports",
            )


def names(files: Sequence[str]) -> list[str]:
    """The paths without the folders and endings that all of them have: "node-7" for all/node-7/tmp/report.json."""
    parts = [Path(_without_ending(path)).parts for path in files]
    if len(parts) == 1:
        return [parts[0][-1]]
    first = next((n for n, of in enumerate(zip(*parts, strict=False)) if len(set(of)) > 1), 0)
    reverse = zip(*(reversed(of) for of in parts), strict=False)
    last = next((n for n, of in enumerate(reverse) if len(set(of)) > 1), 0)
    return ["/".join(of[first : len(of) - last] or of[-1:]) for of in parts]


def _without_ending(path: str) -> str:
    return next((path.removesuffix(ending) for ending in ENDINGS if path.endswith(ending)), path)


def _held(path: str) -> bytes | DataError:
    try:
        return data_of(Path(path))
    except DataError as error:
        return DataError(error.what, why=error.why, todo=f"{_ANEW}, on that node")


def _named(word: str) -> Iterator[str]:
    """The files that one word stands for."""
    if os.path.isdir(word):  # noqa: PTH112 - as everywhere here, paths stay as they were typed
        # A link to a folder is not followed: it may lead back.
        unread: list[str] = []
        for folder, below, files in os.walk(word, onerror=lambda error: unread.append(str(error.filename))):
            below[:] = sorted(one for one in below if not one.startswith("."))
            yield from (
                os.path.join(folder, one)  # noqa: PTH118
                for one in files
                if one.endswith(ENDINGS) and not one.startswith(".")
            )
        yield from unread  # a folder that nobody may look into is told as a report that cannot be read
        return
    if os.path.lexists(word):
        yield word
        return
    found = [one for one in glob.glob(word, recursive=True) if not os.path.isdir(one)]  # noqa: PTH112, PTH207
    if not found and not glob.has_magic(word):
        raise UsageError(f"--reports: there is no {word!r}", todo=_COLLECT)
    yield from found
