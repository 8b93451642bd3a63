"""Whether the user who serves can start the examined interpreter and read its packages, where that is another user."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fi_doctor.facts import permissions
from fi_doctor.facts.environment import neutralise
from fi_doctor.facts.mounts import Mount, mount_of, read_mounts
from fi_doctor.facts.packages import Survey
from fi_doctor.model import User

# ruff: noqa: PTH112, PTH114, PTH115, PTH118, PTH120 - paths are followed as the kernel follows them

_PACKAGES = ("flashinfer", "vllm", "torch")
_MOST_LINKS = 40  # the kernel follows no more


def read_unreachable(survey: Survey, user: User, mounts: list[Mount]) -> tuple[str, ...]:
    """What that user surely cannot reach, each with the first folder on the way that is closed, in words."""
    if user.is_own:
        return ()
    told = []
    for path in dict.fromkeys(_needed(survey)):
        why = _why_closed(path, user, mounts)
        if why:
            told.append(neutralise(f"{path}: {why}"))
    return tuple(told)


def why_not_started(user: User, *ours: str) -> str:
    """Why that user cannot reach these folders of ours, in words; "" where nothing is known against it."""
    mounts = read_mounts("self")
    closed = next((why for why in (_why_closed(path, user, mounts) for path in ours) if why), "")
    return f"that user cannot enter fi-doctor's own folders: {neutralise(closed)}" if closed else ""


def _needed(survey: Survey) -> Iterator[str]:
    """The program, then the folders of its packages."""
    yield survey.executable
    for name in _PACKAGES:
        origin = survey.modules.get(name)
        if isinstance(origin, str):
            yield os.path.dirname(os.path.dirname(origin))
            yield os.path.dirname(origin)


def _why_closed(path: str, user: User, mounts: list[Mount]) -> str:
    real = os.path.realpath(path)
    wanted = permissions.READ | permissions.SEARCH if os.path.isdir(real) else permissions.SEARCH
    for place, needs in (*((folder, permissions.SEARCH) for folder in _entered(path)), (real, wanted)):
        mount = mount_of(place, mounts)
        may, why = permissions.may(place, user, needs, mount.filesystem if mount else "")
        if may is False:
            return why
    return ""


def _entered(path: str) -> Iterator[str]:
    """Every folder that is searched on the way, those of links and of what they lead to, in order."""
    rest, place, links = [part for part in path.split("/") if part], "/", 0
    while rest:
        yield place
        name = rest.pop(0)
        if name == "..":
            place = os.path.dirname(place)
            continue
        step = os.path.join(place, name)
        if not os.path.islink(step):
            place = step
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        target = os.readlink(step)
        place = "/" if target.startswith("/") else place
        rest = [part for part in target.split("/") if part not in ("", ".")] + rest
