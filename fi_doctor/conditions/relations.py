"""How facts stand to one another: which CUDA is newer, which GPU nothing is built for, where a toolkit really is."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from packaging.version import Version

from fi_doctor.conditions.compilers import takes_suffix
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.model import Facts, Gpu, Library, Missing, Nvcc, VersionCheck

Relation = tuple[object, ...] | Missing
_ARCHITECTURE = re.compile(r"(?P<sm>\d{1,6})(?P<suffix>[a-z]?)")
# Libraries whose own major version is that of their CUDA.
_CUDA_NUMBERED = ("cudart", "nvrtc", "cublas")


def visible_gpus(facts: Facts) -> tuple[Gpu, ...] | Missing:
    """The GPUs that CUDA sees; Missing when neither NVML nor CUDA could be asked."""
    gpus, order = facts.gpus.gpus, facts.gpus.cuda_order
    if isinstance(gpus, Missing) or not gpus:
        return gpus
    if isinstance(order, Missing):
        return order
    return tuple(gpu for gpu in gpus if not isinstance(gpu.cuda_index, Missing))


def machine_gpu_count(facts: Facts) -> Relation:
    """GPUs that NVML lists, those among them that CUDA does not see."""
    gpus = facts.gpus.gpus
    return gpus if isinstance(gpus, Missing) else (len(gpus),)


def other_nvcc(facts: Facts) -> Relation:
    """Releases of the nvccs that the JIT does not take."""
    return tuple(nvcc.version for nvcc in facts.toolkit.others)


def torch_has_cuda(facts: Facts) -> Relation:
    """Whether the installed torch is a CUDA build; Missing when there is none or its build cannot be told."""
    if not isinstance(facts.toolkit.torch_cuda, Missing):
        return (True,)
    torch = facts.packages.get("torch", Missing(reason="torch was not looked for"))
    if isinstance(torch, Missing):
        return torch
    version = "" if isinstance(torch.version, Missing) else torch.version
    return (False,) if version.endswith("+cpu") else facts.toolkit.torch_cuda


def cuda_home_of_nvcc(facts: Facts) -> Relation:
    """The toolkit in which the nvcc of the JIT really lives, where that is not the CUDA_HOME that was derived.

    A symlink tells it by its target. A wrapper script does not: then it is another toolkit with the same build of nvcc.
    """
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    if isinstance(jit.nvcc, Missing):
        return jit.nvcc
    behind = home_of(jit.nvcc)
    # /usr/local/cuda is a link to /usr/local/cuda-13.0 on most machines: the same toolkit under two names.
    if isinstance(behind, str) and behind != jit.cuda_home and not behind.startswith(f"{jit.cuda_home}-"):
        return (behind,)
    for other in facts.toolkit.others:
        home = home_of(other)
        if isinstance(home, str) and home != behind and _is_same(other, jit.nvcc):
            return (home,)
    return Missing(reason=f"no other toolkit holds the nvcc of {jit.cuda_home}")


def cuda_home_of_compiler(facts: Facts) -> Relation:
    """The toolkit of the nvcc that ninja calls, which FLASHINFER_NVCC may name."""
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    return jit.compiler if isinstance(jit.compiler, Missing) else (home_of(jit.compiler),)


def sm_not_built_for(facts: Facts) -> Relation:
    """Compute capabilities of visible GPUs that no architecture in FlashInfer's list can run on."""
    return _gpus_where(facts, lambda sm, targets: not any(_runs_on(target, sm) for target in targets))


def sm_built_without_suffix(facts: Facts) -> Relation:
    """Visible GPUs from SM90 on that are built for, but never with the 'a' or 'f' that their own instructions need."""

    def plain_only(sm: int, targets: tuple[str, ...]) -> bool:
        fitting = [target for target in targets if _runs_on(target, sm)]
        return sm >= 90 and bool(fitting) and all(target[-1].isdigit() for target in fitting)

    return _gpus_where(facts, plain_only)


def architecture_unknown_to_nvcc(facts: Facts) -> Relation:
    """Architectures in FlashInfer's list that the compiler does not know yet; those it has dropped are not among them.

    `nvcc --list-gpu-code` names no suffixes, so the numbers are compared, and of suffixes the releases.
    """
    targets = targets_of(facts)
    jit = facts.toolkit.jit
    if isinstance(targets, Missing):
        return targets
    if isinstance(jit, Missing):
        return jit
    compiler = jit.compiler
    if isinstance(compiler, Missing):
        return compiler
    known, release = compiler.architectures, release_of(compiler.version)
    if isinstance(known, Missing):
        return known
    numbers = {number_of(name) for name in known}
    newer = [target for target in targets if number_of(target) >= min(numbers, default=0)]
    return tuple(
        target
        for target in newer
        if number_of(target) not in numbers or not (isinstance(release, Missing) or takes_suffix(target, release))
    )


def architecture_wanted(facts: Facts) -> Relation:
    """What FLASHINFER_CUDA_ARCH_LIST should say for the visible GPUs: "9.0a"."""
    sms = visible_sms(facts)
    if isinstance(sms, Missing):
        return sms
    if not sms:
        return Missing(reason="CUDA sees no GPU")
    return (" ".join(f"{sm // 10}.{sm % 10}{'a' if sm >= 90 else ''}" for sm in sms),)


def mismatch(check: VersionCheck) -> str:
    """A failed version check in words."""
    return f"{check.package} {check.found} (this FlashInfer accepts {check.expected})"


