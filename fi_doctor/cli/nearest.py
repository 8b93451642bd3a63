"""Where the policy of a folder is. Knowledge is imported only where a file may be one: most checks have no policy."""

from __future__ import annotations

import os
import stat
from pathlib import Path

FILE = "fi-doctor.toml"
PROJECT = "pyproject.toml"
_LARGEST_BYTES = 1 << 20


def find(folder: Path) -> Path | None:
    """The policy that is nearest, from `folder` upwards: fi-doctor.toml, else a pyproject.toml that has the table.

    What has one of the names is taken for one, whatever it is: a link that leads nowhere, or the folder that container
    engines make where a file to be mounted is missing. Who reads it says why it is no policy. DataError where a
    pyproject.toml on the way cannot be read: whether it holds a policy is then not known.
    """
    for place in (folder, *folder.parents):
        # Not Path.lstat(), which raises for a folder that may not be looked into.
        if os.path.lexists(place / FILE):
            return place / FILE
        if os.path.lexists(place / PROJECT) and _has_table(place / PROJECT):
            return place / PROJECT
    return None


def _has_table(project: Path) -> bool:
    try:
        if stat.S_ISREG(project.stat().st_mode):
            with project.open("rb") as file:
                # What does not even name fi-doctor is nobody's policy, however broken it is.
                if b"fi-doctor" not in file.read(_LARGEST_BYTES):
                    return False
    except OSError:
        pass  # said below
    from fi_doctor.knowledge import policies

    return policies.has_table(project)
