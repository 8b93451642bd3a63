"""What the Requires-Dist lines of vLLM, torch and FlashInfer name and is absent or of another version."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.conditions.relations import Relation
from fi_doctor.conditions.requirements import applicable
from fi_doctor.model import Facts, Library, Missing, Package

_UNKNOWN = ""  # a version that nothing tells
_MOST_NAMED = 12
_TORCHES = ("torch", "torchaudio", "torchvision")
_OF_CUDA = re.compile(r"-cu\d\d$")
# Distributions with the same modules.
_OTHER_NAMES = {
    "cuda-python": ("cuda-bindings",),
    "nvidia-ml-py": ("pynvml",),
    "opencv-python-headless": ("opencv-contrib-python", "opencv-contrib-python-headless", "opencv-python"),
    "triton": ("pytorch-triton", "pytorch-triton-rocm", "triton-nightly"),
}
# The parts of cuda-toolkit, which has no files of its own. Source: cuda_toolkit-13.0.3.0.dist-info/METADATA.
_PARTS = {
    "cudart": "nvidia-cuda-runtime",
    "cupti": "nvidia-cuda-cupti",
    "nvcc": "nvidia-cuda-nvcc",
    "nvrtc": "nvidia-cuda-nvrtc",
}
# Of these the library itself can come from elsewhere: an image, a toolkit, a system package.
_LIBRARIES = {
    "nvidia-cublas": "cublas",
    "nvidia-cuda-nvrtc": "nvrtc",
    "nvidia-cuda-runtime": "cudart",
    "nvidia-cudnn": "cudnn",
    "nvidia-nccl": "nccl",
}
# What `import flashinfer` imports -> from which release on (each was taken away and the import tried: 0.5.3, 0.6.4,
# 0.6.7.post3, 0.6.13, 0.6.16.post3, 0.7.2.post1). requests: artifacts.py, packaging: jit/cpp_ext.py, tqdm: autotuner.
_IMPORTED = {
    "apache-tvm-ffi": "0.5.3",
    "nvidia-ml-py": "0.5.3",
    "packaging": "0.5.3",
    "requests": "0.5.3",
    "tqdm": "0.6.13",
    "numpy": "0.7.2",
}


class Lack(NamedTuple):
    """One line that is not met."""

    name: str  # canonical
    line: str  # as pip takes it, "torch==2.14.0"
    found: str  # the installed version; "" where it is absent


def absent_told(*names: str) -> Callable[[Facts], Relation]:
    """The lines of installed packages about what is not installed, not more than can be read."""
    return lambda facts: _told([lack.line for name in names for lack in _lacks(facts, name) if not lack.found])


def unmet(name: str) -> Callable[[Facts], Relation]:
    """The lines of an installed package that the installed version does not meet."""
    return lambda facts: tuple(lack.line for lack in _lacks(facts, name) if lack.found)


def unmet_told(name: str) -> Callable[[Facts], Relation]:
    """The same in words: "flashinfer-python==0.7.2.post1, found 0.6.7"."""
    return lambda facts: _told([f"{lack.line}, found {lack.found}" for lack in _lacks(facts, name) if lack.found])


def lacking(*names: str) -> Callable[[Facts], Relation]:
    """All lines that are not met, for one call of pip; but a torch that is there is not replaced along with them."""
    return lambda facts: tuple(
        lack.line for name in names for lack in _lacks(facts, name) if not (lack.found and lack.name in _TORCHES)
    )


def import_lacks(facts: Facts) -> Relation:
    """What is absent and `import flashinfer` imports."""
    package = facts.packages.get("flashinfer-python")
    version = package.version if isinstance(package, Package) else package
    if not isinstance(version, str):
        return version if isinstance(version, Missing) else Missing(reason="flashinfer-python was not looked for")
    if (own := parse_version(version)) is None:
        return Missing(reason=f"{version!r} is no version")
    names = {name for name, first in _IMPORTED.items() if Version(first) <= own}
    return tuple(lack.name for lack in _lacks(facts, "flashinfer-python") if not lack.found and lack.name in names)


def _told(lines: list[str]) -> tuple[str, ...]:
    rest = len(lines) - _MOST_NAMED
    return (*lines[:_MOST_NAMED], f"and {rest} more") if rest > 1 else tuple(lines)


def _lacks(facts: Facts, name: str) -> tuple[Lack, ...]:
    package = facts.packages.get(name)
    if not isinstance(package, Package):
        return ()
    wanted = (applicable(line, facts) for line in package.requires)
    found = (lack for one in wanted if one is not None for lack in _lack(one, name, facts))
    return tuple({lack.line: lack for lack in found}.values())


def _lack(wanted: Requirement, owner: str, facts: Facts) -> Iterator[Lack]:
    if wanted.name == "cuda-toolkit":
        parts = {_PARTS.get(extra, f"nvidia-{extra}"): extra for extra in sorted(wanted.extras)}
        gone = [extra for part, extra in parts.items() if _version(part, owner, facts) is None]
        if gone:
            yield Lack(wanted.name, f"{wanted.name}[{','.join(gone)}]{wanted.specifier}", "")
        return
    version = _version(wanted.name, owner, facts)
    if version is None:
        yield Lack(wanted.name, _line(wanted), "")
    elif not _meets(version, wanted):
        yield Lack(wanted.name, _line(wanted), version)
    elif any(_version(part, owner, facts) is None for part in _of_extras(wanted, facts)):
        yield Lack(wanted.name, _line(wanted), "")


def _of_extras(wanted: Requirement, facts: Facts) -> Iterator[str]:
    """What a watched package requires where it is asked for with extras: nvidia-cutlass-dsl[cu13]."""
    package = facts.packages.get(wanted.name)
    for line in package.requires if isinstance(package, Package) else ():
        head, _, marker = line.partition(";")
        asked = re.search(r"extra\s*==\s*[\"']([\w.-]+)[\"']", marker)
        if asked and asked[1] in wanted.extras:
            yield canonicalize_name(Requirement(head).name)


def _line(wanted: Requirement) -> str:
    extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
    return f"{wanted.name}{extras}{wanted.specifier}"


def _meets(version: str, wanted: Requirement) -> bool:
    parsed = None if version == _UNKNOWN else parse_version(version)
    return parsed is None or wanted.specifier.contains(parsed, prereleases=True)


def _version(name: str, owner: str, facts: Facts) -> str | None:
    """The installed version, _UNKNOWN where it is there or may be; None where it is absent."""
    package, installed = facts.packages.get(name), _installed(facts)
    if isinstance(package, Package):
        return package.version if isinstance(package.version, str) else _UNKNOWN
    if installed is None:
        return _UNKNOWN
    if name in installed:
        return installed[name]
    return _UNKNOWN if _is_provided(name, owner, facts, installed) else None


def _is_provided(name: str, owner: str, facts: Facts, installed: dict[str, str]) -> bool:
    """Whether something else stands for it."""
    if name == "ninja" and isinstance(facts.toolkit.ninja, str):
        return True  # the program is what counts
    if any(other in installed for other in _OTHER_NAMES.get(name, ())):
        return True
    stem = name.removesuffix("-cu13")  # from CUDA 13 on the names lose what tells the major
    if name.startswith("nvidia-") and (stem in installed or f"{stem}-cu13" in installed):
        return True
    library = facts.libraries.get(_LIBRARIES.get(_OF_CUDA.sub("", name), "")) if owner == "torch" else None
    return isinstance(library, Library)


def _installed(facts: Facts) -> dict[str, str] | None:
    """What is installed, where that is known."""
    site = facts.site
    return None if isinstance(site, Missing) or site.unlisted else site.installed


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "flashinfer_import_lacks": (Kind.TEXT, import_lacks),
    "flashinfer_requirement_absent": (Kind.TEXT, absent_told("flashinfer-python")),
    "flashinfer_requirement_unmet": (Kind.TEXT, unmet("flashinfer-python")),
    "flashinfer_requirement_found": (Kind.TEXT, unmet_told("flashinfer-python")),
    "flashinfer_requirements_lacking": (Kind.TEXT, lacking("flashinfer-python")),
    "torch_requirement_absent": (Kind.TEXT, absent_told("torch")),
    "torch_requirement_unmet": (Kind.TEXT, unmet("torch")),
    "torch_requirement_found": (Kind.TEXT, unmet_told("torch")),
    "torch_requirements_lacking": (Kind.TEXT, lacking("torch")),
    "vllm_requirement_absent": (Kind.TEXT, absent_told("vllm")),
    "vllm_requirement_unmet": (Kind.TEXT, unmet("vllm")),
    "vllm_requirement_found": (Kind.TEXT, unmet_told("vllm")),
    "vllm_requirements_lacking": (Kind.TEXT, lacking("vllm")),
    "companion_requirement_absent": (Kind.TEXT, absent_told("flashinfer-cubin", "flashinfer-jit-cache")),
    "companion_requirements_lacking": (Kind.TEXT, lacking("flashinfer-cubin", "flashinfer-jit-cache")),
}
