"""The plan: which probes to try on which GPU and how deep, or why not. Pure.

A planned probe of depth `static` is not tried and `skip` says why. One of a greater depth is tried; when `skip` is not
empty all the same, it is tried less deep than was asked for, and `skip` says what is in the way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from fi_doctor.conditions.peers import no_peers
from fi_doctor.conditions.ranges import number_in, version_in
from fi_doctor.model import (
    Depth,
    Facts,
    FlashInfer,
    Missing,
    Package,
    PlannedProbe,
    ProbeSpec,
    Request,
    Requires,
    selects,
)
from fi_doctor.model.phrases import UNANSWERED
from fi_doctor.probing import foreign

OTHER_GPUS = "needs compute capability"  # how it begins that a probe is for other GPUs
NO_VARIANT = "none of its variants applies here"
STATIC = "nothing is built or run at depth static"
ONLY_WHEN_CALLED = "it is compiled only when it is called"

_TIED_TO_NO_GPU = Missing(reason="this probe needs no GPU")


def plan(specs: Sequence[ProbeSpec], facts: Facts, request: Request) -> tuple[PlannedProbe, ...]:
    """Every selected probe, once for each compute capability among the GPUs that CUDA sees, by id and capability."""
    selected = sorted((spec for spec in specs if selects(request.features, spec.feature)), key=lambda spec: spec.id)
    found = (planned for spec in selected for planned in _plan_probe(spec, facts, request.depth))
    return tuple(planned if foreign.is_asked(planned.spec, request) else foreign.unasked(planned) for planned in found)


def to_look_at(planned: Sequence[PlannedProbe], facts: Facts) -> tuple[PlannedProbe, ...]:
    """The plan for a run that first looks at what is there: what lacks only a tool to be built may be built already."""
    lacking = missing_tool(facts)
    skip = _unbuildable(": ".join(lacking)) if lacking else None
    return tuple(replace(one, depth=Depth.BUILD, skip="") if one.skip == skip else one for one in planned)


def deepest(facts: Facts) -> Depth:
    """As deep as this machine allows: run where CUDA sees a GPU, else build."""
    return Depth.RUN if _visible_gpus(facts) else Depth.BUILD


def _plan_probe(spec: ProbeSpec, facts: Facts, depth: Depth) -> list[PlannedProbe]:
    if spec.gpus == 0:
        return [_place(spec, facts, _TIED_TO_NO_GPU, (), depth)]
    groups = _visible_gpus(facts)
    if not groups:
        return [_place(spec, facts, _only_architecture(facts), (), depth)]
    return [_place(spec, facts, sm, uuids, depth) for sm, uuids in groups]


def _place(spec: ProbeSpec, facts: Facts, sm: int | Missing, uuids: tuple[str, ...], depth: Depth) -> PlannedProbe:
    """One probe on one kind of GPU: what it may try, then how deep it can go."""
    variants = spec.variants or {"": Requires()}
    unnamed = _no_architecture(facts) if spec.gpus else ""
    # What holds for the whole probe is not said again of every variant.
    whole = (
        f"its probe cannot be used: {spec.fault}"
        if spec.fault
        else STATIC
        if depth is Depth.STATIC
        else _stack_obstacle(spec, facts) or unnamed or _silent_tool(spec, facts)
    )
    seen = len(uuids)
    # Where there are too few GPUs for any variant, all of them are built alike.
    needed = {name: requires.gpus if seen >= spec.gpus else 0 for name, requires in variants.items()}
    obstacles = {
        name: "" if whole else _obstacle(requires, facts, sm) or _gpu_obstacle(needed[name], seen)
        for name, requires in variants.items()
    }
    planned = PlannedProbe(
        spec=spec,
        sm=sm,
        gpu_uuids=uuids[: spec.takes(seen)],
        depth=Depth.STATIC,
        variants=tuple(name for name, why in obstacles.items() if not why),
        skipped_variants={name: why for name, why in obstacles.items() if why},
        skip="",
    )
    if obstacle := whole or _obstacle(spec.requires, facts, sm):
        return replace(planned, skip=obstacle)
    if not planned.variants:
        return replace(planned, skip=f"{NO_VARIANT}: {next(iter(obstacles.values()))}")
    return _deepen(planned, facts, depth, seen=seen)


def _deepen(planned: PlannedProbe, facts: Facts, depth: Depth, seen: int) -> PlannedProbe:
    """As deep as asked for, or as GPUs and toolkit allow. A probe without need of a GPU always runs."""
    spec = planned.spec
    lack = _gpu_obstacle(spec.gpus, seen)
    if spec.gpus == 0 or (depth is Depth.RUN and not lack):
        return replace(planned, depth=Depth.RUN)
    wanted = lack if depth is Depth.RUN else ""
    obstacle = _build_obstacle(spec, facts)
    if obstacle:
        reason = f"{wanted}; it cannot be built either: {obstacle}" if wanted else _unbuildable(obstacle)
        return replace(planned, skip=reason, gpu_uuids=())
    return replace(planned, depth=Depth.BUILD, gpu_uuids=(), skip=f"not run, only built: {wanted}" if wanted else "")


def _unbuildable(obstacle: str) -> str:
    return f"cannot be built: {obstacle}"


def _visible_gpus(facts: Facts) -> list[tuple[int | Missing, tuple[str, ...]]]:
    """The GPUs that CUDA sees, in CUDA's order, by compute capability."""
    order, gpus = facts.gpus.cuda_order, facts.gpus.gpus
    if isinstance(order, Missing):
        return []
    sm_of = {} if isinstance(gpus, Missing) else {gpu.uuid: gpu.sm for gpu in gpus}
    # CUDA numbers the slices of a GPU in MIG mode by names of their own, which do not tell whose slices they are.
    sliced = set() if isinstance(gpus, Missing) else {gpu.sm for gpu in gpus if gpu.mig is True}
    unknown = sliced.pop() if len(sliced) == 1 else Missing(reason="NVML does not list this GPU")
    groups: dict[int | Missing, tuple[str, ...]] = {}
    for uuid in order:
        sm = sm_of.get(uuid, unknown)
        groups[sm] = (*groups.get(sm, ()), uuid)
    return sorted(groups.items(), key=lambda group: -1 if isinstance(group[0], Missing) else group[0])


