"""Shared objects with code for GPUs: what is in them, and whether a GPU can load it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from fi_doctor.model.base import Data, Missing

_CODE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


class Binary(Data, frozen=True, tag_field="kind", tag="binary"):
    """One shared object that a server would load."""

    package: str  # "vllm", "torch", "flashinfer-jit-cache", "JIT cache", "--binary"
    code: dict[str, int]  # architecture -> entries: {"sm_90a": 27, "compute_80": 19}; PTX is compute_
    ptx: str  # the newest version of the PTX language in it, "9.0"; "" without PTX
    needs: tuple[str, ...]  # the CUDA libraries that it is linked with, "libcudart.so.13"
    # What the loader would not find of all that it needs, in a process that has imported torch.
    not_found: tuple[str, ...] | Missing


class Loads(str, Enum):
    """How a GPU would load the code of a binary."""

    NATIVE = "native"  # machine code for it
    PTX = "by PTX JIT"  # the driver compiles it at the first load
    NOT = "not at all"
    HOST = "no GPU code"


def loads(code: Iterable[str], sm: int) -> Loads:
    """How a GPU of this compute capability (90, 103, 121) loads a binary with this code.

    A cubin runs on its own major version from its minor version on; with the suffix a on its own capability alone,
    with f on its family, which is the major version. PTX runs on everything newer, with a suffix as a cubin of it.
    Source: CUDA C++ Programming Guide, sections on binary, PTX and family-specific compatibility.
    """
    known = [match for one in code if (match := _CODE.fullmatch(one))]
    if not known:
        return Loads.HOST
    if any(match[1] == "sm" and _runs(match, sm) for match in known):
        return Loads.NATIVE
    newer = [match for match in known if match[1] == "compute" and not match[4] and int(match[2] + match[3]) <= sm]
    if newer or any(match[1] == "compute" and _runs(match, sm) for match in known):
        return Loads.PTX
    return Loads.NOT


def _runs(code: re.Match[str], sm: int) -> bool:
    major, minor = divmod(sm, 10)
    if code[4] == "a":
        return int(code[2] + code[3]) == sm
    return int(code[2]) == major and int(code[3]) <= minor


def cuda_of_ptx(ptx: str) -> str:
    """The oldest CUDA whose driver knows this version of the PTX language, "12.8" for "8.7"; "" for no version.

    Source: PTX ISA, release history.
    """
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", ptx)
    if not found:
        return ""
    major, minor = int(found[1]), int(found[2])
    if major == 8 and minor > 5:  # 8.5 came with CUDA 12.5 and stayed in 12.6
        minor += 1
    return f"{major + 4}.{minor}"
