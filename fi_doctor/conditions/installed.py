"""Packages: leftovers of pip, other CUDA majors, trees that win over what is installed."""

from __future__ import annotations

from collections.abc import Callable

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.relations import Relation
from fi_doctor.model import Facts, Missing, Package, Site
from fi_doctor.model.numbers import whole

_MOST_NAMED = 4
_DAMAGE = ("gone", "0 bytes", "no plain file", "not to be looked at")
# One folder for all CUDA majors: nvidia/cudnn, nvidia/nccl, nvidia/cusparselt, nvidia/nvshmem (wheels of both majors).
_ONE_FOLDER = ("nvidia-cudnn", "nvidia-nccl", "nvidia-cusparselt", "nvidia-nvshmem")


def pip(*words: str) -> Callable[[Facts], Relation]:
    """The words of a pip command for the examined interpreter; uv's where uv made the environment, which has no pip."""

    def of(facts: Facts) -> Relation:
        python = facts.interpreter.executable
        if isinstance(facts.site, Site) and facts.site.by_uv:
            return ("uv", "pip", words[0], "--python", python)
        return (python, "-m", "pip", *words)

    return of


def leftovers(facts: Facts) -> Relation:
    """What an interrupted pip left."""
    return facts.site if isinstance(facts.site, Missing) else facts.site.leftovers


def broken(facts: Facts) -> Relation:
    """Packages without their metadata."""
    return facts.site if isinstance(facts.site, Missing) else tuple(facts.site.broken)


def broken_folders(facts: Facts) -> Relation:
    """The folders in which it is missing."""
    return facts.site if isinstance(facts.site, Missing) else tuple(facts.site.broken.values())


def uncompiled(facts: Facts) -> Relation:
    """Folders of packages without bytecode of the examined Python."""
    return facts.site if isinstance(facts.site, Missing) else facts.site.uncompiled


def other_majors(facts: Facts) -> Relation:
    """Distributions that share one folder with those of torch's CUDA major, and are of another."""
    majors = _majors(facts)
    if isinstance(majors, Missing):
        return majors
    torch, found = majors
    return tuple(name for name, major in found.items() if major != torch and f"{_stem(name)}-cu{torch}" in found)


def mended_majors(facts: Facts) -> Relation:
    """Those of torch's CUDA major whose files they may have overwritten."""
    others, majors = other_majors(facts), _majors(facts)
    if isinstance(others, Missing) or isinstance(majors, Missing):
        return others
    return tuple(f"{_stem(str(name))}-cu{majors[0]}" for name in others)


def metadata_leftovers(facts: Facts) -> Relation:
    """Folders of metadata that lie beside those of the version that is installed: what importlib.metadata may take."""
    return tuple(place for one in _installed(facts) for place in one.leftovers)


def metadata_owners(facts: Facts) -> Relation:
    """Those packages: "flashinfer-python 0.7.2.post1"."""
    return tuple(f"{one.name} {one.version}" for one in _installed(facts) if one.leftovers)


def metadata_claims(facts: Facts) -> Relation:
    """Packages whose metadata name another version than their files: "vllm 0.33.0 (metadata: 0.28.0)"."""
    claiming = [one for one in _installed(facts) if one.claims and not one.editable]
    return tuple(f"{one.name} {one.version} (metadata: {one.claims})" for one in claiming)


def files_damaged(facts: Facts) -> Relation:
    """Python files of FlashInfer and vLLM that were installed and are gone or empty: "flashinfer/page.py (gone)"."""
    return _altered(facts, lambda how: how.startswith(_DAMAGE))


def files_altered(facts: Facts) -> Relation:
    """Those that have another size than was installed, or other contents."""
    return _altered(facts, lambda how: not how.startswith(_DAMAGE))


def packages_lost(facts: Facts) -> Relation:
    """Packages of which only metadata are there: "vllm 0.33.0"."""
    return tuple(f"{one.name} {one.version}" for one in _installed(facts) if one.lost)


def packages_lost_why(facts: Facts) -> Relation:
    """Why nothing can be imported of these."""
    return tuple(dict.fromkeys(one.lost for one in _installed(facts) if one.lost))


def _altered(facts: Facts, is_meant: Callable[[str], bool]) -> Relation:
    packages = [one for one in (facts.flashinfer, facts.vllm) if not isinstance(one, Missing)]
    told = [
        f"{one.root.rpartition('/')[2]}/{name} ({how})"
        for one in packages
        for name, how in one.altered.items()
        if is_meant(how)
    ]
    rest = len(told) - _MOST_NAMED
    return (*told[:_MOST_NAMED], f"{rest} more") if rest > 0 else tuple(told)


