"""The facts as they would be with other versions: what is shipped of those releases, and unknown where nothing is."""

from __future__ import annotations

import re

from msgspec.structs import replace

from fi_doctor.conditions import requirements
from fi_doctor.diagnosis.upgrades import with_versions
from fi_doctor.facts import released
from fi_doctor.knowledge import pins
from fi_doctor.knowledge import registry as shipped
from fi_doctor.model import Calls, Facts, FlashInfer, Library, Missing, Named, Package, ToolkitFacts, Vllm
from fi_doctor.model.registry import Registered
from fi_doctor.model.targets import JIT_CACHE_UNREAD

_JIT_CACHE = "flashinfer-jit-cache"
_MADE_ANEW = "it would be installed anew"


def facts_with(facts: Facts, versions: dict[str, str]) -> Facts:
    """The same machine with these packages in these versions.

    versions: every package that moves, with its new version; "" where only a range of it is known.
    What an installation replaces and no shipped data tells is Missing.
    """
    moved = with_versions(facts, {name: version for name, version in versions.items() if version})
    packages = {**moved.packages, **{name: _package(name, version, facts) for name, version in versions.items()}}
    moved = replace(moved, packages=packages, site=Missing(reason=_MADE_ANEW))
    if "flashinfer-python" in versions:
        moved = replace(moved, packages=_without_brought(moved))
        moved = replace(moved, flashinfer=_flashinfer(facts.flashinfer, versions["flashinfer-python"]))
    if "vllm" in versions:
        moved = replace(moved, vllm=_vllm(facts.vllm, versions["vllm"]))
    if _JIT_CACHE in versions:
        moved = _with_jit_cache(moved, versions[_JIT_CACHE])
    if "torch" in versions:
        moved = _with_torch(moved, versions["torch"])
    return replace(moved, calls=_calls(moved), binaries=Missing(reason=_MADE_ANEW))


def _without_brought(facts: Facts) -> dict[str, Package | Missing]:
    """The packages; that one is not here says nothing where a FlashInfer that is installed anew brings it along.

    Not so torch, which is named itself where it moves: without it nothing is known of what would run.
    """
    return {
        name: package
        for name, package in facts.packages.items()
        if isinstance(package, Package)
        or name == "torch"
        or not requirements.required(name, facts, by="flashinfer-python")
    }


def completed(facts: Facts) -> Facts:
    """The facts, with what is shipped of the installed FlashInfer where it was not asked for when they were read.

    Without it what an older report does not hold would count as changed.
    """
    package = facts.flashinfer
    if isinstance(package, Missing) or package.altered:
        return facts
    named = released.of_release(f"flashinfer_python-{package.version}", Named)
    if named is None:
        return facts
    package = replace(
        package,
        symbols={**named.symbols, **package.symbols},
        majors={**named.majors, **package.majors},
        admissions={**named.admissions, **package.admissions},
    )
    return replace(facts, flashinfer=package)


def is_read(facts: Facts) -> bool:
    """Whether the names of that FlashInfer are known, so that silence about one means that it is there."""
    package = facts.flashinfer
    return not isinstance(package, Missing) and any(isinstance(place, str) for place in package.symbols.values())


def unshipped(versions: dict[str, str]) -> tuple[str, ...]:
    """What of these releases is not in the shipped data, a sentence each."""
    told = []
    version = versions.get("flashinfer-python")
    if version and released.of_release(f"flashinfer_python-{version}", Named) is None:
        told.append(
            f"the files of flashinfer-python {version} are not in the shipped data: which rows it has, and for which "
            "GPUs, is not known"
        )
    version = versions.get("vllm")
    if version and _registered(version) is None:
        told.append(f"the settings of vLLM {version} are not in the shipped data")
    return tuple(told)


def cuda_of_torch(version: str) -> str | Missing:
    """The CUDA of torch's wheel, by its tag, or of the one on PyPI by the runtime that it requires: "13.0"."""
    if "+" in version:
        return _cuda_of_tag("torch", version)
    for line in pins.load()["torch"].get(version, ()):
        if (found := pins.exact(line)) is not None:
            return ".".join(found.split(".")[:2])
    return Missing(reason=f"what torch {version} requires is not in the shipped data")


