"""A machine and a serving process as plain facts: all is well by default, everything else by change."""

from __future__ import annotations

import factory as make
from msgspec.structs import replace

from fi_doctor.model import DriverFiles, Facts, Folder, LoadedLibrary, Machine, Network, Server, User

CACHE = "/home/user/.cache/flashinfer/0.7.2.post1/90a"


def user(uid: int = 1000, **changes) -> User:
    base = User(
        uid=uid,
        gid=uid,
        groups=(),
        name="user",
        home="/home/user",
        found_by="this process",
        is_own=True,
        overrides_modes=False,
    )
    return replace(base, **changes)


def folder(purpose: str = "jit-cache", path: str = CACHE, **changes) -> Folder:
    base = Folder(
        purpose=purpose,
        path=path,
        nearest=path,
        owner=1000,
        mode="0755",
        writable=True,
        why="the kernel says so (access)",
        blocked=(),
        blocked_count=0,
        mount="/",
        filesystem="ext4",
        read_only=False,
        noexec=False,
        free_mib=200_000,
        free_inodes=1_000_000,
        quota=make.missing("no quotas for users are switched on there"),
    )
    return replace(base, **changes)


def machine(*folders: Folder, **changes) -> Machine:
    """These folders, or those of a healthy machine."""
    base = Machine(
        user=user(),
        folders=folders
        or (
            folder(),
            folder("cubins", "/home/user/.cache/flashinfer/cubins"),
            folder("deep-gemm", "/home/user/.tensorrt_llm"),
            folder("temporary", "/tmp"),
        ),
        network=Network(default_route=True, proxies=(), no_download="", repository_is_local=False),
        driver_files=DriverFiles(
            nodes=("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"),
            libcuda="/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",
            stub="",
        ),
    )
    return replace(base, **changes)


def with_folders(*folders: Folder, **changes) -> Facts:
    return make.facts(machine=machine(*folders), **changes)


def server(**changes) -> Server:
    base = Server(
        pid=4711,
        parent=1,
        command="/venv/bin/python /venv/bin/vllm serve facebook/opt-125m",
        executable="/usr/bin/python3.12",
        python=make.PYTHON,
        user=user(found_by="--pid 4711"),
        limits={"Max open files": "65535 files"},
        cgroup="/system.slice/vllm.service",
        libraries=(
            LoadedLibrary(name="cudart", path=f"{make.SITE}/nvidia/cu13/lib/libcudart.so.13", deleted=False),
            LoadedLibrary(name="cuda", path="/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", deleted=False),
        ),
        own_mounts=False,
        root="/",
        shell={},
    )
    return replace(base, **changes)


def served(environment: dict[str, str] | None = None, **changes) -> Facts:
    """A healthy machine with a process that serves, and has these variables."""
    return make.facts(machine=machine(), server=server(**changes), environment=environment or {})
