"""What the folders of sys.path hold beside the packages that are looked at, read from their listings alone.

What an interrupted pip leaves: it renames a folder to "~" and the rest of its name before it removes it, and from the
second try on puts more of "-~.=%0123456789" behind the tilde (pip/_internal/utils/temp_dir.py, AdjacentTempDirectory).
What uv made says so in its pyvenv.cfg ("uv = 0.9.2").
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fi_doctor.facts.files import is_file, read_text
from fi_doctor.facts.packages import MODULES, NAMES, PROVIDER_PREFIX, Survey
from fi_doctor.model import Missing, Site

# ruff: noqa: PTH100, PTH109, PTH118, PTH119, PTH120, PTH208 - folders hold hundreds of names, and names are all that is wanted

_LEFTOVER = re.compile(r"~[-~.=%0-9]*(?P<rest>[A-Za-z_].*)")
_OF_CUDA = re.compile(r"(?:cu|cuda)(?P<major>1[1-9])(?:x|\d)?")
_ENDINGS = (".dist-info", ".egg-info", ".egg")
# "PyYAML-6.0.2-py3.11.egg-info"; what pip renamed begins with a tilde.
_METADATA = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.]*?)(?:-(?P<version>[^-]+)(?:-py[\d.]+)?(?:-[\w.-]+)?)?\.(?:dist-info|egg-info|egg)",
    re.ASCII,
)
_FAMILIES = ("nvidia-", "cupy-cuda", "nvshmem4py-", "onnxruntime-gpu-", PROVIDER_PREFIX)
_SEVERAL = "nvidia-cutlass-dsl"  # its parts for CUDA 12 and 13 are made to lie side by side
_MOST = 64
_OWN = {*NAMES, *MODULES.values(), "flashinfer_cubin", "flashinfer_jit_cache"}


def read_site(survey: Survey, environ: Mapping[str, str]) -> Site | Missing:
    """What the listings say; Missing when none of the folders can be read. environ: of what is started."""
    folders = list(dict.fromkeys(folder for folder in survey.sys_path if folder))
    names = {folder: listed for folder in folders if (listed := _list(folder)) is not None}
    if not names:
        return Missing(reason="no folder of sys.path can be listed")
    distributions = {name: place for folder, listed in names.items() for name, place in _distributions(folder, listed)}
    unlisted = next((folder for folder in folders if folder not in names and os.path.lexists(folder)), "")
    return Site(
        leftovers=tuple(sorted(_leftovers(names)))[:_MOST],
        broken=dict(sorted((name, place) for name, place in distributions.items() if _is_broken(name, place))[:_MOST]),
        cuda_majors=dict(sorted((name, of) for name in distributions if (of := cuda_major(name)))),
        by_uv=_is_by_uv(survey),
        has_ray="ray" in distributions,
        here=_here(survey),
        uncompiled=tuple(_uncompiled(survey, environ.get("PYTHONPYCACHEPREFIX", ""))),
        by_pth=dict(sorted(_by_pth(names, environ.get("PYTHONPATH", "")))),
        installed=_installed(names),
        unlisted=f"{unlisted} cannot be listed" if unlisted else "",
    )


def cuda_major(name: str) -> int:
    """The CUDA major in a distribution's canonical name, "nvidia-cudnn-cu12" -> 12; 0 where it names none."""
    if not name.startswith(_FAMILIES) or name.startswith(_SEVERAL):
        return 0
    parts = (_OF_CUDA.fullmatch(part) for part in name.split("-"))
    return next((int(found["major"]) for found in parts if found), 0)


def _list(folder: str) -> list[str] | None:
    try:
        return os.listdir(folder)
    except OSError:
        return None


def _distributions(folder: str, listed: list[str]) -> Iterator[tuple[str, str]]:
    for name in listed:
        if name.endswith(".dist-info") and not name.startswith("~"):
            yield re.sub(r"[-_.]+", "-", name.partition("-")[0]).lower(), f"{folder}/{name}"


