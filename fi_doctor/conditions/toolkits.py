"""Which other toolkit of this machine CUDA_HOME could name, and why not the rest of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from packaging.version import Version

from fi_doctor.conditions import cccl
from fi_doctor.conditions.compat import driver_folder
from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.conditions.relations import (
    Relation,
    cuda_home_of_nvcc,
    home_of,
    number_of,
    release_of,
    targets_of,
    visible_sms,
)
from fi_doctor.model import Facts, JitToolkit, Missing, Nvcc, OtherToolkit

_NEEDS = re.compile(r"requires CUDA\S* *>= *(\d+\.\d+)")  # FlashInfer's own words where it has no architecture
_FEWEST = Version("0.0")
_BY_PATH = "which nvcc"
_OF_PACKAGES = re.compile(r"/usr/local/cuda-(\d+\.\d+)")
_PACKAGES = (
    ("cuda-cudart-dev", re.compile(r"^cuda_runtime\.h$|^cuda_bf16\.h$|^libcudart")),
    ("cuda-cccl", re.compile(r"^cuda/std|^nv/target")),
    ("cuda-driver-dev", re.compile(r"^libcuda\.so$")),
    ("cuda-nvrtc-dev", re.compile(r"nvrtc")),
    ("libcublas-dev", re.compile(r"cublas")),
    ("libcurand-dev", re.compile(r"curand")),
)
_OF_WHEELS = re.compile(r"/nvidia/cu\d+/?$")  # site-packages/nvidia/cu13


class _Other(NamedTuple):
    toolkit: OtherToolkit
    nvcc: Nvcc
    release: Version  # of its nvcc; 0.0 where it does not say


def fit_cuda_home(facts: Facts) -> Relation:
    """The toolkit to name in CUDA_HOME: it builds for these GPUs and this FlashInfer, and the driver runs it.

    One of torch's CUDA major comes first, then one that lacks nothing, then the newest.
    """
    return _best([other for other in _others(facts) if not _faults(other, facts)], facts)


def complete_cuda_home(facts: Facts) -> Relation:
    """The same of those that also have what only some modules need."""
    return _best([one for one in _others(facts) if not _faults(one, facts) and not one.toolkit.modules_lack], facts)


def fit_newer_cuda_home(facts: Facts) -> Relation:
    """The same of those that are newer than the nvcc of the JIT."""
    current = release_of(_taken(facts))
    fitting = [other for other in _others(facts) if not _faults(other, facts)]
    newer = fitting if isinstance(current, Missing) else [one for one in fitting if one.release > current]
    return _best(newer, facts)


def fit_cuda_home_like_torch(facts: Facts) -> Relation:
    """The same of torch's CUDA major only."""
    torch = release_of(facts.toolkit.torch_cuda)
    if isinstance(torch, Missing):
        return torch
    alike = [one for one in _others(facts) if one.release.major == torch.major and not _faults(one, facts)]
    return _best(alike, facts)


def cuda_home_for_nvcc(facts: Facts) -> Relation:
    """The toolkit in which the JIT's nvcc lives; where modules do not link in it, another that has all they need."""
    own = cuda_home_of_nvcc(facts)
    if isinstance(own, Missing) or not _lacks_link(str(own[0]), facts):
        return own
    other = fit_cuda_home(facts)
    return own if isinstance(other, Missing) else other


def packages_for_nvcc(facts: Facts) -> Relation:
    """NVIDIA's packages with all that lacks in the toolkit to build with: "cuda-driver-dev-13-0".

    It is that of `cuda_home_for_nvcc` where an nvcc on PATH misleads the JIT, else the JIT's own, and lies where they
    put it.
    """
    home = _own_home(facts)
    lies = None if isinstance(home, Missing) else _OF_PACKAGES.fullmatch(home)
    if lies is None or isinstance(home, Missing):
        return Missing(reason="it is not where NVIDIA's packages put a toolkit")
    lacks, modules_lack = _lacks(home, facts)
    names = (name for name, meant in _PACKAGES if any(meant.search(one) for one in (*lacks, *modules_lack)))
    packages = tuple(f"{name}-{lies[1].replace('.', '-')}" for name in names)
    return packages or Missing(reason="it lacks nothing")


def _own_home(facts: Facts) -> str | Missing:
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    if jit.found_by == _BY_PATH:
        home = cuda_home_for_nvcc(facts)
        if not isinstance(home, Missing):
            return str(home[0])
    return jit.nvcc if isinstance(jit.nvcc, Missing) else home_of(jit.nvcc)


