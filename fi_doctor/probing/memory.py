"""How much memory compilers and probes may take, and how many of them it carries. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fi_doctor.model import Depth, Facts, Missing, PlannedProbe, ProbeSpec, Request
from fi_doctor.model.numbers import whole
from fi_doctor.probing import estimates

RESERVE_MIB = 1024  # that is left free, or the share below where that is more
RESERVE = 0.1
# Of a GPU's memory, for all probes on it together: the whole check is to take less than 4 GiB, since a server may run
# there. A probe was seen to take 0.5 GiB for its CUDA context and up to 1.3 GiB more (H200), but not three at a time:
# counted so, all of them took 3.7 GiB at most.
GPU_MIB = 3840
PROBE_MIB = 1250
CONTEXT_MIB = 640  # what is not counted above, where no more than a share may be taken
SMALL_MIB = 640
SMALL = ("import", "norm", "activation", "rope", "kv", "quant")  # families with a few MiB of tensors
# Shares of what is free that are taken beside a live server (Request.gentle).
GENTLE = 0.5
GENTLE_CPUS = 0.25


def budget_mib(facts: Facts, request: Request) -> int:
    """As asked for, else what is available less a reserve; 0 for any amount, where nothing could be read.

    Gentle: half of that. Available is what the machine has, and no more than the control groups leave of their limits.
    """
    return request.memory_mib if request.memory_mib > 0 else int(_free_mib(facts) * (GENTLE if request.gentle else 1))


def here(facts: Facts, request: Request) -> estimates.Here:
    """For estimates: the CPUs and the memory that there are, whatever was asked for."""
    asked, free = budget_mib(facts, request), _free_mib(facts)
    return estimates.Here(cpus=max(1, facts.system.cpus), memory_mib=min(asked, free) if free else asked)


def beyond(facts: Facts, request: Request) -> str:
    """That more was asked for than this process may use; "" where it was not."""
    cpus, free = facts.system.cpus, _free_mib(facts)
    said = []
    if request.jobs > cpus:
        said.append(f"--jobs {request.jobs} is more than the CPUs that this process may use ({cpus})")
    if free and request.memory_mib > free:
        typed = request.typed.get("--memory", f"{request.memory_mib}m")
        said.append(f"--memory {typed} is more than the memory that is available ({free / 1024:.1f} GiB)")
    return f"{'; '.join(said)}; estimates are for what there is" if said else ""


def _free_mib(facts: Facts) -> int:
    system = facts.system
    known = [amount for amount in (system.memory_available_mib, system.memory_left_mib) if isinstance(amount, int)]
    if not known:
        return 0
    available = min(known)
    return max(1, available - max(RESERVE_MIB, int(RESERVE * available)))


def gpu_mib(spec: ProbeSpec, request: Request) -> int:
    """What a probe takes of each of its GPUs at most; gentle: were all at their most at the same time."""
    return (SMALL_MIB if spec.feature.split(".")[0] in SMALL else PROBE_MIB) + request.gentle * CONTEXT_MIB


def gpu_budget_mib(facts: Facts, request: Request) -> int:
    """What all probes on a GPU may take together; gentle: no more than a share of the least that a GPU has free."""
    free = _free_gpu_mib(facts) if request.gentle else ()
    return min([GPU_MIB, *(int(GENTLE * one) for one in free)])


def too_large(probe: PlannedProbe, facts: Facts, request: Request) -> str:
    """Why a probe does not run beside a live server; "" where it may."""
    if not (request.gentle and probe.gpu_uuids and probe.depth is Depth.RUN):
        return ""
    free = _free_gpu_mib(facts)
    if not free:
        return "--gentle: how much memory its GPU has free is not known"
    needs, left = gpu_mib(probe.spec, request), int(GENTLE * min(free))
    if needs <= left:
        return ""
    return f"--gentle: it may take {needs} MiB of its GPU, and half of what is free is {left} MiB"


def _free_gpu_mib(facts: Facts) -> tuple[int, ...]:
    gpus = facts.gpus.gpus
    if isinstance(gpus, Missing):
        return ()
    seen = [gpu.memory_free_mib for gpu in gpus if not isinstance(gpu.cuda_index, Missing)]
    return tuple(one for one in seen if isinstance(one, int))


def held_back(facts: Facts, request: Request) -> tuple[str, ...]:
    """What a gentle check did not take, as a sentence; empty for another."""
    if not request.gentle:
        return ()
    memory_mib, free = budget_mib(facts, request), _free_gpu_mib(facts)
    said = [
        "lowest priority for processors and disks",
        f"{usable_jobs(facts, request)} of {facts.system.cpus} CPUs for compilers",
        f"{memory_mib} MiB of memory for them" if memory_mib else "any amount of memory, as what is free is not known",
    ]
    if free:
        said.append(
            f"{gpu_budget_mib(facts, request)} MiB of a GPU for all probes together, of {min(free)} that are free"
        )
    return (f"Held back by --gentle: {'; '.join(said)}",)


def usable_jobs(facts: Facts, request: Request) -> int:
    """How many compilers may run at once, whatever they take: as asked for, else by CPUs.

    nvcc may itself run several compilers (FLASHINFER_NVCC_THREADS), which count.
    """
    share = GENTLE_CPUS if request.gentle else 1
    jobs = request.jobs if request.jobs > 0 else max(1, int(share * facts.system.cpus))
    threads = facts.environment.get("FLASHINFER_NVCC_THREADS", "")
    return max(1, jobs // (whole(threads) or 1))


def carried_jobs(facts: Facts, request: Request, modules: Iterable[str]) -> int:
    """How many of them memory carries while these modules are compiled: at least one."""
    jobs, memory_mib = usable_jobs(facts, request), budget_mib(facts, request)
    heaviest = max(map(estimates.most_mib, modules), default=0)
    return jobs if isinstance(facts.flashinfer, Missing) else estimates.carried(jobs, memory_mib, heaviest)
