"""Running a plan: the folders and the process that all probes share, then builds and probes within one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fi_doctor.model import Builds, Facts, Outcome, PlannedProbe, Request, Watch
from fi_doctor.probing import left_out, memory, objects, record, surroundings
from fi_doctor.probing.bench import Bench, opened
from fi_doctor.probing.flow import Flow


def run_all(
    planned: Sequence[PlannedProbe], *, facts: Facts, request: Request, watch: Watch, environ: Mapping[str, str]
) -> tuple[tuple[Outcome, ...], Builds]:
    """An outcome for every planned probe, in the plan's order, and what was built; who is not tried has one too.

    Takes at most request.budget_s: what does not fit is not run, and says so. On KeyboardInterrupt every child is
    killed first. The machine's own caches grow, unless request.fresh_cache is set or they belong to another user.
    """
    held = {id(one): why for one in planned if one.is_tried and (why := memory.too_large(one, facts, request))}
    tried = [probe for probe in planned if probe.is_tried and id(probe) not in held]
    outcomes = {
        id(probe): record.outcome(probe, left_out.all_cells(probe, held[id(probe)]) if id(probe) in held else {})
        for probe in planned
    }
    if not tried:
        return tuple(outcomes.values()), Builds()
    foreign = surroundings.foreign_cache(facts)
    if foreign and not request.fresh_cache:
        watch.note(foreign)
    if beyond := memory.beyond(facts, request):
        watch.note(beyond)
    with opened(tried, facts=facts, request=request, watch=watch, environ=environ) as bench:
        # As they are before anything is built: a module that is compiled in this check was not cached.
        modules = {id(probe): objects.module_of(probe.spec.module, facts.flashinfer, bench.scratch) for probe in tried}
        ran, builds = Flow(tried, bench, memory.usable_jobs(facts, request)).run()
        for probe in tried:
            outcome, was_there = ran[id(probe)], bench.board.was_there(probe)
            if was_there is not None:
                ran[id(probe)] = replace(outcome, cached=was_there)
            elif outcome.cached and not modules[id(probe)].was_finished():
                ran[id(probe)] = _built_here(probe, outcome, bench)
    return tuple((outcomes | ran)[id(probe)] for probe in planned), builds


def _built_here(probe: PlannedProbe, outcome: Outcome, bench: Bench) -> Outcome:
    """The outcome of a probe that found its module, which another probe had built in this check."""
    cells = tuple(
        replace(cell, module_from="built")
        if cell.module_from == "cache" and not bench.board.known(probe, cell.variant)
        else cell
        for cell in outcome.cells
    )
    return replace(outcome, cached=False, cells=cells)
