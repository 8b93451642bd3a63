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
)
from fi_doctor.probing import ahead, memory, mirrored, prebuild, refusals, warmed
from fi_doctor.probing.bench import opened
from fi_doctor.probing.ledger import joined

ENDED_S = 0.5  # before the end of a budget, the time may be called up


def fill(  # noqa: PLR0913 - which modules, where, how, and who hears of it
    planned: Sequence[PlannedProbe],
    *,
    facts: Facts,
    request: Request,
    watch: Watch,
    environ: Mapping[str, str],
    is_dry: bool = False,
    command: str = "",
) -> Warming:
    """Compile the modules of these probes' variants that are stale, as wholes, within request.budget_s.

    Ninja decides what is stale, so that what a killed run has finished is not compiled again. is_dry: nothing is
    compiled, and nothing is written in the cache. command: what does the rest, in the answer where there is a rest.
    Raises CannotTellError where nobody comes to know the modules.
    """
    begun = time.monotonic()
    folder = _cache(facts)
    if not is_dry:
        _refuse_foreign(folder, facts)
    before_kib = 0 if is_dry else _used_kib(folder)
    tried = [probe for probe in planned if probe.builds_module]
    cache = folder if is_dry else None
    attempts = [*_attempts(tried, facts=facts, request=request, watch=watch, environ=environ, cache=cache)]
    builds: Builds | None = None
    for made in attempts:
        builds = joined(builds, made.result())
    watch.prebuilt(builds or Builds())
    done = warmed.told(
        attempts,
        builds or Builds(jobs=memory.usable_jobs(facts, request)),
        planned,
        memory_mib=memory.budget_mib(facts, request),
        is_dry=is_dry,
    )
    return replace(
        done,
        folder=str(folder),
        seconds=round(time.monotonic() - begun, 1),
        disk_mib=done.disk_mib if is_dry else round((_used_kib(folder) - before_kib) / 1024, 1),
        command=command if warmed.is_lacking(done) else "",
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
                raise _too_short(request) if time.monotonic() >= bench.deadline - ENDED_S else _untold(made)
            yield made


def _cache(facts: Facts) -> Path:
    if isinstance(facts.flashinfer, FlashInfer) and isinstance(facts.flashinfer.cache_dir, str):
        return Path(facts.flashinfer.cache_dir)
    raise CannotTellError("FlashInfer's cache is not known", todo="fi-doctor check --depth static")


def _refuse_foreign(folder: Path, facts: Facts) -> None:
    """Raise CannotTellError where folders below the top of the cache are another user's."""
    for path in (folder, *folder.glob("*"), *folder.glob("cached_ops/*")):
        with contextlib.suppress(OSError):
            if (owner := path.lstat().st_uid) != facts.system.uid:
                raise refusals.foreign(str(path), owner, facts.system.uid)


def _used_kib(folder: Path) -> int:
    """What all files below take on the disk. Files of compilers come and go meanwhile."""
    blocks = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            blocks += path.lstat().st_blocks
    return blocks // 2


def _too_short(request: Request) -> CannotTellError:
    return CannotTellError(
        f"the budget of {request.budget_s:g} s ended before it was known what is to be compiled",
        why="FlashInfer and torch have to be imported for that",
        todo="fi-doctor warm --budget 10m, or longer",
    )


def _untold(made: prebuild.Attempt) -> CannotTellError:
    """What the process printed last says most."""
    lines = [line.strip() for line in made.output.splitlines() if line.strip()]
    asking = f" while it asked {made.asking}" if made.asking else ""
    return CannotTellError(
        f"the process that asks FlashInfer for modules ended{asking}",
        why=lines[-1][:400] if lines else "it said nothing",
        todo="fi-doctor check",
    )