def lacks_told(home: str, facts: Facts) -> str:
    """What FlashInfer's builds will miss in a toolkit, in words; "" where nothing or where it is not known."""
    lacks, modules_lack = _lacks(home, facts)
    if not lacks:
        return f"it lacks {', '.join(modules_lack)}, which some modules need" if modules_lack else ""
    more = f"; some modules also need {', '.join(modules_lack)}" if modules_lack else ""
    return f"it lacks {', '.join(lacks)}, without which no module is built{more}"


def unfit_toolkits(facts: Facts) -> Relation:
    """The others that do not do, each with why: "/usr/local/cuda-12.4 (its nvcc 12.4 does not know sm_103)"."""
    told = ((other.toolkit.home, _faults(other, facts)) for other in _others(facts))
    return tuple(f"{home} ({'; '.join(faults)})" for home, faults in told if faults)


def nvcc_on_path_differs(facts: Facts) -> Relation:
    """The nvcc that a shell starts, where it is of another release than the JIT's: "12.4 (/usr/bin/nvcc)"."""
    taken, path = release_of(_taken(facts)), facts.toolkit.nvcc_on_path
    if isinstance(taken, Missing):
        return taken
    if isinstance(path, Missing):
        return path
    found = next((nvcc for nvcc in facts.toolkit.others if path in (nvcc.path, nvcc.resolved)), None)
    release = Missing(reason="it is the JIT's own") if found is None else release_of(found.version)
    return (f"{release} ({path})",) if isinstance(release, Version) and release != taken else ()


def other_toolkits(facts: Facts) -> Relation:
    """The toolkits here that the JIT does not take: "12.4 (/usr/local/cuda-12.4)"."""
    return tuple(f"{other.nvcc.version} ({other.toolkit.home})" for other in _others(facts) if other.release != _FEWEST)


def wheel_toolkit(facts: Facts) -> Relation:
    """CUDA_HOME where pip's wheels unpacked it: it has lib, no lib64, and no library without a version in its name."""
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    return (jit.cuda_home,) if _OF_WHEELS.search(jit.cuda_home) else Missing(reason="it is none of pip's wheels")


def driver_library(facts: Facts) -> Relation:
    """The driver's own libcuda.so.1, "/usr/lib/x86_64-linux-gnu/libcuda.so.1"."""
    folder = driver_folder(facts)
    return folder if isinstance(folder, Missing) else (f"{folder[0]}/libcuda.so.1",)


def c_before_cxx(facts: Facts) -> Relation:
    """The folder that hides the C library's headers from those of C++."""
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    return (jit.c_before_cxx,) if jit.c_before_cxx else ()


def _lacks_link(home: str, facts: Facts) -> bool:
    return bool(_lacks(home, facts)[0])


def _lacks(home: str, facts: Facts) -> tuple[list[str], list[str]]:
    """What every module needs and what some modules need, of a toolkit by the name that CUDA_HOME would give it."""
    jit = facts.toolkit.jit
    nvccs = (*facts.toolkit.others, *(() if isinstance(jit, Missing) or isinstance(jit.nvcc, Missing) else (jit.nvcc,)))
    named = [nvcc.path for nvcc in nvccs if f"{home}/bin/nvcc" in (nvcc.path, nvcc.resolved)]
    found = next((one for one in facts.toolkit.toolkits if one.home == home or one.nvcc in named), None)
    if found is None and not isinstance(jit, Missing) and not isinstance(jit.nvcc, Missing):
        return _lacks_itself(jit) if jit.found_by != _BY_PATH and jit.nvcc.home == home else ([], [])
    if found is None:
        return [], []
    return [name for name in found.lacks if not cccl.is_vendored(name, facts)], list(found.modules_lack)


def _lacks_itself(jit: JitToolkit) -> tuple[list[str], list[str]]:
    """The same of the JIT's own toolkit, of which the build lines have told it."""

    def absent(headers: Mapping[str, str | Missing], libraries: Mapping[str, str | Missing]) -> list[str]:
        names = (*headers.items(), *((f"lib{name}.so", found) for name, found in libraries.items()))
        return [name for name, found in names if isinstance(found, Missing)]

    return absent(jit.headers, jit.libraries), absent(jit.module_headers, jit.module_libraries)