def _architectures(facts: Facts) -> tuple[str, ...] | Missing:
    if isinstance(facts.flashinfer, Missing):
        return facts.flashinfer
    return facts.flashinfer.architectures


def _only_architecture(facts: Facts) -> int | Missing:
    """The capability that is built for where there is no GPU: "90a" means 90."""
    architectures = _architectures(facts)
    if isinstance(architectures, Missing):
        return architectures
    numbers = _numbers(architectures)
    if len(numbers) == 1:
        return numbers[0]
    return Missing(reason=f"FlashInfer builds for {', '.join(architectures) or 'no architecture'}")


def _numbers(architectures: Sequence[str]) -> list[int]:
    found = (re.match(r"\d{1,6}", name) for name in architectures)
    return sorted({int(match.group()) for match in found if match})


def _stack_obstacle(spec: ProbeSpec, facts: Facts) -> str:
    """What of the stack is not installed at all."""
    symbols = any(name.startswith("flashinfer.") for name in spec.requires.symbols)
    if not (spec.module or spec.requires.flashinfer or symbols):
        return ""
    torch = facts.packages.get("torch")
    if isinstance(torch, Missing):
        return _not_there("torch", torch)
    if isinstance(facts.flashinfer, Missing):
        return _not_there("FlashInfer", facts.flashinfer)
    return ""


def _silent_tool(spec: ProbeSpec, facts: Facts) -> str:
    """That a compiler does not answer. FlashInfer asks without a time limit, and would wait as long as there is one.

    What is prebuilt is tried all the same.
    """
    is_built = spec.has_build and not (
        isinstance(facts.flashinfer, FlashInfer) and _is_prebuilt(spec.module, facts.flashinfer)
    )
    return silent_compiler(facts) if is_built else ""


def silent_compiler(facts: Facts) -> str:
    """The sentence of the first compiler that did not say its version; "" when all of them did, or failed."""
    jit = facts.toolkit.jit
    asked = [] if isinstance(jit, Missing) else [jit.nvcc, jit.compiler]
    versions = [nvcc.version for nvcc in asked if not isinstance(nvcc, Missing)]
    silent = (one.reason for one in (*versions, facts.toolkit.host_compiler_version) if isinstance(one, Missing))
    return next((reason for reason in silent if UNANSWERED in reason), "")


def _not_there(name: str, missing: Missing) -> str:
    """The reason most often says itself that it is not installed, and in which interpreter."""
    said = missing.reason
    return f"{name} is {said}" if said.startswith("not installed") else f"{name} is not installed: {said}"


