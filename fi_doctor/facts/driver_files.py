"""What of the NVIDIA driver is in this container or machine: device nodes, and which file libcuda.so.1 is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fi_doctor.facts.files import read_whole
from fi_doctor.facts.loader import default_folders
from fi_doctor.model import DriverFiles, Missing

# ruff: noqa: PTH113, PTH116, PTH118, PTH208 - paths are joined as ld.so joins them

_LIBRARY = "libcuda.so.1"
_NODE = re.compile(r"nvidia(?:\d+|ctl|-uvm|-modeset)")
_FURTHER = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64")
_OF_A_DRIVER = re.compile(r"libcuda\.so\.\d{2,}\.")  # libcuda.so.580.95.05
# A stub has some 100 KiB and a driver's library some 20 MiB and more; that of WSL, which only hands on, is small too.
_SMALL = 1 << 20


def read_driver_files(environ: Mapping[str, str], root: Path = Path("/"), *, elsewhere: str = "") -> DriverFiles:
    """Device nodes and the library; nothing is loaded.

    elsewhere: the root of a process with files of its own, whose links would lead out of it.
    """
    if elsewhere:
        unknown = Missing(reason="links in another mount namespace are not followed")
        return DriverFiles(nodes=_nodes(Path(elsewhere)), libcuda=unknown, stub="")
    found = next(_places(environ, root), None)
    if found is None:
        libcuda: str | Missing = Missing(reason=f"there is no {_LIBRARY} on the library path", absent=True)
        return DriverFiles(nodes=_nodes(root), libcuda=libcuda, stub="")
    real = os.path.realpath(found)
    return DriverFiles(nodes=_nodes(root), libcuda=real, stub=_why_stub(found, real))


def _nodes(root: Path) -> tuple[str, ...] | Missing:
    try:
        names = os.listdir(root / "dev")
    except OSError as error:
        return Missing(reason=f"{root / 'dev'} cannot be read: {error.strerror}")
    return tuple(f"/dev/{name}" for name in sorted(names) if _NODE.fullmatch(name))


def _places(environ: Mapping[str, str], root: Path) -> Iterator[str]:
    """Where it is found, in the order of the dynamic linker; what only the cache of ld.so names is looked for there."""
    listed = [folder for folder in re.split("[:;]", environ.get("LD_LIBRARY_PATH", "")) if folder]
    own = [*default_folders(), *_FURTHER]
    folders = [*listed, *(str(root / folder[1:]) for folder in own)]
    yield from (path for folder in folders if os.path.isfile(path := os.path.join(folder, _LIBRARY)))
    yield from _in_cache(root)


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
