"""What is set in place of settings that releases no longer read, decoded as strictly as the other knowledge."""

from __future__ import annotations

import functools
from pathlib import Path

from fi_doctor.conditions.ranges import version_in, version_range
from fi_doctor.errors import BrokenDoctorError
from fi_doctor.knowledge.decode import decode_list, read_yaml
from fi_doctor.knowledge.registry import FOLDER
from fi_doctor.model.registry import Successor

_FILE = "successors.yaml"


@functools.cache
def load(folder: Path = FOLDER) -> tuple[Successor, ...]:
    """All of them. Errors: BrokenDoctorError that lists what is wrong in the file."""
    errors: list[str] = []
    found = decode_list(Successor, read_yaml(folder / _FILE, folder, errors), _FILE, errors)
    errors += [f"{_FILE}: {one.name}: {wrong}" for one in found for wrong in _wrong(one)]
    if errors:
        what = f"{folder / _FILE} cannot be used: {len(errors)} error{'s' if len(errors) > 1 else ''}"
        raise BrokenDoctorError(what, why="\n       ".join(errors), todo="mend that file, or install fi-doctor anew")
    return tuple(found)


def successors(name: str, owner: str, version: str) -> tuple[Successor, ...]:
    """What stands for a setting in a version; several where several are to be set, none where none is known."""
    return tuple(
        one for one in load() if (one.name, one.owner) == (name, owner) and version_in(version, one.range) is True
    )


def _wrong(one: Successor) -> list[str]:
    errors = []
    try:
        version_range(one.range)
    except ValueError as error:
        errors.append(f"range: {error}")
    if not one.setting and (one.values or one.same_values):
        errors.append("values: given, and no setting that takes them")
    if any(not several for several in one.values.values()):
        errors.append("values: an empty list")
    return errors
