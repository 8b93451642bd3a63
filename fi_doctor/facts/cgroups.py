"""Limits of the control groups that hold this process, versions 1 and 2: memory, what is left of it, and CPU quota.

A limit of any group on the way up holds for all below it, so the tightest counts. Source: cgroups(7), proc(5).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fi_doctor.model import Data, Missing
from fi_doctor.model.numbers import whole

_UNLIMITED = 1 << 60  # version 1 writes "no limit" as the largest number of pages
_CPU_FILES = {1: "cpu.cfs_quota_us", 2: "cpu.max"}
_MEMORY_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}
_USAGE_FILES = {1: "memory.usage_in_bytes", 2: "memory.current"}
_PIDS_FILES = dict.fromkeys(_CPU_FILES, "pids.max")
_INACTIVE = {1: "total_inactive_file", 2: "inactive_file"}  # in memory.stat, with the groups below


class Mount(NamedTuple):
    """A mounted hierarchy."""

    version: int
    controllers: frozenset[str]  # empty in version 2, which has them all
    root: str  # the group that is mounted
    point: str  # where


class Quota(Data, frozen=True, tag_field="kind", tag="quota"):
    """How much CPU time a group gets."""

    cpus: float


def read_memory_limit(root: Path = Path("/"), process: str = "self") -> int | Missing:
    """The tightest memory limit in MiB; Missing when no group has one. process: its number in /proc."""
    limits = [
        limit for text in _read_up(root, process, "memory", _MEMORY_FILES) if (limit := parse_memory(text)) is not None
    ]
    if not limits:
        return Missing(reason="no control group limits the memory")
    return min(limits) >> 20


def read_memory_left(root: Path = Path("/"), process: str = "self") -> int | Missing:
    """The least that a group's limit leaves for new processes, in MiB; Missing when no group has a limit.

    Files that were not read lately count as used and are given back when memory is short, so they are left.
    """
    left = []
    for folder, version in _folders_up(root, process, "memory"):
        limit, used = (parse_memory(_read(folder / files[version])) for files in (_MEMORY_FILES, _USAGE_FILES))
        if limit is not None and used is not None:
            left.append(limit - used + parse_stat(_read(folder / "memory.stat"), _INACTIVE[version]))
    if not left:
        return Missing(reason="no control group limits the memory")
    return max(0, min(left)) >> 20


def read_cpu_quota(root: Path = Path("/"), process: str = "self") -> Quota | Missing:
    """The tightest CPU quota; Missing when no group has one."""
    quotas = [quota for text in _read_up(root, process, "cpu", _CPU_FILES) if (quota := parse_quota(text)) is not None]
    if not quotas:
        return Missing(reason="no control group limits the CPU time")
    return Quota(cpus=min(quotas))


def limits_processes(root: Path = Path("/")) -> bool:
    """Whether a group bounds how many processes and threads there are in it."""
    return any(text.strip().isdecimal() for text in _read_up(root, "self", "pids", _PIDS_FILES))


def parse_memory(text: str) -> int | None:
    """Bytes of memory.max or memory.limit_in_bytes; None for no limit or text that is not one."""
    number = whole(text.strip())
    return number if number is not None and number < _UNLIMITED else None


def parse_quota(text: str) -> float | None:
    """CPUs of cpu.max ("150000 100000" is 1.5), or of version 1's quota and period in one line; None for no limit."""
    numbers = [whole(word) for word in text.split()]
    if len(numbers) != 2 or not numbers[0] or not numbers[1]:
        return None
    return numbers[0] / numbers[1]


def parse_stat(text: str, name: str) -> int:
    """A number of memory.stat, in bytes; 0 where it is not told."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and (number := whole(words[1])) is not None:
            return number
    return 0


def parse_groups(text: str) -> dict[str, str]:
    """/proc/self/cgroup: controller -> path of the group; "" stands for version 2."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            if controller or number == "0":
                groups[controller] = path
    return groups


def parse_mounts(text: str) -> list[Mount]:
    """/proc/self/mountinfo: the hierarchies."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        controllers = frozenset(kind[2].split(",")) if version == 1 else frozenset[str]()
        mounts.append(Mount(version, controllers, _unescape(fields[3]), _unescape(fields[4])))
    return mounts


def folders(mount: Mount, group: str) -> Iterator[str]:
    """The folders of a group and of all above it within the mount, the group's own first.

    In a container the group may lie outside of what is mounted ("/../.."): then what is mounted is the group.
    """
    inside = group.removeprefix(mount.root.rstrip("/")) if group.startswith(mount.root) else ""
    parts = [part for part in inside.split("/") if part]
    if ".." in parts:
        parts = []
    for length in range(len(parts), -1, -1):
        yield "/".join([mount.point, *parts[:length]])


def _read_up(root: Path, process: str, controller: str, files: dict[int, str]) -> Iterator[str]:
    """The file of each group on the way up, as far as it can be read."""
    for folder, version in _folders_up(root, process, controller):
        text = _read(folder / files[version])
        if files[version] == _CPU_FILES[1]:
            text = f"{text.strip()} {_read(folder / 'cpu.cfs_period_us').strip()}"
        yield text


def _folders_up(root: Path, process: str, controller: str) -> Iterator[tuple[Path, int]]:
    """The folder of each group on the way up, with the version of its hierarchy.

    The group of another process may lie outside of what is mounted here: then nothing of it can be read.
    """
    text = _read(root / f"proc/{process}/cgroup")
    groups, mounts = parse_groups(text), parse_mounts(_read(root / "proc/self/mountinfo"))
    for mount in mounts:
        if mount.version == 1 and controller not in mount.controllers:
            continue
        group = groups.get(controller if mount.version == 1 else "", "/")
        if process != "self" and (not group.startswith(mount.root) or ".." in group.split("/")):
            continue
        for folder in folders(mount, group):
            yield root / folder.lstrip("/"), mount.version


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _unescape(text: str) -> str:
    return text.replace("\\040", " ")