def _installed(facts: Facts) -> list[Package]:
    return [one for one in facts.packages.values() if isinstance(one, Package)]


def cupy_of_other_major(facts: Facts) -> Relation:
    """CuPy for another CUDA major than torch's."""
    if isinstance(facts.site, Missing) or isinstance(facts.toolkit.torch_cuda, Missing):
        return facts.site if isinstance(facts.site, Missing) else _why(facts.toolkit.torch_cuda)
    if (torch := whole(facts.toolkit.torch_cuda.partition(".")[0])) is None:
        return Missing(reason=f"torch is for CUDA {facts.toolkit.torch_cuda!r}")
    return tuple(n for n, major in facts.site.cuda_majors.items() if n.startswith("cupy-") and major != torch)


def shadowing_here(facts: Facts) -> Relation:
    """Packages in the current folder that `python -m` takes instead of the installed ones."""
    return facts.site if isinstance(facts.site, Missing) else tuple(facts.site.here)


def trees_on_pythonpath(facts: Facts) -> Relation:
    """VLLM or torch from a folder that no distribution owns, while one of that name is installed elsewhere."""
    found = (facts.packages.get(name) for name in ("vllm", "torch", "triton"))
    packages = [package for package in found if isinstance(package, Package)]
    return tuple(p.name for p in packages if p.shadowed and not p.editable)


def tree_locations(facts: Facts) -> Relation:
    """The folders that win."""
    names = trees_on_pythonpath(facts)
    if isinstance(names, Missing):
        return names
    found = (facts.packages[str(name)] for name in names)
    return tuple(package.location for package in found if isinstance(package, Package))


def tree_pth(facts: Facts) -> Relation:
    """The .pth files by which vLLM, torch, triton or FlashInfer come from elsewhere than where they are installed."""
    if isinstance(facts.site, Missing):
        return facts.site
    found = (facts.packages.get(name) for name in ("flashinfer-python", "vllm", "torch", "triton"))
    winning = [one.location for one in found if isinstance(one, Package) and one.shadowed and not one.editable]
    files = [facts.site.by_pth[place] for place in winning if place in facts.site.by_pth]
    return tuple(dict.fromkeys(files)) or Missing(reason="no .pth file names it")


def _majors(facts: Facts) -> tuple[int, dict[str, int]] | Missing:
    """Torch's CUDA major, and the distributions that share a folder with others of their name."""
    cuda = facts.toolkit.torch_cuda
    if isinstance(facts.site, Missing) or isinstance(cuda, Missing):
        return facts.site if isinstance(facts.site, Missing) else _why(cuda)
    shared = {name: major for name, major in facts.site.cuda_majors.items() if name.startswith(_ONE_FOLDER)}
    major = whole(cuda.partition(".")[0])
    return Missing(reason=f"torch is for CUDA {cuda!r}") if major is None else (major, shared)


def _why(value: object) -> Missing:
    return value if isinstance(value, Missing) else Missing(reason="it is not known")


def _stem(name: str) -> str:
    return name.rpartition("-cu")[0]


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "pip_install": (Kind.TEXT, pip("install")),
    "pip_uninstall": (Kind.TEXT, pip("uninstall", "-y")),
    "files_altered": (Kind.TEXT, files_altered),
    "files_damaged": (Kind.TEXT, files_damaged),
    "metadata_claims": (Kind.TEXT, metadata_claims),
    "metadata_leftovers": (Kind.TEXT, metadata_leftovers),
    "metadata_owners": (Kind.TEXT, metadata_owners),
    "packages_lost": (Kind.TEXT, packages_lost),
    "packages_lost_why": (Kind.TEXT, packages_lost_why),
    "pip_leftovers": (Kind.TEXT, leftovers),
    "broken_packages": (Kind.TEXT, broken),
    "broken_folders": (Kind.TEXT, broken_folders),
    "uncompiled_packages": (Kind.TEXT, uncompiled),
    "packages_of_other_major": (Kind.TEXT, other_majors),
    "packages_overwritten": (Kind.TEXT, mended_majors),
    "cupy_of_other_major": (Kind.TEXT, cupy_of_other_major),
    "shadowing_here": (Kind.TEXT, shadowing_here),
    "trees_on_pythonpath": (Kind.TEXT, trees_on_pythonpath),
    "tree_pth": (Kind.TEXT, tree_pth),
    "tree_locations": (Kind.TEXT, tree_locations),
}
