"""How much memory compilers may take, and how many of them it carries. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fi_doctor.model import Facts, Missing, Request
from fi_doctor.probing import estimates

RESERVE_MIB = 1024  # that is left free, or the share below where that is more
RESERVE = 0.1


def budget_mib(facts: Facts, request: Request) -> int:
    """As asked for, else what is available less a reserve; 0 for any amount, where nothing could be read.

    Available is what the machine has, and no more than the control groups leave of their limits.
    """
    return request.memory_mib if request.memory_mib > 0 else _free_mib(facts)


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


def usable_jobs(facts: Facts, request: Request) -> int:
    """How many compilers may run at once, whatever they take: as asked for, else by CPUs.

    nvcc may itself run several compilers (FLASHINFER_NVCC_THREADS), which count.
    """
    jobs = request.jobs if request.jobs > 0 else facts.system.cpus
    threads = facts.environment.get("FLASHINFER_NVCC_THREADS", "")
    return max(1, jobs // max(1, int(threads) if threads.isascii() and threads.isdigit() else 1))


def carried_jobs(facts: Facts, request: Request, modules: Iterable[str]) -> int:
    """How many of them memory carries while these modules are compiled: at least one."""
    jobs, memory_mib = usable_jobs(facts, request), budget_mib(facts, request)
    heaviest = max(map(estimates.most_mib, modules), default=0)
    return jobs if isinstance(facts.flashinfer, Missing) else estimates.carried(jobs, memory_mib, heaviest)