def _installed(names: dict[str, list[str]]) -> dict[str, str]:
    """Every distribution with its version: that of the first folder; "" where it has two, as upgrades leave them."""
    found: dict[str, str] = {}
    for folder, listed in names.items():
        here: dict[str, set[str]] = {}
        for entry in (os.path.basename(folder) if name == "EGG-INFO" else name for name in listed):
            if entry.endswith(_ENDINGS) and (match := _METADATA.fullmatch(entry)):
                name = re.sub(r"[-_.]+", "-", match["name"]).lower()
                here.setdefault(name, set()).add(match["version"] or "")
        for name, versions in here.items():
            found.setdefault(name, versions.pop() if len(versions) == 1 else "")
    return dict(sorted(found.items()))


def _by_pth(names: dict[str, list[str]], pythonpath: str) -> Iterator[tuple[str, str]]:
    """Folders of sys.path that a .pth file names, as a line or in code that it runs."""
    there = names.keys() - set(pythonpath.split(":"))
    files = [(folder, name) for folder, listed in names.items() for name in listed if name.endswith(".pth")]
    for home, name in files[:_MOST]:
        text = read_text(Path(f"{home}/{name}"))
        lines = text.splitlines() if isinstance(text, str) else []
        added = {os.path.normpath(os.path.join(home, line.strip())) for line in lines}
        for folder in there - {home}:
            if folder in added or any(f"{quote}{folder}{quote}" in line for line in lines for quote in "'\""):
                yield folder, f"{home}/{name}"


def _leftovers(names: dict[str, list[str]]) -> Iterator[str]:
    for folder, listed in names.items():
        for name in listed:
            found = _LEFTOVER.fullmatch(name)
            if found and _is_end_of_ours(found["rest"]):
                yield f"{folder}/{name}"


def _is_end_of_ours(rest: str) -> bool:
    """Whether it is the end of a name that is looked at: a folder "flashinfer", or its .dist-info."""
    end = re.sub(r"[-_.]+", "-", rest.removesuffix(".dist-info").partition("-")[0]).lower()
    return len(end) > 2 and any(own.replace("_", "-").endswith(end) for own in _OWN)


def _is_broken(name: str, place: str) -> bool:
    """Without METADATA, or without the RECORD that pip or uv wrote, nothing can uninstall or compare it."""
    if name not in NAMES and not name.startswith(PROVIDER_PREFIX):
        return False
    path = Path(place)
    if _size(path / "METADATA") == 0:
        return True
    installer = read_text(path / "INSTALLER")
    return isinstance(installer, str) and installer.strip() in {"pip", "uv"} and _size(path / "RECORD") == 0


def _size(path: Path) -> int:
    """0 where there is no such file, nor where its link leads; 1 for what cannot be looked at, which says nothing."""
    try:
        return path.stat().st_size
    except OSError as error:
        return 0 if error.errno in (errno.ENOENT, errno.ELOOP) else 1


def _is_by_uv(survey: Survey) -> bool:
    text = read_text(Path(survey.prefix) / "pyvenv.cfg")
    return isinstance(text, str) and re.search(r"^uv\s*=", text, re.MULTILINE) is not None


def _uncompiled(survey: Survey, prefix: str) -> Iterator[str]:
    """Packages whose first file has no bytecode of this Python, neither from pip nor from an earlier import (PEP 3147).

    prefix: PYTHONPYCACHEPREFIX, below which all of it is kept.
    """
    if survey.implementation.lower() != "cpython":
        return
    tag = "".join(survey.version.split(".")[:2])
    for module in ("flashinfer", "torch", "vllm"):
        origin = survey.modules.get(module)
        if isinstance(origin, str) and origin.endswith("/__init__.py"):
            folder = os.path.dirname(origin)
            kept = f"{prefix}{os.path.abspath(folder)}" if prefix else f"{folder}/__pycache__"
            if not is_file(f"{kept}/__init__.cpython-{tag}.pyc"):
                yield folder


def _here(survey: Survey) -> dict[str, str]:
    """Packages in the current folder, which `python -m` takes before all others."""
    try:
        folder = os.getcwd()
    except OSError:
        return {}
    if any(os.path.realpath(place) == os.path.realpath(folder) for place in survey.sys_path if place):
        return {}
    found = {}
    for name in ("flashinfer", "vllm", "torch", "triton"):
        path, origin = f"{folder}/{name}/__init__.py", survey.modules.get(name)
        if is_file(path) and isinstance(origin, str) and os.path.realpath(origin) != os.path.realpath(path):
            found[name] = path
    return found
