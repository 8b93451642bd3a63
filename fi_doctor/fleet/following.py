"""Of facts that differ together, which one the others follow from: a declared table, with reasons.

A subject is what a person would name: a driver, a package, a variable, a cached module. Its facts are one difference,
and a subject that follows from another which differs too is told below that one.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

# How a fact is shortened to its subject: the first that matches, by its first group.
_SUBJECTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(environment\..+)",
        r"((?:packages|libraries|site\.installed|system\.image)\.[^.]+)",
        r"(binaries\.files\[[^\]]*\])",
        r"(machine\.folders\[[^\]]*\])",
        r"(gpus\.driver|toolkit\.jit|toolkit\.host_compiler|toolkit\.ninja|toolkit\.gate)",
        r"(toolkit\.others|toolkit\.toolkits|triton_ptxas|ray_copies|host_limits)",
        r"(flashinfer\.cache)_(?:base|dir|writable|owner)",
        r"(flashinfer|vllm|server|interpreter|site|machine)(?=$)",
        r"(\w+\.\w+)",
    )
)
_CACHE = (
    *("flashinfer.architectures", "flashinfer.architectures_from", "flashinfer.cache", "flashinfer.cached_modules"),
    *("flashinfer.stale_modules", "machine.folders[[]*", "binaries.files[[]*cached_ops*"),
)
_GPU = ("gpus.memory_total_mib", "gpus.nvlinks", "gpus.peers", "gpus.acs_bridges", "gpus.iommu", "gpus.mig")
_TOOLKIT = ("toolkit.*", "host_limits")
# What leads -> what follows from it, and why. Those above are asked first.
FOLLOWS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("interpreter.executable", ("interpreter.*",), "one Python has one version, prefix and path"),
    ("environment.PYTHONPATH", ("interpreter.pythonpath", "interpreter.sys_path"), "it is the beginning of sys.path"),
    ("gpus.sm", ("gpus.name", *_GPU, *_CACHE), "another kind of GPU, for which other modules are built"),
    ("gpus.name", _GPU, "another kind of GPU"),
    ("gpus.count", ("gpus.cuda_sees", *_GPU), "what is not there has no links"),
    ("gpus.count", ("gpus.unreadable",), "a GPU that cannot be opened is not counted"),
    ("gpus.mig", ("gpus.cuda_sees", *_GPU[:-1]), "CUDA sees instances, which have no NVLink"),
    ("gpus.nvlinks", ("gpus.peers",), "GPUs reach each other by them"),
    ("gpus.driver", ("libraries.cuda", "machine.driver_files", "gpus.memory_total_mib"), "files of the driver"),
    ("environment.CUDA_HOME", (*_TOOLKIT, "flashinfer.stale_modules"), "FlashInfer takes the toolkit it names"),
    ("environment.CUDA_PATH", (*_TOOLKIT, "flashinfer.stale_modules"), "it is taken where CUDA_HOME is not set"),
    ("environment.FLASHINFER_NVCC", ("toolkit.jit",), "it names the compiler"),
    ("environment.CC", ("host_limits", "toolkit.host_compiler"), "it names the compiler that nvcc calls"),
    ("environment.CXX", ("host_limits", "toolkit.host_compiler"), "it names the compiler that ninja calls"),
    ("toolkit.jit", (*_TOOLKIT, "flashinfer.stale_modules"), "one toolkit has one nvcc, which gates compare"),
    ("toolkit.host_compiler", ("host_limits",), "the compiler that nvcc would call"),
    ("environment.LD_LIBRARY_PATH", ("libraries.*",), "the loader looks there first"),
    ("environment.CUDA_VISIBLE_DEVICES", ("gpus.visible_devices", "gpus.cuda_sees"), "CUDA sees what it names"),
    ("environment.FLASHINFER_WORKSPACE_BASE", (*_CACHE, "flashinfer.cubin_dir"), "the cache lies below it"),
    ("environment.FLASHINFER_CUDA_ARCH_LIST", _CACHE, "the cache is named by architectures"),
    ("environment.HOME", (*_CACHE, "flashinfer.cubin_dir", "machine.user", "system.uid"), "caches lie below it"),
    ("environment.HOME", ("environment.XDG_*",), "folders of one user"),
    ("flashinfer.architectures", _CACHE, "the cache is named by them"),
    ("packages.flashinfer-python", ("flashinfer.*", *_CACHE), "read from its files; the cache is named by its version"),
    ("packages.flashinfer-cubin", ("flashinfer.cubin*", "flashinfer.version_checks*"), "read from its files"),
    ("packages.flashinfer-jit-cache", ("flashinfer.jit_cache*", "toolkit.jit_cache_cuda"), "read from its files"),
    ("packages.flashinfer-jit-cache", ("flashinfer.version_checks*",), "its version is what is compared"),
    ("packages.vllm", ("vllm.*", "ray_copies", "binaries.files[[]*/vllm/*"), "read from its files"),
    (
        "packages.torch",
        ("toolkit.torch_cuda", "toolkit.gate", "libraries.*", "binaries.files[[]*/torch/*"),
        "its files",
    ),
    ("packages.triton", ("triton_ptxas",), "it brings its own"),
    ("site.installed.nvidia-*", ("libraries.*",), "the wheel that the library is from"),
    ("packages.nvidia-*", ("libraries.*",), "the wheel that the library is from"),
    ("gpus.driver", ("flashinfer.architectures", "gpus.unreadable"), "it names the GPUs for which is built"),
    ("environment.CUDA_VERSION", ("environment.NVIDIA_REQUIRE_CUDA", "environment.NCCL_VERSION"), "of the image too"),
    ("system.os", ("system.libc", "toolkit.host_compiler", "host_limits"), "parts of a distribution"),
    ("environment.CUDA_VERSION", ("system.image.*",), "both are of the image"),
    ("system.memory_total_mib", ("system.shm_mib",), "shared memory is half of it where nobody sets it"),
    ("flashinfer.stale_modules", ("flashinfer.cached_modules",), "one that is stale is cached all the same"),
    ("flashinfer.cache", ("flashinfer.cached_modules", "machine.folders[[]*"), "modules lie in it"),
    ("machine.user", ("machine.folders[[]*", "flashinfer.cache", "system.uid"), "who may write"),
)
# Of a subject the facts that tell most, by how their names end.
_TELLING = (
    *("gpus.driver.version", "toolkit.jit.nvcc.version", "toolkit.jit.cuda_home", "toolkit.jit.nvcc", "toolkit.jit"),
    *("toolkit.host_compiler_version", "toolkit.host_compiler", ".version", ".needed", "commit", ".writable", ".mode"),
)


def subject_of(fact: str) -> str:
    """What the fact is a part of: "toolkit.jit", "packages.torch", "environment.CC"."""
    found = (pattern.match(fact) for pattern in _SUBJECTS)
    return next((match[1] for match in found if match), fact)


def leaders(subjects: Iterable[str]) -> dict[str, str]:
    """Each of these subjects -> the one among them that it follows from; itself where it follows from none."""
    left = dict.fromkeys(sorted(subjects))
    found = {one: one for one in left}
    for pattern, followers, _ in FOLLOWS:
        for leader in [one for one in left if found[one] == one and fnmatch.fnmatchcase(one, pattern)]:
            for one in left:
                if one != leader and found[one] == one and any(fnmatch.fnmatchcase(one, word) for word in followers):
                    found[one] = leader
    _follow_names(found)
    return {one: _end(one, found) for one in found}


def telling_first(facts: Iterable[str]) -> list[str]:
    """The facts of a subject, the one that tells most first."""

    def place(fact: str) -> tuple[int, str]:
        ends = (number for number, word in enumerate(_TELLING) if fact == word or fact.endswith(word))
        return next(ends, len(_TELLING)), fact

    return sorted(facts, key=place)


def _follow_names(found: dict[str, str]) -> None:
    """One name in several tables: a distribution among all that is installed, a variable among those of the image."""
    for table, leads in (("site.installed.", "packages."), ("system.image.", "environment.")):
        for one, first in list(found.items()):
            leader = leads + one.removeprefix(table)
            if one.startswith(table) and first == one and leader in found:
                found[one] = leader


def _end(one: str, found: dict[str, str]) -> str:
    """The first of a chain: what follows from a follower follows from its leader."""
    seen = {one}
    while found[one] not in seen:
        one = found[one]
        seen.add(one)
    return one
