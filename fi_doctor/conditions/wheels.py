"""Which wheel index of torch and of flashinfer-jit-cache fits this CUDA, so that a line that installs can be pasted."""

from __future__ import annotations

from collections.abc import Callable

from packaging.version import Version

from fi_doctor.conditions.compilers import SINCE, runs_from
from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.ranges import parse_version, version_in
from fi_doctor.conditions.relations import Relation, visible_gpus
from fi_doctor.conditions.requirements import required
from fi_doctor.model import Facts, Missing

# The indexes of flashinfer-jit-cache: _SUPPORTED_JIT_CACHE_CUDA_VERSIONS in flashinfer/__main__.py:56 of 0.7.2.post1,
# before it "cu128, cu129, or cu130" (metadata of 0.5.3), which 0.6.7.post3 and 0.6.16.post4 were released for.
_JIT_CACHE = {">=0.7.0.dev0": ("12.9", "13.0", "13.4"), "<0.7.0.dev0": ("12.8", "12.9", "13.0")}
# Those of torch that many releases are in (https://pytorch.org/get-started/previous-versions): cu129 has 2.8 only.
_TORCH = tuple(map(Version, ("11.8", "12.6", "12.8", "13.0")))
# CUDA 13 compiles for SM75 and newer; torch's wheels of CUDA 12.6 are the last that have the older ones.
_OLDEST_OF_NEW_WHEELS, _CUDA_OF_OLD_GPUS = 75, Version("12.6")


def jit_cache_tag(facts: Facts) -> Relation:
    """The index of flashinfer-jit-cache for torch's CUDA, by FlashInfer's own rule: "cu130".

    The newest of the same major that is not newer than torch's CUDA.
    """
    package, cuda = facts.flashinfer, facts.toolkit.torch_cuda
    if isinstance(package, Missing) or isinstance(cuda, Missing):
        return package if isinstance(package, Missing) else _why(cuda)
    if isinstance(package.version, Missing):
        return package.version
    version, torch = package.version, parse_version(cuda)
    if torch is None:
        return Missing(reason=f"{cuda!r} is no version that can be compared")
    listed = next((cudas for releases, cudas in _JIT_CACHE.items() if version_in(version, releases)), ())
    fitting = [one for one in map(Version, listed) if one.major == torch.major and one <= torch]
    if not fitting:
        return Missing(reason=f"flashinfer-jit-cache {version} has no wheels for CUDA {cuda}")
    return (_tag(max(fitting)),)


def jit_cache_requirement(facts: Facts) -> Relation:
    """It with the tag in its version: pip takes a wheel for another CUDA as the same version where there is none."""
    tag, package = jit_cache_tag(facts), facts.flashinfer
    if isinstance(tag, Missing) or isinstance(package, Missing) or isinstance(package.version, Missing):
        return tag if isinstance(tag, Missing) else Missing(reason="the version of FlashInfer is not known")
    parsed = parse_version(package.version)
    return (f"flashinfer-jit-cache=={parsed.public if parsed else package.version}+{tag[0]}",)


def torch_tag(facts: Facts) -> Relation:
    """The index of torch for this driver, and without one for this nvcc: "cu130".

    The newest of the driver's CUDA major that is not newer than the driver; where all of that major are, the oldest,
    which runs by minor version compatibility. GPUs before SM75 get the last that has them; none is named where what the
    driver runs has no code for a GPU here.
    """
    driver = facts.gpus.driver
    known = driver if isinstance(driver, Missing) else driver.cuda
    cuda = facts.toolkit.gate_version if isinstance(known, Missing) else known
    limit = parse_version(cuda) if isinstance(cuda, str) else None
    if isinstance(cuda, Missing) or limit is None:
        return _why(cuda)
    gpus = visible_gpus(facts)
    sms = [] if isinstance(gpus, Missing) else [gpu.sm for gpu in gpus if isinstance(gpu.sm, int)]
    if sms and min(sms) < _OLDEST_OF_NEW_WHEELS:
        limit = min(limit, _CUDA_OF_OLD_GPUS)
    older = [one for one in _TORCH if one <= limit]
    same = [one for one in _TORCH if one.major == limit.major]
    if not older and not same:
        return Missing(reason=f"no torch is built for CUDA {cuda}")
    found = max(older) if older and (not same or max(older).major == limit.major) else min(same)
    first = Version(".".join(map(str, max((runs_from(sm) for sm in sms if sm in SINCE), default=(0, 0)))))
    if found < first:
        return Missing(reason=f"what this driver runs of torch's wheels has no code for these GPUs before CUDA {first}")
    return (_tag(found),)


def torch_tag_of_newer_driver(facts: Facts) -> Relation:
    """The first index of torch with code for all GPUs here, where this driver does not run it: "cu130"."""
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing) or not isinstance(torch_tag(facts), Missing):
        return gpus if isinstance(gpus, Missing) else Missing(reason="this driver runs one")
    firsts = [runs_from(gpu.sm) for gpu in gpus if isinstance(gpu.sm, int) and gpu.sm in SINCE]
    fitting = [one for one in _TORCH if firsts and one.release[:2] >= max(firsts)]
    return (_tag(fitting[0]),) if fitting else Missing(reason="of no such wheel it is known")


def torch_meant(facts: Facts) -> Relation:
    """The torch that the installed vLLM asks for, else any: "torch==2.14.0"."""
    asked = required("torch", facts, by="vllm")
    return ("torch" if asked is None else f"torch{asked.specifier}",)


def torch_cuda_behind(facts: Facts) -> Relation:
    """The CUDA of torch's wheel that makes no code for a GPU here, "CUDA 12.6, and SM100 needs 12.8"."""
    cuda, gpus = facts.toolkit.torch_cuda, visible_gpus(facts)
    if isinstance(cuda, Missing) or isinstance(gpus, Missing):
        return cuda if isinstance(cuda, Missing) else gpus
    release = parse_version(cuda)
    if release is None:
        return _why(cuda)
    sms = sorted({gpu.sm for gpu in gpus if isinstance(gpu.sm, int) and gpu.sm in SINCE})
    behind = [(sm, runs_from(sm)) for sm in sms if release.release[:2] < runs_from(sm)]
    return tuple(f"CUDA {cuda}, and SM{sm} needs {major}.{minor}" for sm, (major, minor) in behind)


def torch_toolkit(facts: Facts) -> Relation:
    """NVIDIA's package of the toolkit of torch's CUDA: "cuda-toolkit-13-0"."""
    cuda = facts.toolkit.torch_cuda
    return _why(cuda) if isinstance(cuda, Missing) else (f"cuda-toolkit-{cuda.replace('.', '-')}",)


def _tag(cuda: Version) -> str:
    return f"cu{cuda.major}{cuda.minor}"


def _why(fact: str | Missing) -> Missing:
    return fact if isinstance(fact, Missing) else Missing(reason=f"{fact!r} is no version that can be compared")


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "jit_cache_tag": (Kind.TEXT, jit_cache_tag),
    "jit_cache_requirement": (Kind.TEXT, jit_cache_requirement),
    "torch_tag": (Kind.TEXT, torch_tag),
    "torch_tag_of_newer_driver": (Kind.TEXT, torch_tag_of_newer_driver),
    "torch_meant": (Kind.TEXT, torch_meant),
    "torch_cuda_behind": (Kind.TEXT, torch_cuda_behind),
    "torch_toolkit": (Kind.TEXT, torch_toolkit),
}