def library_major_differs_from_torch(facts: Facts) -> Relation:
    """CUDA libraries that a process would load although they belong to another CUDA major than torch's."""
    torch = release_of(facts.toolkit.torch_cuda)
    if isinstance(torch, Missing):
        return torch
    values: list[object] = []
    for name in _CUDA_NUMBERED:
        library: Library | Missing = facts.libraries.get(name, Missing(reason=f"{name} was not looked for"))
        release = library if isinstance(library, Missing) else release_of(library.version)
        if isinstance(release, Missing) or isinstance(library, Missing):
            continue  # a library that is not there cannot disagree
        if release.major != torch.major:
            values.append(f"{name} {library.version} ({library.path})")
    return tuple(values)


def _comparison(
    one: Callable[[Facts], str | Missing],
    compare: Callable[[Version, Version], bool],
    other: Callable[[Facts], str | Missing],
    *,
    majors_only: bool,
) -> Callable[[Facts], Relation]:
    def read(facts: Facts) -> Relation:
        first, second = release_of(one(facts)), release_of(other(facts))
        if isinstance(first, Missing):
            return first
        if isinstance(second, Missing):
            return second
        if majors_only:
            return (compare(Version(str(first.major)), Version(str(second.major))),)
        return (compare(first, second),)

    return read


def _nvcc(facts: Facts) -> str | Missing:
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    return jit.nvcc if isinstance(jit.nvcc, Missing) else jit.nvcc.version


def _compiler(facts: Facts) -> str | Missing:
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    return jit.compiler if isinstance(jit.compiler, Missing) else jit.compiler.version


def _driver_cuda(facts: Facts) -> str | Missing:
    return facts.gpus.driver if isinstance(facts.gpus.driver, Missing) else facts.gpus.driver.cuda


def _torch_cuda(facts: Facts) -> str | Missing:
    return facts.toolkit.torch_cuda


def _gate(facts: Facts) -> str | Missing:
    return facts.toolkit.gate_version


def _jit_cache_cuda(facts: Facts) -> str | Missing:
    return facts.toolkit.jit_cache_cuda


nvcc_newer_than_driver = _comparison(_nvcc, operator.gt, _driver_cuda, majors_only=False)
nvcc_major_newer_than_driver = _comparison(_nvcc, operator.gt, _driver_cuda, majors_only=True)
torch_cuda_newer_than_driver = _comparison(_torch_cuda, operator.gt, _driver_cuda, majors_only=False)
torch_cuda_major_newer_than_driver = _comparison(_torch_cuda, operator.gt, _driver_cuda, majors_only=True)
nvcc_differs_from_torch = _comparison(_nvcc, operator.ne, _torch_cuda, majors_only=False)
nvcc_major_differs_from_torch = _comparison(_nvcc, operator.ne, _torch_cuda, majors_only=True)
gate_differs_from_compiler = _comparison(_gate, operator.ne, _compiler, majors_only=False)
jit_cache_major_differs_from_torch = _comparison(_jit_cache_cuda, operator.ne, _torch_cuda, majors_only=True)


def release_of(version: str | Missing) -> Version | Missing:
    """Major and minor of a version: CUDA's releases differ by these."""
    if isinstance(version, Missing):
        return version
    parsed = parse_version(version)
    if parsed is None:
        return Missing(reason=f"{version!r} is no version that can be compared")
    return Version(f"{parsed.major}.{parsed.minor}")


def number_of(architecture: str) -> int:
    """90 of "sm_90a"; 0 of what names no number."""
    return int(re.sub(r"\D", "", architecture)[:6] or 0)


def home_of(nvcc: Nvcc) -> str | Missing:
    """The toolkit that a CUDA_HOME for this nvcc would name: FlashInfer calls $CUDA_HOME/bin/nvcc."""
    return nvcc.home or Missing(reason=f"{nvcc.resolved} is not the bin/nvcc of a toolkit")


def _is_same(one: Nvcc, other: Nvcc) -> bool:
    return not isinstance(one.build, Missing) and one.build == other.build


def targets_of(facts: Facts) -> tuple[str, ...] | Missing:
    """What FlashInfer compiles for: "90a"."""
    package = facts.flashinfer
    return package if isinstance(package, Missing) else package.architectures


def visible_sms(facts: Facts) -> tuple[int, ...] | Missing:
    """Compute capabilities of the GPUs that CUDA sees, each once."""
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing):
        return gpus
    return tuple(sorted({gpu.sm for gpu in gpus if not isinstance(gpu.sm, Missing)}))


def _gpus_where(facts: Facts, claim: Callable[[int, tuple[str, ...]], bool]) -> Relation:
    sms, targets = visible_sms(facts), targets_of(facts)
    if isinstance(sms, Missing):
        return sms
    if isinstance(targets, Missing):
        return targets
    return tuple(sm for sm in sms if claim(sm, targets))


def _runs_on(target: str, sm: int) -> bool:
    """Whether machine code for `target` runs on `sm`: 'a' on that one only, else on the same major from its minor on.

    FlashInfer asks nvcc for machine code only (code=sm_XX), so no PTX can be compiled for a newer GPU.
    """
    found = _ARCHITECTURE.fullmatch(target)
    if found is None:
        return False
    number = int(found["sm"])
    return number == sm if found["suffix"] == "a" else number // 10 == sm // 10 and number <= sm
