"""What compiling cost, what a server would have to compile, what bounds there were: in one line each. Pure."""

from __future__ import annotations

from fi_doctor.model import Builds, FirstStart, Report
from fi_doctor.reports.text import about, amount, clean, duration


def compiling(report: Report) -> list[str]:
    """The lines, as far as there is something to say; of compiling where somebody asks for rows that are compiled."""
    bounds = [clean(line) for line in report.bounds]
    if not any(row.needs_gpu for row in report.features):
        return bounds
    first_start = first_start_line(report.builds.first_start, selected=bool(report.request.features))
    return [line for line in (cost_line(report.builds), first_start, *bounds) if line]


def cost_line(builds: Builds) -> str:
    """How long it took against what nobody could do better, and the memory; "" where nothing was compiled."""
    least_s = builds.least_seconds
    if not builds.costs or least_s <= 0:
        return ""
    jobs = max(1, builds.jobs)
    spread = f"{builds.cpu_seconds:.0f} CPU s over {amount(jobs, 'job')} {duration(builds.cpu_seconds / jobs)}"
    longest = f"{clean(builds.longest, 40)} alone {duration(builds.longest_seconds)}"
    carried = f" of {_gib(builds.memory_mib)}" if builds.memory_mib else ""
    compiled = [builds.modules[name] for name in builds.costs if name in builds.modules]  # others are what parts share
    unfit = {end: sum(words.startswith(end) for words in compiled) for end in ("failed", "cut off")}
    ends = ", ".join(f"{count} {end}" for end, count in unfit.items() if count)
    return (
        f"Compiled {amount(len(compiled), 'module')}{f' ({ends})' if ends else ''} "
        f"in {duration(builds.build_seconds)}, {builds.build_seconds / least_s:.2f} x the least possible "
        f"({longest}, {spread}); compilers held up to {_gib(builds.peak_mib)}{carried}"
    )


def first_start_line(found: FirstStart, *, selected: bool) -> str:
    """How much it is and what does it beforehand; "" where there is nothing. selected: not all rows were asked for."""
    if not found.modules:
        return ""
    objects, jobs = amount(found.objects, "object"), amount(found.jobs, "job")
    caller = f"; {clean(found.caller)}" if found.caller else ""
    whose = "For the selected rows a" if selected else "A"
    return (
        f"{whose} server's first start would compile {amount(len(found.modules), 'module')} here ({objects}, "
        f"{about(found.estimated_seconds)} with {jobs}{caller}): {clean(found.command)}"
    )


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB"
