"""Toolkits that FlashInfer's JIT does not take: what its build lines would miss there; those of pip's wheels too."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fi_doctor.facts import toolchain
from fi_doctor.facts.files import matching, read_text, read_whole
from fi_doctor.facts.nvcc import Answer, Command, ask
from fi_doctor.model import Missing, Nvcc, OtherToolkit
from fi_doctor.workers import Workers

# What every module includes and links, and what only some do: MoE, bmm_fp8, FP8 block GEMM.
HEADERS = ("cuda_runtime.h", "cuda_bf16.h", "cuda/std/optional", "nv/target")
LIBRARIES = ("cudart", "cuda")
MODULE_HEADERS = ("cublas_v2.h", "cublasLt.h", "curand.h", "curand_kernel.h", "nvrtc.h")
MODULE_LIBRARIES = ("cublas", "cublasLt", "nvrtc")
CCCL_HEADERS = ("cuda/std/__cccl/version.h", "thrust/version.h")

# Where the linker looks in any case; `c++ -print-search-dirs` names the same on Debian, Fedora and their like.
SYSTEM_LIBRARIES = (
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)

# ruff: noqa: PTH113 - isfile is false where a folder may not be read; Path.is_file raises


def ask_wheels(sys_path: Iterable[str], environ: Mapping[str, str]) -> tuple[Nvcc, ...]:
    """Every nvcc that pip's wheels brought: nvidia/cu13/bin/nvcc of nvidia-cuda-nvcc 13."""
    found = [path for folder in sys_path if folder for path in matching(folder, "nvidia/*/bin/nvcc")]
    commands = [Command((str(path),), str(path), "pip") for path in dict.fromkeys(found) if os.access(path, os.X_OK)]
    if not commands:
        return ()
    with Workers() as pool:
        asked = [pool.submit(ask, command, environ) for command in commands]
    answers = (job.result() for job in asked)
    return tuple(answer.nvcc for answer in answers if isinstance(answer, Answer))


def read_toolkits(others: Iterable[Nvcc], *further: str) -> tuple[OtherToolkit, ...]:
    """The folders of these nvccs, each once. further: library folders of the linker's own."""
    homes = {home: nvcc for nvcc in others if (home := nvcc.home)}
    return tuple(_read(home, nvcc, further) for home, nvcc in sorted(homes.items()))


def include_folders(home: str) -> tuple[str, ...]:
    """Where FlashInfer and an nvcc of this toolkit look for headers."""
    roots = [f"{home}/include", *(str(path) for path in matching(home, "targets/*/include"))]
    return tuple(folder for root in roots for folder in (root, f"{root}/cccl"))


def read_cccl(folders: Sequence[str]) -> str | Missing:
    """The version of the CCCL whose headers are found first."""
    found = [toolchain.find_header(name, folders) for name in CCCL_HEADERS]
    path = next((path for path in found if isinstance(path, str)), None)
    if path is None:
        return found[0]
    try:
        return toolchain.parse_cccl(read_whole(Path(path)).decode(errors="replace"))
    except OSError as error:
        return Missing(reason=f"{path}: {error.strerror or error}")


def read_runtime(folders: Sequence[str]) -> str | Missing:
    """The release that the headers of the CUDA runtime are of, "13.0": CUDART_VERSION 13000."""
    found = toolchain.find_header("cuda_runtime_api.h", folders)
    if isinstance(found, Missing):
        return found
    text = read_text(Path(found))
    match = (
        None
        if isinstance(text, Missing)
        else re.search(r"^#define\s+CUDART_VERSION\s+(\d{1,12})\b", text, re.MULTILINE)
    )
    if match is None:
        return text if isinstance(text, Missing) else Missing(reason=f"{found} does not define CUDART_VERSION")
    number = int(match[1])
    return f"{number // 1000}.{number % 1000 // 10}"


def find_c_before_cxx(folders: Sequence[str] | Missing) -> str:
    """The folder in which stdlib.h is found too early, where <cstdlib> has none after it for its include_next.

    -isystem /usr/include under any other name than that moves it before the folders of C++.
    """
    listed = () if isinstance(folders, Missing) else tuple(folders)
    cxx = next((at for at, folder in enumerate(listed) if os.path.isfile(f"{folder}/cstdlib")), None)
    if cxx is None or any(os.path.isfile(f"{folder}/stdlib.h") for folder in listed[cxx + 1 :]):
        return ""
    return next((folder for folder in reversed(listed[:cxx]) if os.path.isfile(f"{folder}/stdlib.h")), "")


def _read(home: str, nvcc: Nvcc, further: Sequence[str]) -> OtherToolkit:
    headers = include_folders(home)
    # -L$cuda_home/lib64 and its stubs are all that FlashInfer names: pip's wheels have lib, and no unversioned names.
    libraries = (f"{home}/lib64", f"{home}/lib64/stubs", *filter(None, further), *SYSTEM_LIBRARIES)
    return OtherToolkit(
        home=home,
        nvcc=nvcc.path,
        lacks=(*_absent_headers(HEADERS, headers), *_absent_libraries(LIBRARIES, libraries)),
        modules_lack=(*_absent_headers(MODULE_HEADERS, headers), *_absent_libraries(MODULE_LIBRARIES, libraries)),
        cccl=read_cccl(headers),
    )


def _absent_headers(names: Sequence[str], folders: Sequence[str]) -> list[str]:
    return [name for name in names if not any(os.path.isfile(f"{folder}/{name}") for folder in folders)]


def _absent_libraries(names: Sequence[str], folders: Sequence[str]) -> list[str]:
    endings = (".so", ".a")
    return [
        f"lib{name}.so"
        for name in names
        if not any(os.path.isfile(f"{folder}/lib{name}{end}") for folder in folders for end in endings)
    ]
