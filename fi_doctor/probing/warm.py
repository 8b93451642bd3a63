"""Filling FlashInfer's own cache with whole modules, where a server looks for them; or what there would be to do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from fi_doctor.errors import CannotTellError
from fi_doctor.model import (
    Builds,
    Facts,
    FlashInfer,
    PlannedProbe,
    Request,
    Warming,
    Watch,
    command,
)
from fi_doctor.probing import ahead, budget, memory, mirrored, prebuild, refusals, warmed
from fi_doctor.probing.bench import opened
from fi_doctor.probing.ledger import joined
from fi_doctor.probing.refusals import Obstacle

ENDED_S = 0.5  # before the end of a budget, the time may be called up


def fill(  # noqa: PLR0913 - which modules, where, how, and who hears of it
    planned: Sequence[PlannedProbe],
    *,
    facts: Facts,
    request: Request,
    watch: Watch,
    environ: Mapping[str, str],
    is_dry: bool = False,
    again: str = "",
    obstacle: Obstacle | None = None,
) -> Warming:
    """Compile the modules of these probes' variants that are stale, as wholes, within request.budget_s.

    Ninja decides what is stale, so that what a killed run has finished is not compiled again. is_dry: nothing is
    compiled, and nothing is written in the cache. again: the command that does the rest, where there is a rest.
    obstacle: with one nothing is compiled either.
    Raises CannotTellError where nobody comes to know the modules, and that of the obstacle unless all are there.
    """
    begun = time.monotonic()
    if beyond := memory.beyond(facts, request):
        watch.note(beyond)
    folder = _cache(facts)
    obstacle = _foreign(folder, facts) or obstacle
    tried = [probe for probe in planned if probe.builds_module]
    if obstacle and tried and not _has_modules(facts):
        raise obstacle.error
    looks = is_dry or obstacle is not None
    before_kib = 0 if looks else _used_kib(folder)
    cache = folder if looks else None
    attempts = [*_attempts(tried, facts=facts, request=request, watch=watch, environ=environ, cache=cache)]
    builds: Builds | None = None
    for made in attempts:
        builds = joined(builds, made.result())
    watch.prebuilt(builds or Builds())
    done = warmed.told(
        attempts,
        builds or Builds(jobs=memory.usable_jobs(facts, request)),
        planned,
        memory.here(facts, request),
        memory_mib=memory.budget_mib(facts, request),
        is_dry=looks,
    )
    if obstacle and not warmed.is_all_in(done, obstacle.harmless):
        raise obstacle.error
    failed = warmed.failed(done, planned)
    return replace(
        done,
        dry_run=is_dry,
        folder=str(folder),
        seconds=round(time.monotonic() - begun, 1),
        disk_mib=done.disk_mib if looks else round((_used_kib(folder) - before_kib) / 1024, 1),
        command=again if warmed.is_open(done) else "",
        look=budget.look(facts, request, failed) if failed else "",
    )


def _attempts(  # noqa: PLR0913 - as fill
    tried: Sequence[PlannedProbe],
    *,
    facts: Facts,
    request: Request,
    watch: Watch,
    environ: Mapping[str, str],
    cache: Path | None,
) -> Iterator[prebuild.Attempt]:
    """One for each kind of GPU. cache: it is only looked at."""
    scratched = replace(request, fresh_cache=cache is not None)
    jobs = memory.usable_jobs(facts, request)
    with opened(tried, facts=facts, request=scratched, watch=watch, environ=environ) as bench:
        if cache is not None and bench.scratch is not None:
            mirrored.seed(cache, bench.scratch)
        for members in ahead.by_kind(tried).values():
            made = prebuild.attempt(members, bench, jobs, bench.deadline, is_whole=True, cache=cache)
            if made.modules is None:
                is_late = time.monotonic() >= bench.deadline - ENDED_S
                raise _too_short(facts, request) if is_late else _untold(made, facts)
            yield made


def _cache(facts: Facts) -> Path:
    if isinstance(facts.flashinfer, FlashInfer) and isinstance(facts.flashinfer.cache_dir, str):
        return Path(facts.flashinfer.cache_dir)
    raise CannotTellError(
        "FlashInfer's cache is not known", todo=command.line(facts.interpreter, "check", "--depth", "static")
    )


def _foreign(folder: Path, facts: Facts) -> Obstacle | None:
    """Folders below the top of the cache that are another user's."""
    for path in (folder, *folder.glob("*"), *folder.glob("cached_ops/*")):
        with contextlib.suppress(OSError):
            if (owner := path.lstat().st_uid) != facts.system.uid:
                return refusals.of_folder(refusals.foreign(str(path), owner, facts.system.uid))
    return None


def _has_modules(facts: Facts) -> bool:
    """Whether any is compiled, so that it may be one of those that are asked for."""
    flashinfer = facts.flashinfer
    return isinstance(flashinfer, FlashInfer) and bool(flashinfer.cached_modules or flashinfer.jit_cache_modules)


def _used_kib(folder: Path) -> int:
    """What all files below take on the disk. Files of compilers come and go meanwhile."""
    blocks = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            blocks += path.lstat().st_blocks
    return blocks // 2


def _too_short(facts: Facts, request: Request) -> CannotTellError:
    return CannotTellError(
        f"the budget of {request.budget_s:g} s ended before it was known what is to be compiled",
        why="FlashInfer and torch have to be imported for that",
        todo=f"{command.line(facts.interpreter, 'warm', '--budget', '10m')}, or longer",
    )


def _untold(made: prebuild.Attempt, facts: Facts) -> CannotTellError:
    """What the process printed last says most."""
    lines = [line.strip() for line in made.output.splitlines() if line.strip()]
    asking = f" while it asked {made.asking}" if made.asking else ""
    return CannotTellError(
        f"the process that asks FlashInfer for modules ended{asking}",
        why=lines[-1][:400] if lines else "it said nothing",
        todo=command.line(facts.interpreter, "check"),
    )
