"""The verdict on one variant: from what happened to it, else from what its needs and the installed packages declare."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from fi_doctor.diagnosis.needs import unmet
from fi_doctor.model import (
    Cell,
    CellOutcome,
    Depth,
    Ending,
    Evidence,
    Facts,
    Missing,
    Outcome,
    PlannedProbe,
    Scope,
    Stage,
    Verdict,
)
from fi_doctor.model.phrases import AGREES, IN_PART, SILENT, UNCOMPARED, short

# Signals that others send; a fault of the process itself has SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE or SIGTRAP.
_FROM_OUTSIDE = (
    "SIGKILL",
    "SIGTERM",
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGUSR",
    "SIGPIPE",
    "SIGALRM",
)
# The same of a compiler, in the words of ninja, nvcc and gcc; and a machine that has no room for what it makes.
_STOPPED_FROM_OUTSIDE = re.compile(
    r"killed by signal (?:1|2|3|9|13|14|15|24|25)\b|died due to signal (?:1|2|3|9|15|24|25)\b"
    r"|(?:Killed|Terminated|Hangup)(?:$| signal terminated program)|virtual memory exhausted|Cannot allocate memory"
    rf"|{re.escape(SILENT)}|No space left on device|Disk quota exceeded|File too large"
)
# What torch and CUDA say where a build asks for a GPU and there is none, no driver, or none in this torch.
_NO_GPU = re.compile(
    r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|no CUDA-capable device is detected|The NVIDIA driver on your system is too old"
    r"|CUDA driver version is insufficient|CUDA driver initialization failed|CUDA unknown error"
)
# Errors of a kernel that was running, in the words of cudaGetErrorString: no compiler and no loader says them.
_OF_A_KERNEL = re.compile(
    r"an illegal memory access was encountered|misaligned address|device-side assert triggered"
    r"|an illegal instruction was encountered|hardware stack error|invalid program counter"
    r"|operation not supported on global/shared address space|unspecified launch failure"
)
# How reasons begin of what was started and cut off, so that nobody calls it "not run".
BEGUN = (
    "budget of",
    "not finished",
    "killed from outside",
    "the machine stopped it",
    "too little GPU memory",
    "its record was lost",
    "it compiled",
)
# What is installed by now and was not when the report was written. A record lists every variant of the probe that ran,
# those too that were not tried.
LATER = "not in this report"
_LATER_VARIANT = f"{LATER}: the probe had no such variant when it ran"
# Of two records of one thing the worse one is believed.
_WORST = (
    Ending.WRONG,
    Ending.SIGNALLED,
    Ending.RAISED,
    Ending.EXITED,
    Ending.TIMED_OUT,
    Ending.LOST,
    Ending.NOT_RUN,
    Ending.RETURNED,
)


class Judged(NamedTuple):
    """A verdict with what it rests on."""

    verdict: Verdict
    evidence: Evidence
    why: str


def cells_of(planned: PlannedProbe | None, outcome: Outcome | None, facts: Facts) -> tuple[Cell, ...]:
    """A cell for each variant of a probe on one SM: the tried ones, then those that were left out, as planned."""
    probe = planned.spec.id if planned is not None else outcome.probe if outcome is not None else ""
    tried = {cell.variant: cell for cell in sorted(outcome.cells, key=badness, reverse=True)} if outcome else {}
    found: list[Cell] = []
    for variant in _variants(planned, tried):
        judged = _judge_variant(variant, planned, outcome, tried.get(variant), facts)
        found.append(_cell(variant, probe, judged, tried.get(variant)))
    return tuple(found)


def as_recorded(planned: tuple[PlannedProbe, ...], outcomes: tuple[Outcome, ...]) -> tuple[PlannedProbe, ...]:
    """A plan to judge a record by: nothing is tried of what the record knows nothing of."""
    ran = {outcome.probe for outcome in outcomes}
    return tuple(
        msgspec.structs.replace(probe, depth=Depth.STATIC, skip=LATER)
        if probe.is_tried and not probe.skip and probe.spec.id not in ran
        else probe
        for probe in planned
    )


def badness(happened: CellOutcome | Outcome) -> int:
    """Place among the endings, the worst first."""
    return _WORST.index(happened.ending)


def judge_outcome(happened: CellOutcome | Outcome, *, builds: bool, rest: str, has_gpu: bool) -> Judged:
    """The verdict on what happened.

    builds: whether something is compiled between the import and the first result.  rest: why it was only built.
    has_gpu: whether CUDA sees one.
    """
    said, stage = _said(happened), happened.stage
    match happened.ending:
        case Ending.RETURNED:
            return _judge_return(happened, rest)
        case Ending.WRONG:
            return Judged(Verdict.WRONG_RESULT, Evidence.VERIFIED, said)
        case Ending.RAISED | Ending.SIGNALLED | Ending.EXITED:
            if excuse := _excuse(happened, has_gpu=has_gpu):
                return Judged(Verdict.UNKNOWN, Evidence.NONE, f"{excuse}: {said}")
            return _judge_failure(stage, said, builds=builds)
        case Ending.TIMED_OUT if stage is Stage.NONE or _in_build(stage, builds=builds):
            # A slow machine compiles and imports slowly: that is no fault of the kernel.
            return Judged(Verdict.UNKNOWN, Evidence.NONE, f"not finished: {said}")
        case Ending.TIMED_OUT:
            return Judged(Verdict.BROKEN, Evidence.RAN, said)
        case Ending.LOST:
            return Judged(Verdict.UNKNOWN, Evidence.NONE, f"its record was lost: {said}")
        case Ending.NOT_RUN:
            return Judged(Verdict.UNKNOWN, Evidence.NONE, said)


def _variants(planned: PlannedProbe | None, tried: dict[str, CellOutcome]) -> tuple[str, ...]:
    if planned is None:
        return tuple(tried) or ("",)
    declared = tuple(planned.spec.variants) or ("",)
    return (*declared, *(variant for variant in tried if variant not in declared))


def _judge_variant(
    variant: str,
    planned: PlannedProbe | None,
    outcome: Outcome | None,
    cell: CellOutcome | None,
    facts: Facts,
) -> Judged:
    # A process that died before it named a variant says the same of all of them. A success is never taken so.
    died = outcome is not None and not outcome.cells and outcome.ending is not Ending.RETURNED
    whole = outcome if died and not _left_out(variant, planned) else None
    happened = cell if cell is not None else whole
    if happened is not None and outcome is not None and happened.ending is not Ending.NOT_RUN:
        if planned is not None and planned.spec.gate_only and happened.ending is Ending.RETURNED:
            return Judged(Verdict.UNKNOWN, Evidence.DECLARED, f"not run: {happened.detail}")
        return judge_outcome(
            happened, builds=_builds(planned), rest=_rest(planned, facts), has_gpu=facts.gpus.cuda_sees_any
        )
    if planned is not None and (need := unmet(planned, variant, facts)):
        return Judged(Verdict.UNSUPPORTED, Evidence.DECLARED, need)
    if outcome is not None and outcome.cells and cell is None:
        return Judged(Verdict.UNKNOWN, Evidence.NONE, _LATER_VARIANT)
    return Judged(Verdict.UNKNOWN, Evidence.NONE, _not_tried(variant, planned, happened))


def _not_tried(variant: str, planned: PlannedProbe | None, happened: CellOutcome | Outcome | None) -> str:
    told = happened.detail if happened is not None else ""
    if planned is None:
        return told or "not tried"
    said = planned.skipped_variants.get(variant, "") or told or planned.skip or "not reached"
    if isinstance(planned.sm, Missing):
        # The row says in full why its capability is not known; here its first clause is enough.
        said = said.replace(planned.sm.reason, planned.sm.reason.partition(": ")[0])
    return said


def _left_out(variant: str, planned: PlannedProbe | None) -> bool:
    return planned is not None and (planned.depth is Depth.STATIC or variant in planned.skipped_variants)


def _judge_return(happened: CellOutcome | Outcome, rest: str) -> Judged:
    told = happened.detail
    refusal = short(happened.refusal) if isinstance(happened, CellOutcome) else ""
    compares = isinstance(happened, CellOutcome) and happened.compares
    match happened.stage:
        case Stage.RAN | Stage.VERIFIED if refusal and not compares:
            return Judged(Verdict.UNSUPPORTED, Evidence.DECLARED, f"the call is refused: {refusal}")
        case Stage.VERIFIED if compares:
            but = f" where the call is not refused: {refusal}" if refusal else ""
            return Judged(Verdict.WORKS, Evidence.VERIFIED, f"{AGREES}{but}")
        case Stage.VERIFIED:
            return Judged(Verdict.WORKS, Evidence.RAN, f"it ran here; {UNCOMPARED}")
        case Stage.RAN:
            return Judged(Verdict.WORKS, Evidence.RAN, f"it ran here; {told or 'nothing to compare'}")
        case Stage.BUILT:
            return Judged(Verdict.UNKNOWN, Evidence.BUILT, f"it compiled and loaded here; {rest}")
        case Stage.IMPORTED | Stage.NONE:
            return Judged(Verdict.UNKNOWN, Evidence.NONE, f"not run{f': {told}' if told else ''}")


def _judge_failure(stage: Stage, said: str, *, builds: bool) -> Judged:
    if _in_build(stage, builds=builds) and not _OF_A_KERNEL.search(said):
        return Judged(Verdict.BROKEN, Evidence.BUILT, f"compiling or loading fails: {said}")
    if stage is Stage.NONE:
        return Judged(Verdict.BROKEN, Evidence.RAN, f"importing fails: {said}")
    return Judged(Verdict.BROKEN, Evidence.RAN, said)


def _excuse(happened: CellOutcome | Outcome, *, has_gpu: bool) -> str:
    """Why a failure says nothing about the kernel, in words; "" where it does."""
    if happened.ending is Ending.SIGNALLED and happened.detail.startswith(_FROM_OUTSIDE):
        return "killed from outside"
    if isinstance(happened, CellOutcome) and happened.error.endswith("OutOfMemoryError"):
        return "too little GPU memory is free"
    if happened.stage is Stage.IMPORTED and _STOPPED_FROM_OUTSIDE.search(happened.detail):
        return "the machine stopped it, which says nothing of the kernel"
    if happened.stage is Stage.IMPORTED and "libcudart is not loaded in the current process" in happened.detail:
        return "not finished, since this torch has no CUDA"
    if happened.stage is Stage.IMPORTED and "libcuda.so.1: cannot open shared object file" in happened.detail:
        return "it compiled, and cannot be loaded where there is no driver"
    if happened.stage is Stage.IMPORTED and not has_gpu and _NO_GPU.search(happened.detail):
        return "not finished, since it asks for a GPU and CUDA sees none"
    return ""


def _in_build(stage: Stage, *, builds: bool) -> bool:
    return stage is Stage.IMPORTED and builds


def _builds(planned: PlannedProbe | None) -> bool:
    """Whether something is compiled between the import and the first result; assumed where the probe is not known."""
    if planned is None:
        return True
    return planned.spec.has_build or any(tool != "nvcc" for tool in planned.spec.compiles)


def _rest(planned: PlannedProbe | None, facts: Facts) -> str:
    """Why a probe that compiled was not run."""
    if planned is not None and planned.skip:
        return planned.skip
    return "not run: only compiling was asked for" if facts.gpus.cuda_sees_any else "not run: CUDA sees no GPU"


def _said(happened: CellOutcome | Outcome) -> str:
    """The deciding line."""
    error = happened.error.rpartition(".")[2] if isinstance(happened, CellOutcome) else ""
    # That a check failed is said by the verdict.
    if error and error not in happened.detail and happened.ending is not Ending.WRONG:
        return f"{error}: {happened.detail}" if happened.detail else error
    return happened.detail or happened.ending.value


def _tactics(happened: CellOutcome) -> str:
    """Of which tactics that part is, where the probe says so: the two matrix products may be given the same one."""
    named = tuple(dict.fromkeys(str(happened.measurements.get("tactics", "")).split(" and ")))
    return f": tactic{'s' * (len(named) > 1)} {' and '.join(named)}" if any(named) else ""


def _cell(variant: str, probe: str, judged: Judged, happened: CellOutcome | None) -> Cell:
    in_part = happened is not None and Scope.SUBSET in happened.module_from.split(", ")  # of several modules one
    why = judged.why
    if happened is not None and in_part and judged.verdict is Verdict.WORKS:
        why = f"{why}{IN_PART}{_tactics(happened)}"
    return Cell(
        variant=variant,
        verdict=judged.verdict,
        evidence=judged.evidence,
        scope=Scope.SUBSET if in_part else Scope.FULL,
        probe=probe,
        why=why,
    )
