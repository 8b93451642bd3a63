"""The variants of a probe that are not tried once the builds are settled, and what is said of each."""

from __future__ import annotations

from msgspec.structs import replace

from fi_doctor.model import CellOutcome, Ending, PlannedProbe, Scope, Stage
from fi_doctor.probing import budget, estimates
from fi_doctor.probing.attempt import out_of_budget
from fi_doctor.probing.bench import Bench
from fi_doctor.probing.deciding import deciding_line
from fi_doctor.probing.record import TRACEBACK_LIMIT
from fi_doctor.probing.told import LATE, WHOLE, Told


def cells(probe: PlannedProbe, bench: Bench, jobs: int, *, is_alone: bool) -> dict[str, CellOutcome]:
    """Cells of the variants that are not tried, or whose part of a module does not compile.

    is_alone: each probe builds for itself, nobody asked which modules there are.
    """
    if is_alone and probe.spec.subset is not None and not probe.spec.subset.if_short:
        why = f"{probe.spec.module} could not be asked for, and is not compiled as a whole for one probe"
        return all_cells(probe, why)
    found = {}
    absent = bench.board.left_out(probe)
    late = {name: max(1, known.objects) for name, known in absent.values() if known.state == LATE}
    building_s = estimates.wall_seconds(late, jobs, bench.board.here)
    for variant, (name, known) in absent.items():
        if known.state == LATE:
            how = f"too short for its module: {known.detail or 'it was not finished in time'}"
            found[variant] = _not_run(variant, out_of_budget(probe, bench, how=how, building_s=building_s))
        elif known.state == WHOLE:
            command = budget.warm(bench.facts, replace(bench.request, features=(probe.spec.feature,)))
            why = budget.needs_whole(budget.not_compiled({name: known.objects}, jobs, bench.board.here), command)
            found[variant] = _not_run(variant, why)
        else:
            found[variant] = _without_part(variant, known)
    return found


def all_cells(probe: PlannedProbe, why: str) -> dict[str, CellOutcome]:
    """Cells of a probe that is not tried at all."""
    return {name: _not_run(name, why) for name in probe.variants}


def _not_run(variant: str, why: str) -> CellOutcome:
    return CellOutcome(variant=variant, stage=Stage.NONE, ending=Ending.NOT_RUN, detail=why)


def _without_part(variant: str, known: Told) -> CellOutcome:
    """A part that is not there: where FlashInfer's own source does not compile it is broken; else nothing is known."""
    said = deciding_line(known.detail)
    if known.state != "failed":
        return _not_run(variant, f"no part of {known.part_of} could be compiled: {said}")
    return CellOutcome(
        variant=variant,
        stage=Stage.IMPORTED,
        ending=Ending.RAISED,
        detail=said,
        traceback=known.detail[-TRACEBACK_LIMIT:],
        module_from=Scope.SUBSET.value,
    )
