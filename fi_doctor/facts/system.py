"""Operating system, container and limits of the machine as this process finds them."""

from __future__ import annotations

import os
import platform
import resource
import shlex
from collections.abc import Mapping
from pathlib import Path

from fi_doctor.facts import cgroups
from fi_doctor.facts.container import read_container
from fi_doctor.facts.environment import neutralise, read_environment, read_image
from fi_doctor.model import Missing, SystemFacts
from fi_doctor.model.numbers import whole

__all__ = [
    "parse_meminfo",
    "parse_os_release",
    "read_environment",
    "read_namespaces",
    "read_size",
    "read_system",
    "unbounded",
    "usable_cpus",
]

# The first namespaces of a kernel have fixed numbers: include/linux/proc_ns.h, PROC_IPC_INIT_INO, PROC_PID_INIT_INO.
_OF_THE_HOST = ("ipc:[4026531839]", "pid:[4026531836]")
_OS_RELEASE = ("etc/os-release", "usr/lib/os-release")


def read_system(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> SystemFacts:
    """The machine; environ tells of container and image, root is where its files are."""
    variables = os.environ if environ is None else environ
    uname = os.uname()
    memory = _read_meminfo(root / "proc/meminfo")
    ipc, pid = read_namespaces(root / "proc/self")
    return SystemFacts(
        os=_read_os(root),
        kernel=uname.release,
        libc=_read_libc(),
        machine=uname.machine,
        container=read_container(variables, root),
        image=read_image(variables),
        cpus=usable_cpus(_allowed_cpus(), cgroups.read_cpu_quota(root)),
        memory_total_mib=_amount(memory, "MemTotal"),
        memory_available_mib=_amount(memory, "MemAvailable"),
        memory_limit_mib=cgroups.read_memory_limit(root),
        memory_left_mib=cgroups.read_memory_left(root),
        shm_mib=read_size(root / "dev/shm"),
        uid=os.getuid(),
        own_ipc_namespace=ipc,
        own_pid_namespace=pid,
        hostname=neutralise(uname.nodename) or Missing(reason="it has none"),
    )


def unbounded(root: Path = Path("/")) -> tuple[str, ...]:
    """What nothing bounds of what probes may take, as sentences."""
    is_held = os.geteuid() != 0 and resource.getrlimit(resource.RLIMIT_NPROC)[0] != resource.RLIM_INFINITY
    if is_held or cgroups.limits_processes(root):
        return ()
    who = "no limit of processes holds root" if os.geteuid() == 0 else "this user has no limit of processes (ulimit -u)"
    return (f"Nothing bounds how many processes a probe may start: {who}, and no control group has one (pids.max)",)


def parse_os_release(text: str) -> dict[str, str]:
    """os-release as a dictionary. Source: os-release(5): assignments that a shell would read."""
    values = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            try:
                values[name] = "".join(shlex.split(value))
            except ValueError:  # quotes that do not close
                values[name] = value.strip("\"'")
    return values


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in MiB."""
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and (number := whole(words[0])) is not None and words[1] == "kB":
            values[name] = number >> 10
    return values


def usable_cpus(allowed: int, quota: cgroups.Quota | Missing) -> int:
    """CPUs that may be kept busy: more running jobs than a quota grants are only throttled, so it is rounded down."""
    return max(1, allowed if isinstance(quota, Missing) else min(allowed, int(quota.cpus)))


def read_size(folder: Path) -> int | Missing:
    """Size of the file system in MiB: in containers /dev/shm is 64 MiB unless --shm-size or --ipc=host is given."""
    try:
        stat = os.statvfs(folder)
    except OSError as error:
        return Missing(reason=f"{folder} cannot be read: {error.strerror}")
    return stat.f_blocks * stat.f_frsize >> 20


def read_namespaces(process: Path) -> tuple[bool | Missing, bool | Missing]:
    """Whether its IPC and PID namespaces are others than the host's; process: its folder in /proc."""
    return _read_own_namespace(process / "ns/ipc"), _read_own_namespace(process / "ns/pid")


def _read_os(root: Path) -> str:
    for name in _OS_RELEASE:
        try:
            values = parse_os_release((root / name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if pretty := values.get("PRETTY_NAME") or values.get("NAME"):
            return neutralise(pretty)
    return f"{platform.system()} without an os-release file"


def _read_libc() -> str:
    """The C library as in "glibc 2.36"; another than glibc tells no version."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "not glibc"
    except (ValueError, OSError):
        return "not glibc"


def _allowed_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _read_meminfo(path: Path) -> dict[str, int] | Missing:
    try:
        return parse_meminfo(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return Missing(reason=f"{path} cannot be read: {error.strerror}")


def _amount(values: dict[str, int] | Missing, name: str) -> int | Missing:
    if isinstance(values, Missing):
        return values
    return values[name] if name in values else Missing(reason=f"/proc/meminfo has no {name}")


def _read_own_namespace(link: Path) -> bool | Missing:
    """Whether it is another than the host's. Below a sandbox with a kernel of its own, that one is the host."""
    try:
        return str(link.readlink()) not in _OF_THE_HOST
    except OSError as error:
        return Missing(reason=f"{link} cannot be read: {error.strerror}")