def _package(name: str, version: str, facts: Facts) -> Package:
    """One that is moved or added, as its installation leaves it."""
    known = facts.packages.get(name)
    beside = facts.packages.get("flashinfer-python")
    place = known if isinstance(known, Package) else beside
    return Package(
        name=name,
        version=version or Missing(reason=_MADE_ANEW),
        location=place.location if isinstance(place, Package) else "",
        editable=False,
        commit=Missing(reason="an installed wheel names none"),
        requires=pins.load().get(name, {}).get(version, ()),
        shadowed=(),
    )


def _flashinfer(package: FlashInfer | Missing, version: str) -> FlashInfer | Missing:
    if isinstance(package, Missing):
        return package
    unread = Missing(reason=f"the files of flashinfer-python {version} were not read")
    named = released.of_release(f"flashinfer_python-{version}", Named)
    return replace(
        package,
        version=version,
        commit=unread,
        version_checks=(),  # the packages beside it move along
        cache_dir=unread,
        cached_modules=(),
        cubins=unread,
        cccl=unread,
        stale_modules={},
        altered={},
        cubins_damaged={},
        symbols=named.symbols if named else dict.fromkeys(package.symbols, unread),
        public=named.public if named else {},
        majors=named.majors if named else dict.fromkeys(package.majors, unread),
        admissions=named.admissions if named else {},
    )


def _cuda_of_tag(name: str, version: str) -> str | Missing:
    """The CUDA that a wheel's version names: "12.9" of 0.5.3+cu129."""
    match = re.fullmatch(r"[^+]*\+cu(\d+)(\d)", version)
    return f"{match[1]}.{match[2]}" if match else Missing(reason=f"the version {version} of {name} has no +cuXYZ tag")


def _with_jit_cache(facts: Facts, version: str) -> Facts:
    """The same with another flashinfer-jit-cache, of which the version alone is known."""
    package = facts.flashinfer
    if not isinstance(package, Missing):
        package = replace(package, jit_cache_modules=(), jit_cache_architectures=JIT_CACHE_UNREAD)
    tools = replace(facts.toolkit, jit_cache_cuda=_cuda_of_tag(_JIT_CACHE, version))
    return replace(facts, flashinfer=package, toolkit=tools)


def _vllm(package: Vllm | Missing, version: str) -> Vllm | Missing:
    root = "" if isinstance(package, Missing) else package.root
    if (found := released.of_release(f"vllm-{version}", Vllm)) is not None:
        return replace(found, root=root)
    settings = _registered(version)
    if settings is None:
        return Missing(reason=f"the files of vLLM {version} were not read")
    return Vllm(
        root=root,
        variables=_of_kind(settings, "env"),
        unread_variables=tuple(one.name for one in settings.values() if one.kind == "env" and one.is_dead),
        flags=_of_kind(settings, "flag"),
        keys=_of_kind(settings, "key"),
        unreadable={"other_variables": "the shipped data holds the registry only"},
    )


def _registered(version: str) -> dict[str, Registered] | None:
    found = shipped.at("vllm", version)
    return None if isinstance(found, Missing) or found.release != version else found.settings


def _of_kind(settings: dict[str, Registered], kind: str) -> dict[str, str]:
    of_kind = [one for one in settings.values() if one.kind == kind]
    return {name: one.source for one in of_kind for name in (one.name, *one.aliases, *one.negations)}


def _with_torch(facts: Facts, version: str) -> Facts:
    cuda = cuda_of_torch(version)
    tools: ToolkitFacts = replace(facts.toolkit, torch_cuda=cuda)
    if tools.gate_source == "torch.version.cuda":
        tools = replace(tools, gate_version=cuda)
    libraries: dict[str, Library | Missing] = {
        name: Missing(reason=_MADE_ANEW) if isinstance(library, Library) and library.origin == "wheel" else library
        for name, library in facts.libraries.items()
    }
    return replace(facts, toolkit=tools, libraries=libraries, triton_ptxas=Missing(reason=_MADE_ANEW))


def _calls(facts: Facts) -> Calls | Missing:
    """How that vLLM calls that FlashInfer."""
    package = facts.flashinfer
    version = Missing(reason="") if isinstance(package, Missing) else package.version
    found = released.of_release(f"vllm-{facts.vllm_version}-with-flashinfer_python-{version}", Calls)
    return found or Missing(reason="how these two releases fit was not looked at")
