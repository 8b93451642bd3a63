"""What of the NVIDIA driver is in this container or machine: device nodes, and which file libcuda.so.1 is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from os.path import realpath
from pathlib import Path

from fi_doctor.facts.files import matching, read_whole
from fi_doctor.facts.loader import default_folders, read_cache
from fi_doctor.model import DriverFiles, Missing

# ruff: noqa: PTH113, PTH116, PTH118, PTH120, PTH208 - paths are joined as ld.so joins them

_LIBRARY = "libcuda.so.1"
_NODE = re.compile(r"nvidia(?:\d+|ctl|-uvm|-modeset)")
_FURTHER = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64")
_OF_A_DRIVER = re.compile(r"libcuda\.so\.\d{2,}\.")  # libcuda.so.580.95.05
# A stub has some 100 KiB and a driver's library some 20 MiB and more; that of WSL, which only hands on, is small too.
_SMALL = 1 << 20
COMPAT_FOLDERS = frozenset({"compat", "cuda-compat"})  # NVIDIA's packages and images; conda


def read_driver_files(environ: Mapping[str, str], root: Path = Path("/"), *, elsewhere: str = "") -> DriverFiles:
    """Device nodes and the library; nothing is loaded.

    elsewhere: the root of a process with files of its own, whose links would lead out of it.
    """
    if elsewhere:
        unknown = Missing(reason="links in another mount namespace are not followed")
        return DriverFiles(nodes=_nodes(Path(elsewhere)), libcuda=unknown, stub="")
    listed, own = _listed(environ), _of_system(root)
    found = _first(listed, own, environ, root)
    real = (
        Missing(reason=f"there is no {_LIBRARY} on the library path", absent=True) if found is None else realpath(found)
    )
    return DriverFiles(
        nodes=_nodes(root),
        libcuda=real,
        stub=_why_stub(found, real) if found is not None and isinstance(real, str) else "",
        compat=_compat(root),
        own_folder=next((os.path.dirname(path) for path in (*listed, *own) if _is_driver(realpath(path))), ""),
    )


def _nodes(root: Path) -> tuple[str, ...] | Missing:
    try:
        names = os.listdir(root / "dev")
    except OSError as error:
        return Missing(reason=f"{root / 'dev'} cannot be read: {error.strerror}")
    return tuple(f"/dev/{name}" for name in sorted(names) if _NODE.fullmatch(name))


def _listed(environ: Mapping[str, str]) -> list[str]:
    """What LD_LIBRARY_PATH has of it, which the dynamic linker takes first."""
    return list(_in(folder for folder in re.split("[:;]", environ.get("LD_LIBRARY_PATH", "")) if folder))


def _of_system(root: Path) -> list[str]:
    """What the linker's own folders and its cache have of it."""
    folders = (str(root / folder[1:]) for folder in (*default_folders(), *_FURTHER))
    return [*_in(folders), *_in_cache(root)]


def _first(listed: list[str], own: list[str], environ: Mapping[str, str], root: Path) -> str | None:
    """As the dynamic linker finds it. Its cache comes before its folders, and only ldconfig tells the cache's order.

    It is asked where there are several: a driver's, and that of a cuda-compat package.
    """
    if listed:
        return listed[0]
    if len(set(map(realpath, own))) > 1 and root == Path("/"):
        cache = read_cache(environ)
        first = None if isinstance(cache, Missing) else cache.get(_LIBRARY)
        if first and os.path.isfile(first):
            return first
    return own[0] if own else None


def _is_driver(path: str) -> bool:
    return bool(_OF_A_DRIVER.search(path)) and COMPAT_FOLDERS.isdisjoint(path.split("/"))


def _in(folders: Iterable[str]) -> Iterator[str]:
    return (path for folder in folders if os.path.isfile(path := os.path.join(folder, _LIBRARY)))


def _compat(root: Path) -> tuple[str, ...]:
    """What cuda-compat packages put beside the toolkits (https://docs.nvidia.com/deploy/cuda-compatibility)."""
    found = (os.path.realpath(path) for path in matching(root / "usr/local", f"cuda*/compat/{_LIBRARY}"))
    return tuple(dict.fromkeys(path for path in found if os.path.isfile(path)))


def _in_cache(root: Path) -> Iterator[str]:
    """Paths in the bytes of ld.so.cache, which ends each name and each path with a null character."""
    try:
        data = read_whole(root / "etc/ld.so.cache")
    except OSError:
        return
    for path in re.findall(rb"\0(/[^\0]{1,400}/libcuda\.so\.1)(?=\0)", data):
        if os.path.isfile(path):
            yield os.fsdecode(path)


def _why_stub(found: str, real: str) -> str:
    """In words; "" where it is a driver's."""
    if "stubs" in (*found.split("/"), *real.split("/")):
        return f"{found} lies among the CUDA toolkit's stubs"
    if _OF_A_DRIVER.search(real) or "/wsl/" in real:
        return ""
    try:
        size = os.stat(real).st_size
    except OSError:
        return ""
    return f"{found} has {size >> 10} KiB and no driver's version in its name" if size < _SMALL else ""
