"""The folders of probes that installed distributions register by entry points; nothing of them is imported."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fi_doctor.model import OWN

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "fi_doctor.probes"
OWN_PACKAGE = "fi_doctor_probes"

_ROOT = Path(__file__).resolve().parents[2]
# What importlib.metadata lets through: text that is not UTF-8, lines without "=", no name, no access.
_BROKEN_METADATA = (OSError, ValueError, TypeError, AttributeError, KeyError)


class Broken(NamedTuple):
    """What cannot be used: a file, a folder, or an entry point that leads nowhere."""

    origin: str
    path: Path
    why: str  # with the path, and the line where there is one


def registered() -> tuple[list[tuple[Path, str]], list[Broken]]:
    """The folders named by the entry points; a checkout's own probes stand beside the package and come first."""
    beside = _ROOT / "probes"
    checkout = beside.is_dir() and (_ROOT / "pyproject.toml").is_file()
    folders = [(beside, OWN)] if checkout else []
    broken = []
    for origin, entry in _entries():
        if origin == OWN and checkout:
            continue
        folder = _locate(entry.value)
        if isinstance(folder, str):
            why = f"entry point {entry.name!r} in group {GROUP!r}: {folder}"
            broken.append(Broken(origin, Path(entry.name), why))
        else:
            folders.append((folder, origin))
    if not any(origin == OWN for _, origin in folders):
        own = _locate(OWN_PACKAGE)
        if isinstance(own, Path):
            folders.append((own, OWN))
        else:
            broken.append(Broken(OWN, Path(OWN_PACKAGE), own))
    return folders, broken


def _entries() -> list[tuple[str, EntryPoint]]:
    """Name of the distribution and entry point, of those that can be read: anybody's broken metadata is not our affair.

    Of two distributions of one name the first on sys.path counts, as for importlib.metadata.entry_points, which
    raises what the least of them makes it raise.
    """
    if not _others_registered():
        return []
    import importlib.metadata  # noqa: PLC0415 - with email and zipfile, a tenth of what all imports take

    names: dict[str, None] = {}
    for found in importlib.metadata.distributions():
        with contextlib.suppress(*_BROKEN_METADATA):
            if any(entry.group == GROUP for entry in found.entry_points):
                names[found.name] = None
    entries = []
    for name in names:
        with contextlib.suppress(*_BROKEN_METADATA):
            first = importlib.metadata.distribution(name)
            entries += [(name, entry) for entry in first.entry_points if entry.group == GROUP]
    return entries


def _others_registered() -> bool:
    """Whether a distribution beside our own may have an entry point for probes; our own folder is found by its name."""
    for folder in (entry or os.curdir for entry in sys.path):
        names = []
        with contextlib.suppress(OSError):
            names = os.listdir(folder)  # noqa: PTH208 - some hundred names, taken as they are
        if os.path.isfile(folder) or any(_may_register(f"{folder}/{name}") for name in names):  # noqa: PTH113 - as above
            return True
    return False


def _may_register(metadata: str) -> bool:
    name = metadata.rpartition("/")[2]
    if name.startswith("fi_doctor-") or not name.endswith((".dist-info", ".egg-info", ".egg", ".egg-link")):
        return False
    text = f"{metadata}/entry_points.txt"
    if name.endswith("-info") and not os.path.isfile(text):  # noqa: PTH113 - as above
        return False
    with contextlib.suppress(OSError), open(text, "rb") as file:  # noqa: PTH123 - as above
        return GROUP.encode() in file.read()
    return True  # an egg, or what may not be read: importlib.metadata is to say


def _locate(package: str) -> Path | str:
    """The folder of a package, found without importing it: only the top-level name is asked for."""
    top, *rest = package.partition(":")[0].strip().split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError) as exc:
        return f"package {top!r} cannot be located: {exc}"
    if spec is None or not spec.submodule_search_locations:
        return f"no package {top!r} is installed"
    return Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
