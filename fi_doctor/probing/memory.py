"""How much memory compilers may take, and how many of them it carries. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fi_doctor.model import Facts, Missing, Request
from fi_doctor.probing import estimates

RESERVE_MIB = 1024  # that is left free, or the share below where that is more
RESERVE = 0.1


def budget_mib(facts: Facts, request: Request) -> int:
    """As asked for, else what is available less a reserve; 0 for any amount, where nothing could be read.

    Available is what the machine has, and no more than the control groups leave of their limits.
    """
    if request.memory_mib > 0:
        return request.memory_mib
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


def carried(jobs: int, memory_mib: int, peak_mib: int) -> int:
    """Of so many jobs those that this much memory carries (0 for any amount), if one takes peak_mib: at least one."""
    return max(1, min(jobs, memory_mib // peak_mib)) if memory_mib > 0 and peak_mib > 0 else jobs


def makespan(modules: Mapping[str, int], jobs: int, memory_mib: int, here: estimates.Here) -> tuple[int, float]:
    """The jobs that memory carries while these (name -> objects) are compiled, and about how many seconds it takes.

    The heaviest module counts, as in a build.
    """
    heaviest = max(map(estimates.peak_mib, modules), default=0)
    jobs = carried(jobs, memory_mib, heaviest)
    return jobs, round(estimates.wall_seconds(modules, jobs, here), 1)


def carried_jobs(facts: Facts, request: Request, modules: Iterable[str]) -> int:
    """How many of them memory carries while these modules are compiled: at least one."""
    jobs, memory_mib = usable_jobs(facts, request), budget_mib(facts, request)
    heaviest = max(map(estimates.most_mib, modules), default=0)
    return jobs if isinstance(facts.flashinfer, Missing) else carried(jobs, memory_mib, heaviest)