def _obstacle(requires: Requires, facts: Facts, sm: int | Missing) -> str:
    """The first requirement that is not met here, as a sentence; "" when all are."""
    flashinfer = facts.flashinfer
    version = flashinfer if isinstance(flashinfer, Missing) else flashinfer.version
    reasons = [
        _sm_obstacle(requires.sm, facts, sm),
        _range_obstacle("FlashInfer", requires.flashinfer, version),
        _range_obstacle("nvcc", requires.nvcc, facts.toolkit.gate_version),
        *(_symbol_obstacle(name, flashinfer) for name in requires.symbols),
        *(_package_obstacle(name, wanted, facts.packages.get(name)) for name, wanted in requires.packages.items()),
        no_peers(facts, sm) if requires.peer_access else "",
    ]
    return next((reason for reason in reasons if reason), "")


def _sm_obstacle(wanted: str, facts: Facts, sm: int | Missing) -> str:
    if not wanted:
        return ""
    if not isinstance(sm, Missing):
        return "" if number_in(sm, wanted) else f"{OTHER_GPUS} {wanted}, this is {sm}"
    architectures = _architectures(facts)
    if not isinstance(architectures, Missing) and any(number_in(n, wanted) for n in _numbers(architectures)):
        return ""
    return f"{OTHER_GPUS} {wanted}, and it is not known here: {sm.reason}"


def _range_obstacle(name: str, wanted: str, version: str | Missing) -> str:
    if not wanted:
        return ""
    if isinstance(version, Missing):
        return f"needs {name} {wanted}, and its version is not known: {version.reason}"
    return "" if version_in(version, wanted) else f"needs {name} {wanted}, found {version}"


def _symbol_obstacle(name: str, flashinfer: FlashInfer | Missing) -> str:
    """A name that was not looked for, or whose source could not be read, is no obstacle: the probe will tell."""
    found = "" if isinstance(flashinfer, Missing) else flashinfer.symbols.get(name, "")
    if not isinstance(found, Missing) or not found.absent:
        return ""
    return f"the installed FlashInfer has no {name}: {found.reason}"


def _package_obstacle(name: str, wanted: str, package: Package | Missing | None) -> str:
    if package is None:
        return f"needs {name}, and whether it is installed was not read"
    if isinstance(package, Missing):
        return f"needs {name}{wanted}: {package.reason}" if wanted else _not_there(name, package)
    return _range_obstacle(name, wanted, package.version)


def _gpu_obstacle(needed: int, seen: int) -> str:
    """Why a probe or a variant cannot run for want of GPUs."""
    if seen >= needed:
        return ""
    if seen == 0:
        return "CUDA sees no GPU"
    return f"needs {needed} GPUs of one kind, {seen} seen"


def _no_architecture(facts: Facts) -> str:
    """That nothing says what to build for, in the words of the two things that could; "" where something does."""
    is_named = "FLASHINFER_CUDA_ARCH_LIST" in facts.environment
    if facts.gpus.cuda_sees_any or is_named or not isinstance(_architectures(facts), Missing):
        return ""
    return "no GPU is seen and FLASHINFER_CUDA_ARCH_LIST names no architecture"


def _build_obstacle(spec: ProbeSpec, facts: Facts) -> str:
    """Why the probe's module cannot be had without running it."""
    if not spec.has_build:
        return ONLY_WHEN_CALLED if spec.compiles != ("nvcc",) else "it has nothing to build"
    if isinstance(facts.flashinfer, FlashInfer) and _is_prebuilt(spec.module, facts.flashinfer):
        return ""
    architectures = _architectures(facts)
    if isinstance(architectures, Missing):
        return f"no architecture to build for: {architectures.reason}"
    if lacking := missing_tool(facts):
        return ": ".join(lacking)
    return "" if architectures else "FlashInfer has no architecture to build for"


def missing_tool(facts: Facts) -> tuple[str, str] | None:
    """The first of what compiling takes that is not here, as "no nvcc" and why; None where all is."""
    jit = facts.toolkit.jit
    tools = {
        "no CUDA toolkit": jit,
        "no nvcc": jit if isinstance(jit, Missing) else jit.compiler,
        "no ninja": facts.toolkit.ninja,
        "no host compiler": facts.toolkit.host_compiler,
    }
    silent = silent_compiler(facts)
    lacking = ((words, fact.reason) for words, fact in tools.items() if isinstance(fact, Missing))
    return next(lacking, ("a compiler hangs", silent) if silent else None)


def _is_prebuilt(module: str, flashinfer: FlashInfer) -> bool:
    return bool(module) and module in (*flashinfer.cached_modules, *flashinfer.jit_cache_modules)
