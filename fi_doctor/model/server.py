"""A process that serves, as /proc shows it from outside."""

from __future__ import annotations

from fi_doctor.model.base import Data, Missing
from fi_doctor.model.machine import User


class LoadedLibrary(Data, frozen=True):
    """A CUDA library that the process has mapped."""

    name: str  # "cudart", "nccl", "cuda"
    path: str  # as that process sees it
    deleted: bool  # whether the file was removed or replaced since it was loaded


class Server(Data, frozen=True, tag_field="kind", tag="server"):
    """The process of --pid. Its variables, CPUs, memory and namespaces are those of the facts beside it."""

    pid: int
    parent: int
    command: str  # its words, secrets hidden
    executable: str  # /proc/PID/exe: without the links of a virtual environment
    python: str | Missing  # the interpreter that starts it, with those links
    user: User
    limits: dict[str, str]  # "Max open files" -> the soft limit, "1024" or "unlimited"
    cgroup: str  # "/system.slice/vllm.service"
    libraries: tuple[LoadedLibrary, ...] | Missing
    own_mounts: bool | Missing  # whether its mount namespace is another than that of fi-doctor, as in a container
    root: str  # where its file system is seen from here: "/" or "/proc/4711/root"
    shell: dict[str, str]  # the variables with which fi-doctor was started, by the same allow-list
    # Tools that builds start -> where each is on the PATH of the process, and of fi-doctor; "" where it is not.
    tools: dict[str, tuple[str, str]] = {}
