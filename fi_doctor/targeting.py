"""The facts as they would be on a machine that is not here: what --target names, and of the rest what is examined."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from fi_doctor import upgraded
from fi_doctor.conditions.compilers import nvcc_architectures
from fi_doctor.conditions.drivers import BRANCHES
from fi_doctor.errors import UsageError
from fi_doctor.facts import released
from fi_doctor.facts.architectures import of_list
from fi_doctor.facts.gpus import read_gpus_of_nvml
from fi_doctor.knowledge import companions, contexts
from fi_doctor.model import (
    Depth,
    Driver,
    Facts,
    FlashInfer,
    Gpu,
    GpuFacts,
    JitToolkit,
    Missing,
    Named,
    Nvcc,
    ToolkitFacts,
)
from fi_doctor.model.targets import ARCH_LIST, Target, arch_list

_SOURCE = "--target"
_UNSEEN = Missing(reason="it is of a machine that is not here (--target)")
_FLASHINFER = "flashinfer-python"


def gpus_of(target: Target) -> Callable[[Mapping[str, str]], tuple[GpuFacts, dict[str, str]]]:
    """What reads GPUs and driver in place of this machine: those of the target, and this driver where it names none."""

    def read(environ: Mapping[str, str]) -> tuple[GpuFacts, dict[str, str]]:
        sources = {"gpus": _SOURCE, "gpus.cuda_order": _SOURCE}
        if target.driver:
            driver: Driver | Missing = driver_of(target.driver)
        else:
            here, _ = read_gpus_of_nvml(environ)
            driver = here.driver
            if isinstance(driver, Missing):
                driver = Missing(reason=f"--target names none, and here is none: {driver.reason}")
            else:
                sources["gpus"] = f"{_SOURCE}; the driver is that of this machine"
        return gpu_facts(target, driver), sources

    return read


def gpu_facts(target: Target, driver: Driver | Missing) -> GpuFacts:
    """The GPUs of the target beside a driver."""
    found = tuple(_gpu(target, index) for index in range(target.gpus))
    uuids = tuple(gpu.uuid for gpu in found)
    return GpuFacts(driver=driver, gpus=found, visible_devices=_UNSEEN, cuda_order=uuids, links=_UNSEEN)


def facts_for(facts: Facts, target: Target, depth: Depth | None) -> Facts:
    """The facts that were gathered with the GPUs of the target, with its toolkit and packages.

    What an installation replaces and no shipped data tells is Missing. Errors: UsageError where something is to be
    compiled with what is not here.
    """
    moved = moves(facts, target)
    is_other_toolkit = bool(target.cuda) and target.cuda != _nvcc_version(facts.toolkit)
    if depth is not Depth.STATIC and (moved or is_other_toolkit):
        absent = [f"{name} {version}" for name, version in moved.items()]
        absent += [f"nvcc {target.cuda}"] if is_other_toolkit else []
        raise UsageError(
            f"--depth and --target: what is to be compiled with is not here: {', '.join(absent)}",
            todo="--depth static, or install it first",
        )
    if is_other_toolkit:
        facts = replace(facts, toolkit=_toolkit(facts.toolkit, target.cuda), host_limits=_UNSEEN)
        facts = replace(facts, flashinfer=_of_other_toolkit(facts.flashinfer))
    if moved:
        if isinstance(facts.flashinfer, Missing) and _FLASHINFER in moved:
            facts = replace(facts, flashinfer=_absent(moved[_FLASHINFER]))
        facts = _with_companions(upgraded.facts_with(facts, moved), moved)
    if _FLASHINFER in moved and not isinstance(facts.flashinfer, Missing):
        facts = replace(facts, flashinfer=replace(facts.flashinfer, cccl=contexts.cccl(moved[_FLASHINFER])))
    return _with_architectures(facts, target) if is_other_toolkit or _FLASHINFER in moved else facts


def _with_architectures(facts: Facts, target: Target) -> Facts:
    """The same with what that FlashInfer compiles for with that toolkit: what a variable says, else the GPU."""
    package, cuda = facts.flashinfer, facts.toolkit.gate_version
    if isinstance(package, Missing):
        return facts
    version = package.version if isinstance(package.version, str) else ""

    def tags(sm: int) -> tuple[str, ...] | Missing:
        return cuda if isinstance(cuda, Missing) else contexts.tags(version, sm, cuda)

    if ARCH_LIST not in facts.environment:
        return replace(facts, flashinfer=replace(package, architectures=tags(target.sm)))
    by_number = None if contexts.takes_numbers_as_they_are(version) else tags
    named = of_list(facts.environment[ARCH_LIST], by_number)
    return replace(facts, flashinfer=replace(package, architectures=named, architectures_from=ARCH_LIST))


def _with_companions(facts: Facts, moved: Mapping[str, str]) -> Facts:
    """The same with what FlashInfer says of the packages beside it, where one of them moves."""
    package = facts.flashinfer
    if isinstance(package, Missing) or not {_FLASHINFER, companions.CUBIN, companions.JIT_CACHE} & moved.keys():
        return facts
    beside = {name: facts.version_of(name) for name in (companions.CUBIN, companions.JIT_CACHE)}
    there = {name: version for name, version in beside.items() if version}
    version = package.version if isinstance(package.version, str) else ""
    checks = companions.checks(version, there)
    if any(one.package == companions.JIT_CACHE and not one.ok for one in checks):
        package = replace(package, jit_cache_modules=(), jit_cache_architectures=_UNSEEN)  # nothing of it is taken
    return replace(facts, flashinfer=replace(package, version_checks=checks))


def moves(facts: Facts, target: Target) -> dict[str, str]:
    """The packages of the target that are installed in another version, or not at all."""
    return {name: version for name, version in target.versions.items() if facts.version_of(name) != version}


def environ_for(facts: Facts, environ: dict[str, str]) -> dict[str, str]:
    """The variables of what compiles for the target: FlashInfer would else ask for GPUs, which are not here."""
    package = facts.flashinfer
    if ARCH_LIST in environ or isinstance(package, Missing) or isinstance(package.architectures, Missing):
        return environ
    return {**environ, ARCH_LIST: arch_list(package.architectures)}


def driver_of(version: str) -> Driver:
    """A driver by its version or branch, with the newest CUDA that it runs."""
    branch = version.partition(".")[0]
    unknown = Missing(reason=f"which CUDA a driver of branch {branch} runs is not known")
    return Driver(version=version, cuda=BRANCHES.get(branch, unknown))


def _gpu(target: Target, index: int) -> Gpu:
    return Gpu(
        nvml_index=index,
        cuda_index=index,
        uuid=f"TARGET-{index}",
        name=target.name or "GPU",
        sm=target.sm,
        memory_total_mib=_UNSEEN,
        memory_free_mib=_UNSEEN,
        mig=_UNSEEN,
        pci_bus=_UNSEEN,
        nvlinks=_UNSEEN,
        iommu=_UNSEEN,
        acs_bridges=_UNSEEN,
        compute_mode=_UNSEEN,
        compute_processes=_UNSEEN,
    )


def _nvcc_version(toolkit: ToolkitFacts) -> str:
    jit = toolkit.jit
    nvcc = jit if isinstance(jit, Missing) else jit.nvcc
    return "" if isinstance(nvcc, Missing) or isinstance(nvcc.version, Missing) else nvcc.version


def _toolkit(here: ToolkitFacts, release: str) -> ToolkitFacts:
    """A toolkit of that release in place of the one that the JIT takes; what only its files tell is not known."""
    nvcc = Nvcc(
        path="",
        resolved="",
        found_by=_SOURCE,
        version=release,
        build=_UNSEEN,
        architectures=nvcc_architectures(release),
    )
    jit = here.jit
    target = JitToolkit(
        cuda_home="",
        found_by=_SOURCE,
        nvcc=nvcc,
        compiler=nvcc,
        headers={} if isinstance(jit, Missing) else _unseen(jit.headers),
        libraries={} if isinstance(jit, Missing) else _unseen(jit.libraries),
        cccl=contexts.CCCL.get(release, _UNSEEN),
        module_headers={} if isinstance(jit, Missing) else _unseen(jit.module_headers),
        module_libraries={} if isinstance(jit, Missing) else _unseen(jit.module_libraries),
        runtime=release,
    )
    return replace(here, jit=target, gate_version=release, gate_source="nvcc", others=(), toolkits=())


def _unseen(names: Mapping[str, str | Missing]) -> dict[str, str | Missing]:
    return dict.fromkeys(names, _UNSEEN)


def _of_other_toolkit(package: FlashInfer | Missing) -> FlashInfer | Missing:
    """What was compiled before was compiled by another nvcc."""
    return package if isinstance(package, Missing) else replace(package, cached_modules=(), stale_modules={})


def _absent(version: str) -> FlashInfer:
    """One that is not installed, of which the shipped data tell the names."""
    named = released.of_release(f"flashinfer_python-{version}", Named)
    return FlashInfer(
        root="",
        version=version,
        commit=_UNSEEN,
        architectures=_UNSEEN,
        architectures_from=_SOURCE,
        version_checks=(),
        version_check_disabled=False,
        cache_base="",
        cache_dir=_UNSEEN,
        cache_writable=_UNSEEN,
        cache_owner=_UNSEEN,
        cached_modules=(),
        cubin_dir=_UNSEEN,
        cubins=_UNSEEN,
        jit_cache_modules=(),
        jit_cache_architectures=_UNSEEN,
        symbols=named.symbols if named else {},
    )
