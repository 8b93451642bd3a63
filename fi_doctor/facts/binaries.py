"""Binaries that a server would load: those of vLLM and torch, prebuilt and cached FlashInfer modules, and others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from fi_doctor.facts.elf import ElfFile, NotReadableError
from fi_doctor.facts.fatbin import gpu_code
from fi_doctor.facts.loader import Process
from fi_doctor.facts.packages import Survey
from fi_doctor.model import Binary, FlashInfer, Missing

# ruff: noqa: PTH100, PTH110, PTH112, PTH118, PTH120, PTH208 - many files, and names are all that is wanted

NAMED = "--binary"
CACHED, JIT_CACHE = "JIT cache", "flashinfer-jit-cache"

_MOST_FILES = 4096
_OF_VLLM = ("", "vllm_flash_attn", "third_party/*")
_OF_TORCH = re.compile(r"lib(?:torch_cuda|torch_nvshmem|c10_cuda)\w*\.so")
_CUDA = re.compile(r"lib(?:cudart|nvrtc|cublas|cublasLt|cudnn|nccl|cusparse|cusolver|curand|cufft|nvJitLink)\.so\.")
_DRIVER = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.1")  # a machine without a driver is told of elsewhere


def read_binaries(
    seen: Survey, flashinfer: FlashInfer | Missing, process: Process | None, named: tuple[str, ...] = ()
) -> dict[str, Binary | Missing]:
    """Path -> what is in the file; of those of packages only what has GPU code or cannot be read.

    process: one that has imported torch, in which the loader's search is replayed; None where nothing is known of it.
    named: files and folders that somebody asks about.
    """
    found: dict[str, Binary | Missing] = {}
    for package, path in _paths(seen, flashinfer, named):
        if len(found) >= _MOST_FILES:
            break
        if path in found:  # somebody asked about it by name
            continue
        binary = read_binary(path, package, process)
        if isinstance(binary, Missing) or binary.code or package == NAMED:
            found[path] = binary
    return found


def read_binary(path: str, package: str, process: Process | None) -> Binary | Missing:
    """One file."""
    try:
        with closing(ElfFile(path)) as elf:
            code = gpu_code(elf)
            needed = elf.dynamic()["NEEDED"]
    except OSError as error:
        return Missing(reason=f"{path}: {error.strerror or error}")
    except NotReadableError as error:
        return Missing(reason=f"{path} {error}")
    return Binary(
        package=package,
        code=code.entries,
        ptx=code.ptx,
        needs=tuple(name for name in needed if _CUDA.match(name)),
        not_found=_not_found(path, process),
    )


def _not_found(path: str, process: Process | None) -> tuple[str, ...] | Missing:
    """What dlopen would miss; the imagined process is left as it was."""
    if process is None:
        return Missing(reason="what a process with torch in it finds is not known")
    names = [one.name for one in process.missing(path)]
    return tuple(dict.fromkeys(name for name in names if not _DRIVER.fullmatch(name)))


def _paths(seen: Survey, flashinfer: FlashInfer | Missing, named: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for place in named:
        yield from ((NAMED, path) for path in _below(place))
    if root := _root(seen, "vllm"):
        for folder in _OF_VLLM:
            yield from (("vllm", str(path)) for path in sorted(Path(root).glob(os.path.join(folder, "*.so"))))
    if root := _root(seen, "torch"):
        place = os.path.join(root, "lib")
        yield from (("torch", os.path.join(place, name)) for name in _listed(place) if _OF_TORCH.fullmatch(name))
    if isinstance(flashinfer, Missing):
        return
    if isinstance(flashinfer.cache_dir, str):
        ops = os.path.join(flashinfer.cache_dir, "cached_ops")
        yield from ((CACHED, os.path.join(ops, name, f"{name}.so")) for name in flashinfer.cached_modules)
    for entry in seen.sys_path if flashinfer.jit_cache_modules else ():
        for prebuilt in sorted(Path(entry or ".").glob("flashinfer_jit_cache*/jit_cache")):
            paths = (os.path.join(prebuilt, name, f"{name}.so") for name in flashinfer.jit_cache_modules)
            yield from ((JIT_CACHE, path) for path in paths if os.path.exists(path))


def _below(place: str) -> Iterator[str]:
    """The file, or the shared objects below the folder; links to folders are not followed."""
    path = os.path.abspath(place)
    if not os.path.isdir(path):
        yield path
    for folder, folders, files in os.walk(path):
        folders.sort()
        yield from (os.path.join(folder, name) for name in sorted(files) if re.search(r"\.so(?:\.\d+)*$", name))


def _root(seen: Survey, name: str) -> str:
    origin = seen.modules.get(name)
    return os.path.dirname(origin) if isinstance(origin, str) else ""


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
