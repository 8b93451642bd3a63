"""The CUDA C++ headers (CCCL) that a build takes, FlashInfer's own or the toolkit's, and what this FlashInfer needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from packaging.version import Version

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.ranges import parse_version, version_in
from fi_doctor.conditions.relations import Relation, release_of
from fi_doctor.model import Facts, Missing

VENDORED_FROM = ">=0.6.10.dev0"  # flashinfer/data/cccl is in the wheels of 0.6.10 and newer, not of 0.6.9
_VENDORED_HEADERS = ("cuda/std/", "nv/", "cub/", "thrust/")


class _Need(NamedTuple):
    """The oldest CCCL that compiles something of these releases."""

    flashinfer: str
    nvcc: str  # "": any
    cccl: Version
    what: str


# include/flashinfer/sampling.cuh:39 of 0.5.3 (:42 of 0.6.7.post3) takes cuda::maximum where CUDA_VERSION is 12.9: it is
# in the CCCL 2.8.2 of nvidia-cuda-cccl-cu12 12.9.27 and not in the 2.7.0 of 12.8.90. include/flashinfer/fastdiv.cuh:39
# of 0.7.2.post1 takes cuda::fast_mod_div, of CCCL 3.1 (trtllm/fmha/kernelParams.h:37 of 0.6.7.post3): it is in the
# 3.1.4 of nvidia-cuda-cccl 13.1.115 and not in the 3.0.1 of 13.0.85.
_NEEDS = (
    _Need("<0.6.10.dev0", ">=12.9", Version("2.8"), "sampling and MoE (cuda::maximum)"),
    _Need(VENDORED_FROM, "", Version("3.1"), "attention (cuda::fast_mod_div)"),
)


def taken(facts: Facts) -> Relation:
    """The version that the compiler finds first: FlashInfer names its own with -I, the toolkit's with -isystem."""
    own, jit = _own(facts), facts.toolkit.jit
    if isinstance(own, str):
        return (own,)
    if not _takes_toolkit(facts):
        return own
    toolkit = jit if isinstance(jit, Missing) else jit.cccl
    return toolkit if isinstance(toolkit, Missing) else (toolkit,)


def too_old(cccl: str | Missing, facts: Facts) -> str:
    """What a toolkit's CCCL is older than and this FlashInfer needs, "2.8"; "" where FlashInfer brings its own."""
    found = None if isinstance(cccl, Missing) or not _takes_toolkit(facts) else parse_version(cccl)
    if found is None:
        return ""
    return next((str(need.cccl) for need in _needs(facts) if found < need.cccl), "")


def needed_by(facts: Facts) -> Relation:
    """What does not compile with the CCCL that is taken, "sampling and MoE (cuda::maximum) need 2.8"."""
    found = taken(facts)
    if isinstance(found, Missing):
        return found
    version = parse_version(str(found[0]))
    if version is None:
        return Missing(reason=f"{found[0]} cannot be compared")
    return tuple(f"{need.what} needs {need.cccl}" for need in _needs(facts) if version < need.cccl)


def is_vendored(header: str, facts: Facts) -> bool:
    """Whether FlashInfer brings this header itself."""
    return header.startswith(_VENDORED_HEADERS) and isinstance(_own(facts), str)


def headers_missing(facts: Facts) -> Relation:
    """Headers that every module includes and nobody brings."""
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    places = {name: place for name, place in jit.headers.items() if not is_vendored(name, facts)}
    absent = tuple(name for name, place in sorted(places.items()) if isinstance(place, Missing) and place.absent)
    unread = next((place for place in places.values() if isinstance(place, Missing) and not place.absent), None)
    return unread if unread is not None and not absent else absent


def runtime_differs(facts: Facts) -> Relation:
    """The release of cuda_runtime_api.h, where it is not that of the compiler: "13.1 (/venv/.../include)"."""
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    compiler = jit.compiler if isinstance(jit.compiler, Missing) else release_of(jit.compiler.version)
    runtime = release_of(jit.runtime)
    if isinstance(compiler, Missing):
        return compiler
    if isinstance(runtime, Missing):
        return runtime
    return (str(runtime),) if runtime != compiler else ()


def _needs(facts: Facts) -> list[_Need]:
    package, jit = facts.flashinfer, facts.toolkit.jit
    version = package if isinstance(package, Missing) else package.version
    if isinstance(version, Missing):
        return []
    nvcc = jit if isinstance(jit, Missing) else jit.compiler
    release = nvcc if isinstance(nvcc, Missing) else release_of(nvcc.version)
    return [
        need
        for need in _NEEDS
        if version_in(version, need.flashinfer)
        and (not need.nvcc or (isinstance(release, Version) and version_in(str(release), need.nvcc)))
    ]


def _own(facts: Facts) -> str | Missing:
    return facts.flashinfer if isinstance(facts.flashinfer, Missing) else facts.flashinfer.cccl


def _takes_toolkit(facts: Facts) -> bool:
    """Whether it is surely the toolkit's: an older report does not tell of FlashInfer's own."""
    own, package = _own(facts), facts.flashinfer
    if isinstance(own, str) or isinstance(package, Missing):
        return False
    brings = None if isinstance(package.version, Missing) else version_in(package.version, VENDORED_FROM)
    return own.absent or brings is False


def _own_absent(facts: Facts) -> Relation:
    own = _own(facts)
    return own if isinstance(own, Missing) and not own.absent else (isinstance(own, Missing),)


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "cccl": (Kind.VERSION, taken),
    "cccl_too_old_for": (Kind.TEXT, needed_by),
    "cccl_not_vendored": (Kind.FLAG, _own_absent),
    "jit_header_missing": (Kind.TEXT, headers_missing),
    "runtime_of_other_release": (Kind.VERSION, runtime_differs),
}
