"""CUDA at run time: the libraries that a process of the examined interpreter which imports torch would load."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fi_doctor.facts import recorded
from fi_doctor.facts.files import matching, read_whole
from fi_doctor.facts.loader import ElfOf, Mapped, Process, Unresolved, default_folders, read_cache, read_elf
from fi_doctor.facts.packages import Survey, torch_cuda
from fi_doctor.facts.torch_loading import Torch, load_torch
from fi_doctor.model import Library, Missing

# ruff: noqa: PTH113, PTH118, PTH119, PTH120, PTH202, PTH208 - paths are joined as ld.so joins them, and Path would rewrite them

NAMES = ("cudart", "nvrtc", "cublas", "cublasLt", "cudnn", "nccl", "cuda")

_WHEELS = {
    "cudart": "nvidia-cuda-runtime",
    "nvrtc": "nvidia-cuda-nvrtc",
    "cublas": "nvidia-cublas",
    "cublasLt": "nvidia-cublas",
    "cudnn": "nvidia-cudnn",
    "nccl": "nvidia-nccl",
}
# Old torch wheels bring libcudart-d0da41ae.so.11.0 in torch/lib.
_FILE = re.compile(rf"^lib({'|'.join(NAMES)})(?:-[0-9a-f]{{6,}})?\.so((?:\.\d+)*)$")


class Wheel(NamedTuple):
    """One copy of a distribution that may own a library."""

    name: str  # canonical, "nvidia-cuda-runtime-cu12"
    version: str
    location: str  # the folder on sys.path
    record: str  # its RECORD file


class Target(NamedTuple):
    """The examined interpreter as the loader sees it."""

    program: str
    sys_path: tuple[str, ...]
    torch: Torch | None
    wheels: tuple[Wheel, ...]


class _Search(NamedTuple):
    """What every library is looked up in."""

    process: Process
    unresolved: tuple[Unresolved, ...]
    copies: dict[str, list[str]]  # short name -> every file, each once, in the order of the folders
    target: Target
    toolkits: tuple[str, ...]


def read_libraries(
    environ: Mapping[str, str], survey: Survey, elf_of: ElfOf = read_elf
) -> dict[str, Library | Missing]:
    """The CUDA libraries by short name: NAMES. What is not found without the cache may be in it."""
    cache = read_cache(environ)
    if not isinstance(cache, Missing):
        return find_libraries(environ, make_target(survey), cache, elf_of)
    found = find_libraries(environ, make_target(survey), {}, elf_of)
    return {name: cache if isinstance(library, Missing) else library for name, library in found.items()}


def make_target(survey: Survey) -> Target:
    """What the loader needs of a survey."""
    origin, cuda = survey.modules.get("torch"), torch_cuda(survey)
    major = cuda.partition(".")[0] if isinstance(cuda, str) else ""
    return Target(
        program=survey.executable,
        sys_path=survey.sys_path,
        torch=Torch(os.path.dirname(origin), major) if isinstance(origin, str) else None,
        wheels=tuple(
            Wheel(copy.name, copy.version, copy.location, os.path.join(copy.metadata, "RECORD"))
            for copy in survey.distributions
            if isinstance(copy.version, str) and (copy.name.startswith("nvidia-") or copy.name == "torch")
        ),
    )


def find_libraries(
    environ: Mapping[str, str], target: Target, cache: Mapping[str, str], elf_of: ElfOf = read_elf
) -> dict[str, Library | Missing]:
    """The libraries of NAMES as a process of this target would map them; cache: ld.so.cache as name -> path."""
    process = Process(
        library_path=environ.get("LD_LIBRARY_PATH", ""), cache=cache, program=target.program, elf_of=elf_of
    )
    for preload in re.split("[ :]", environ.get("LD_PRELOAD", "")):
        found = process.find(preload) if preload else None
        if found is not None:
            process.open(found.path)
    unresolved = load_torch(process, target.torch, target.sys_path) if target.torch else ()
    if target.torch and target.torch.cuda_major and _mapped(process, "nvrtc") is None:
        # Releases that do not link nvrtc open this one when a kernel is first compiled.
        process.open(os.path.join(target.torch.root, "lib", "libcaffe2_nvrtc.so"), partial=True)
    toolkits = _toolkits(environ)
    folders = (*_site_folders(target), *process.library_path, *(f"{root}/lib64" for root in toolkits))
    copies = _list_copies((*folders, *default_folders()), cache.values())
    search = _Search(process, unresolved, copies, target, toolkits)
    return {name: _find(name, search) for name in NAMES}


def _find(name: str, search: _Search) -> Library | Missing:
    found = _mapped(search.process, name)
    if found is None:
        lost = next((each for each in search.unresolved if _short_name(each.name) == name), None)
        if lost is not None:
            return Missing(reason=_why_lost(lost, search.copies[name]))
        found = _plain(name, search)
    if found is None:
        return Missing(reason=_why_absent(name, search.copies[name]))
    real = os.path.realpath(found.path)
    wheel = _owner(name, real, search.target)
    return Library(
        name=name,
        path=os.path.join(os.path.realpath(os.path.dirname(found.path)), os.path.basename(found.path)),
        version=_version(real, wheel),
        origin=_origin(found, search),
        package=wheel if isinstance(wheel, Missing) else f"{wheel.name} {wheel.version}",
        copies=tuple(sorted(path for path in search.copies[name] if os.path.realpath(path) != real)),
    )


def _mapped(process: Process, name: str) -> Mapped | None:
    """The first mapped object of this short name: its symbols win."""
    return next((each for each in process.mapped if _short_name(os.path.basename(each.path)) == name), None)


def _short_name(file: str) -> str:
    match = _FILE.match(file)
    return match.group(1) if match else ""


def _plain(name: str, search: _Search) -> Mapped | None:
    """What a dlopen without a path finds; of several major versions in reach the newest."""
    files = {os.path.basename(path) for path in search.copies[name]}
    for file in sorted(files, key=_number, reverse=True):
        found = search.process.find(file)
        if found is not None and _number(file):
            return found
    return None


def _number(file: str) -> tuple[int, ...]:
    """The version in a file's name; () for the unversioned link."""
    match = _FILE.match(file)
    return tuple(int(part) for part in match.group(2).split(".") if part) if match else ()