def _others(facts: Facts) -> list[_Other]:
    """Those that lie in a toolkit; what an older report does not tell of one is not held against it."""
    known = {toolkit.nvcc: toolkit for toolkit in facts.toolkit.toolkits}
    found = []
    for nvcc in facts.toolkit.others:
        home, release = home_of(nvcc), release_of(nvcc.version)
        if isinstance(home, str):
            unread = OtherToolkit(home=home, nvcc=nvcc.path, lacks=(), modules_lack=(), cccl=Missing(reason="not read"))
            version = _FEWEST if isinstance(release, Missing) else release
            found.append(_Other(known.get(nvcc.path, unread), nvcc, version))
    return found


def _best(fitting: list[_Other], facts: Facts) -> Relation:
    if not fitting:
        others = unfit_toolkits(facts)
        told = others if isinstance(others, tuple) else ()
        return Missing(reason="; ".join(map(str, told)) or "there is no other toolkit that would do")
    torch = release_of(facts.toolkit.torch_cuda)
    major = 0 if isinstance(torch, Missing) else torch.major

    def rank(other: _Other) -> tuple[bool, bool, Version]:
        return other.release.major == major, not other.toolkit.modules_lack, other.release

    return (max(fitting, key=rank).toolkit.home,)


def _faults(other: _Other, facts: Facts) -> list[str]:
    """Why FlashInfer cannot build with it for this machine; empty where nothing speaks against it."""
    if other.release == _FEWEST:
        return ["its nvcc does not say its version"]
    driver = facts.gpus.driver
    limit = release_of(driver if isinstance(driver, Missing) else driver.cuda)
    told = []
    if isinstance(limit, Version) and other.release.major > limit.major:
        told.append(f"it is of CUDA {other.release}, and the driver runs {limit.major}.x")
    if unknown := _unknown(other, facts):
        told.append(f"its nvcc {other.release} does not know {', '.join(unknown)}")
    if other.release < (need := _needed(facts)):
        told.append(f"it is of CUDA {other.release}, FlashInfer asks for {need}")
    if lacks := [name for name in other.toolkit.lacks if not cccl.is_vendored(name, facts)]:
        told.append(f"it lacks {', '.join(lacks)}")
    if need_cccl := cccl.too_old(other.toolkit.cccl, facts):
        told.append(f"its CCCL {other.toolkit.cccl} is older than {need_cccl}")
    return told


def _unknown(other: _Other, facts: Facts) -> list[str]:
    """What is to be compiled for, by FlashInfer's list or else by the GPUs, and its nvcc does not know."""
    listed, sms = targets_of(facts), visible_sms(facts)
    wanted = {number_of(target) for target in listed} if isinstance(listed, tuple) else set()
    if not wanted and isinstance(sms, tuple):
        wanted = set(sms)
    known = other.nvcc.architectures
    numbers = wanted if isinstance(known, Missing) else {number_of(name) for name in known}
    return [f"sm_{number}" for number in sorted(wanted - numbers)]


def _needed(facts: Facts) -> Version:
    """The CUDA that FlashInfer asks for where it finds no architecture to build for."""
    package = facts.flashinfer
    listed = None if isinstance(package, Missing) else package.architectures
    found = _NEEDS.search(listed.reason) if isinstance(listed, Missing) else None
    return (parse_version(found[1]) if found else None) or _FEWEST


def _taken(facts: Facts) -> str | Missing:
    jit = facts.toolkit.jit
    nvcc = jit if isinstance(jit, Missing) else jit.nvcc
    return nvcc if isinstance(nvcc, Missing) else nvcc.version


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "fit_cuda_home": (Kind.TEXT, fit_cuda_home),
    "complete_cuda_home": (Kind.TEXT, complete_cuda_home),
    "fit_newer_cuda_home": (Kind.TEXT, fit_newer_cuda_home),
    "fit_cuda_home_like_torch": (Kind.TEXT, fit_cuda_home_like_torch),
    "cuda_home_for_nvcc": (Kind.TEXT, cuda_home_for_nvcc),
    "packages_for_nvcc": (Kind.TEXT, packages_for_nvcc),
    "unfit_toolkits": (Kind.TEXT, unfit_toolkits),
    "other_toolkits": (Kind.TEXT, other_toolkits),
    "wheel_toolkit": (Kind.TEXT, wheel_toolkit),
    "driver_library": (Kind.TEXT, driver_library),
    "c_before_cxx": (Kind.TEXT, c_before_cxx),
    "nvcc_on_path_differs": (Kind.TEXT, nvcc_on_path_differs),
}