def _why_lost(lost: Unresolved, copies: list[str]) -> str:
    found = f"; the loader does not look at {', '.join(copies)}" if copies else ""
    return f"{lost.name}, which {lost.asked_by} needs, is not found, so that import torch fails{found}"


def _why_absent(name: str, copies: list[str]) -> str:
    found = f"; the loader does not look at {', '.join(copies)}" if copies else ""
    return (
        f"torch brings no lib{name}, and there is none on LD_LIBRARY_PATH, in ld.so.cache or the default folders{found}"
    )


def _owner(name: str, real: str, target: Target) -> Wheel | Missing:
    """The wheel whose RECORD names the file. Of two that wrote the same file the one that recorded its size."""
    base = "torch" if "/torch/lib/" in real else _WHEELS.get(name, "")
    candidates = [wheel for wheel in target.wheels if base and re.fullmatch(rf"{base}(-cu\d+)?", wheel.name)]
    owners = {wheel: size for wheel in candidates if (size := _recorded_size(wheel, real)) is not None}
    if len(owners) > 1:
        actual = str(os.path.getsize(real))
        owners = {wheel: size for wheel, size in owners.items() if size == actual} or owners
    if len(owners) == 1:
        return next(iter(owners))
    if owners:
        claims = " and ".join(f"{wheel.name} {wheel.version}" for wheel in owners)
        return Missing(reason=f"{claims} both record {real}")
    return Missing(reason=f"no wheel records {real}")


def _recorded_size(wheel: Wheel, real: str) -> str | None:
    """What the wheel's RECORD says of the file: its size, "" without one; None when it does not name it."""
    root = os.path.realpath(wheel.location) + os.sep
    if not real.startswith(root):
        return None
    try:
        text = read_whole(wheel.record, recorded.LARGEST_BYTES).decode(errors="replace")
    except OSError:
        return None
    match = re.search(rf"^{re.escape(real[len(root) :])},[^,\n]*,(\d*)\s*$", text, re.MULTILINE)
    return match.group(1) if match else None


def _version(real: str, wheel: Wheel | Missing) -> str | Missing:
    """From the real file's name (libcudart.so.13.0.96), else the wheel's."""
    number = _number(os.path.basename(real))
    if len(number) > 1:
        return os.path.basename(real).partition(".so.")[2]
    if isinstance(wheel, Wheel) and wheel.name != "torch":
        return wheel.version
    return Missing(reason=f"{real} tells no more than the major version, and no wheel owns it")


def _origin(found: Mapped, search: _Search) -> str:
    """Whose file it is: a wheel's, a toolkit's, the system's, or just where the variable or an RPATH points."""
    if found.how == "LD_LIBRARY_PATH":
        return found.how
    real = os.path.realpath(found.path)
    if _is_below(real, search.target.sys_path):
        return "wheel"
    if _is_below(real, search.toolkits):
        return "toolkit"
    return "RPATH" if found.how in ("RPATH", "RUNPATH") else "system"


def _is_below(real: str, folders: Iterable[str]) -> bool:
    return any(real.startswith(os.path.realpath(folder) + os.sep) for folder in folders if folder)


def _toolkits(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The CUDA toolkits that may hold libraries."""
    named = [environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    return (*named, *map(str, matching("/usr/local", "cuda*")))


def _site_folders(target: Target) -> list[str]:
    """Where wheels of both layouts put libraries: nvidia/cuda_runtime/lib, nvidia/cu13/lib; and torch's own."""
    nvidia = [
        str(path) for entry in target.sys_path if entry for path in matching(os.path.join(entry, "nvidia"), "*/lib")
    ]
    return [*nvidia, *([os.path.join(target.torch.root, "lib")] if target.torch else [])]


def _list_copies(folders: Iterable[str], cached: Iterable[str]) -> dict[str, list[str]]:
    """Every file of NAMES in these folders and in ld.so.cache, each once however many links lead to it."""
    found: dict[str, dict[str, str]] = {name: {} for name in NAMES}
    paths = [os.path.join(folder, file) for folder in dict.fromkeys(folders) for file in _listed(folder)]
    # The versioned name is the one that a loader looks for, so it stands for all links to a file.
    for path in (*sorted(paths, key=lambda path: path.endswith(".so")), *cached):
        name = _short_name(os.path.basename(path))
        if name and os.path.isfile(path):
            found[name].setdefault(os.path.realpath(path), path)
    return {name: list(files.values()) for name, files in found.items()}


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
