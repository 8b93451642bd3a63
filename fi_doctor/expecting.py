"""What is expected of rows on a machine that is not here: by rules, by machines of its kind, by what the image has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor import stopped
from fi_doctor.diagnosis import called, forecast, foretelling, gate
from fi_doctor.diagnosis.foretelling import Foreseen, Word
from fi_doctor.diagnosis.matrix import deciding_cells
from fi_doctor.knowledge import atlas, modules
from fi_doctor.model import (
    Cell,
    Depth,
    Evidence,
    Facts,
    Feature,
    FeatureRow,
    Finding,
    FlashInfer,
    KnowledgeBase,
    Missing,
    Outcome,
    PlannedProbe,
    Request,
    Severity,
    Verdict,
    selects,
)
from fi_doctor.model.expected import Expectations, Expected, FirstStarts, Start
from fi_doctor.model.targets import JIT_CACHE_UNREAD
from fi_doctor.probing import estimates, image, memory, plan

_OF_SM90 = re.compile(r"_(?:sm)?90$")  # "fused_moe_90": it has another name for another GPU
_OTHER_COMPILER = "; whether the CuTe DSL, which compiles without nvcc, serves in its place is not known"
_OF_ALL_ROWS = ("binary-for-other-gpu", "cuda-versions-differ")


class Basis(NamedTuple):
    """What expectations rest on."""

    kb: KnowledgeBase
    facts: Facts
    would: tuple[PlannedProbe, ...]  # what could be tried there, were it here
    known: atlas.Atlas


def basis(
    kb: KnowledgeBase, facts: Facts, planned: tuple[PlannedProbe, ...], request: Request, known: atlas.Atlas | None
) -> Basis:
    """The same for a plan, however deep it is. known: None for all that is shipped."""
    specs = tuple({probe.spec.id: probe.spec for probe in planned}.values())
    return Basis(kb, facts, plan.plan(specs, facts, replace(request, depth=Depth.BUILD)), known or atlas.load())


def foresee(on: Basis, outcomes: tuple[Outcome, ...], found: tuple[Finding, ...]) -> Foreseen:
    """What rules and machines of its kind say of cells that nobody tried.

    A cell is expected to work only where that release of FlashInfer ran it on that SM, on every machine that did, with
    a toolkit of that release; where nothing found here stands against its row; and where it could be compiled here. It
    is expected to be broken where compiling is vain and its module is not in the image.
    """
    words = foretelling.by_facts(on.kb, on.facts, outcomes)
    grave = [finding for finding in found if finding.severity is not Severity.INFO]
    stopping = forecast.stops(on.kb, found)
    words = (*stopped.rows(on.kb, on.would, stopping, on.facts), *words)
    vain = {(row, variant): word for row, variant, word in stopped.cells(on.would, stopping, on.facts)}
    if any(_concerns_unnamed_rows(finding) for finding in grave):
        return Foreseen(words, vain=vain)
    told: dict[tuple[str, str], Word] = {}
    doubted = {row for finding in grave for row in finding.features}
    for probe in on.would:
        for variant in _could(probe, on.facts):
            if (probe.spec.feature, variant) in vain:
                continue
            if word := _as_seen(probe, variant, on, is_doubted=probe.spec.feature in doubted):
                told[probe.spec.feature, variant] = word
    return Foreseen(words, told, vain)


def expect(
    rows: tuple[FeatureRow, ...], on: Basis, found: tuple[Finding, ...], foreseen: Foreseen, request: Request
) -> Expectations:
    """How each row that needs a GPU starts there, and what those compile together that are required.

    Where none is required: those that vLLM calls without being told to.
    """
    asked = tuple(one.feature for one in gate.asked_rows(request))
    words = foreseen._replace(words=(*foretelling.by_findings(on.kb, found), *foreseen.words))
    told = [(row, _expected(row, on, found, words)) for row in rows if row.needs_gpu]
    if not request.fresh_cache:
        told = [(row, one.in_image() if _is_built(row) else one) for row, one in told]
    counted = [one for row, one in told if (selects(asked, row.feature) if asked else _is_called(row, on))]
    vain = {row.feature for row, one in told if _is_vain(row, one)}
    cannot = tuple(sorted(vain & {one.feature for one in counted}))
    first_start = replace(_first_start(counted, on, request), is_asked=bool(asked), cannot=cannot)
    return Expectations(rows=tuple(one for _, one in told), first_start=first_start)


def with_reasons(rows: tuple[FeatureRow, ...], expected: Expectations) -> tuple[FeatureRow, ...]:
    """The rows; those of which nothing is foretold with the reason for that, instead of that nothing was tried."""
    why = {(one.feature, str(one.sm)): one.why for one in expected.rows}

    def told(row: FeatureRow) -> FeatureRow:
        said = why.get((row.feature, str(row.sm)), "")
        place, told, _ = row.why.rpartition(plan.STATIC)
        return replace(row, why=f"{place}{said}") if said and told and row.verdict is Verdict.UNKNOWN else row

    return tuple(told(row) for row in rows)


def _first_start(rows: Sequence[Expected], on: Basis, request: Request) -> FirstStarts:
    """What these rows have to compile together."""
    compiling = [row for row in rows if row.start is Start.COMPILES]
    costs_of = {name: _cost(name, row.sm, on) for row in compiling for name in row.modules}
    jobs = estimates.usable_jobs(costs_of, memory.usable_jobs(on.facts, request), memory.here(on.facts, request))
    cpu_s = sum(cost[1] for cost in costs_of.values())
    names = {row.feature for row in compiling}
    return FirstStarts(
        rows=tuple(sorted(names)),
        modules=tuple(sorted(costs_of)),
        objects=sum(cost[0] for cost in costs_of.values()),
        seconds=round(max(cpu_s / jobs, max(map(estimates.object_seconds, costs_of), default=0.0)), 1),
        jobs=jobs,
        memory_mib=max((row.memory_mib for row in compiling), default=0),
        unknown=tuple(sorted({row.feature for row in rows if row.start is Start.UNKNOWN})),
        unwarmed=tuple(sorted(names - {probe.spec.feature for probe in on.would if not probe.skip})),
    )


def _is_vain(row: FeatureRow, one: Expected) -> bool:
    """Whether what it takes cannot be compiled there, though FlashInfer has it for that GPU."""
    is_offered = row.verdict is not Verdict.UNSUPPORTED and not one.why.startswith(plan.NO_VARIANT)
    return one.start is Start.CANNOT and is_offered


def _is_built(row: FeatureRow) -> bool:
    """Whether all that it could take was compiled here."""
    made = {cell.probe for cell in row.cells if cell.evidence.rank >= Evidence.BUILT.rank}
    return bool(made) and all(cell.probe in made for cell in row.cells if cell.verdict is not Verdict.UNSUPPORTED)


def _concerns_unnamed_rows(finding: Finding) -> bool:
    """Whether it may stand against any row: which ones is not told."""
    return finding.cause in _OF_ALL_ROWS or (finding.severity is Severity.ERROR and not finding.features)


def _could(probe: PlannedProbe, facts: Facts) -> tuple[str, ...]:
    """The variants that would be tried were the GPUs here."""
    return probe.variants if probe.is_tried and probe.spec.gpus <= _alike(probe.sm, facts) else ()


def _alike(sm: int | Missing, facts: Facts) -> int:
    """How many GPUs of that kind there are."""
    gpus = facts.gpus.gpus
    return 0 if isinstance(gpus, Missing) else sum(gpu.sm == sm for gpu in gpus)


def _as_seen(probe: PlannedProbe, variant: str, on: Basis, *, is_doubted: bool) -> Word | None:
    release, gate = _release(on.facts), on.facts.toolkit.gate_version
    if isinstance(probe.sm, Missing) or isinstance(gate, Missing):
        return None
    row = probe.spec.feature
    seen = on.known.seen.get((row, probe.sm), {}).get(variant, {})
    alike = {name: one for name, one in sorted(seen.items()) if one.flashinfer == release and _is_alike(one.nvcc, gate)}
    verdicts = {one.verdict for one in alike.values()}
    if len(verdicts) != 1 or (is_doubted and Verdict.WORKS in verdicts):
        return None
    [verdict] = verdicts
    said = "ran" if verdict is Verdict.WORKS else "failed"
    machine, first = next(iter(alike.items()))
    more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
    where = f"{on.known.places[first.place].gpu} with this release ({machine}{more}, nvcc {first.nvcc})"
    return Word(verdict, f"it {said} on {where}", (row,), (variant,), tuple(alike))


def _is_called(row: FeatureRow, on: Basis) -> bool:
    """Whether vLLM calls it without a flag, with as many GPUs as there are."""
    needed = min((probe.spec.gpus for probe in on.would if probe.spec.feature == row.feature), default=0)
    feature = on.kb.feature(row.feature) if needed <= _alike(row.sm, on.facts) else None
    return feature is not None and called.is_called(feature, row.sm, on.facts, on.kb)


def _expected(row: FeatureRow, on: Basis, findings: tuple[Finding, ...], foreseen: Foreseen) -> Expected:
    leans = tuple(dict.fromkeys(word for cell in row.cells for word in _leans(row, cell, foreseen)))
    found = Expected(feature=row.feature, sm=row.sm, start=Start.UNKNOWN, leans_on=leans)
    if row.verdict is Verdict.UNSUPPORTED:
        return replace(found, start=Start.CANNOT, why=row.why)
    if row.verdict is Verdict.UNKNOWN:
        found = replace(found, why=_open(row, on, findings))
    probes = [probe for probe in on.would if probe.spec.feature == row.feature and probe.sm == row.sm]
    if probes and not any(probe.spec.module for probe in probes):
        is_late = any(set(probe.spec.compiles) - {"nvcc"} for probe in probes)
        return replace(found, start=Start.FIRST_CALL if is_late else Start.NOTHING)
    stopped = [probe.skip for probe in probes if probe.skip]
    # That no probe of ours is for this GPU says nothing of FlashInfer's kernel.
    if probes and len(stopped) == len(probes) and not all(plan.OTHER_GPUS in skip for skip in stopped):
        return replace(found, start=Start.CANNOT, why=stopped[0])
    feature = on.kb.feature(row.feature)
    if feature is not None and modules.is_late(feature.entry):
        return replace(found, start=Start.FIRST_CALL)
    names = _modules(row, feature, probes, on)
    if not names:
        return replace(found, doubt=f"which modules it asks for on SM{row.sm} was not seen")
    missing = tuple(name for name in names if not image.has(name, row.sm, on.facts))
    if not missing:
        return replace(found, start=Start.FROM_IMAGE)
    if isinstance(on.facts.flashinfer, FlashInfer) and on.facts.flashinfer.jit_cache_architectures == JIT_CACHE_UNREAD:
        return replace(found, doubt=JIT_CACHE_UNREAD.reason)
    if stopping := forecast.stops(on.kb, findings):
        other = any("cute-dsl" in probe.spec.compiles for probe in probes)
        why = f"{stopping[0].id}: {stopping[0].title}{_OTHER_COMPILER if other else ''}"
        return replace(found, start=Start.UNKNOWN if other else Start.CANNOT, why=why)
    costs_of = [_cost(name, row.sm, on) for name in missing]
    return replace(
        found,
        start=Start.COMPILES,
        modules=missing,
        objects=sum(cost[0] for cost in costs_of),
        cpu_seconds=round(sum(cost[1] for cost in costs_of), 1),
        memory_mib=max(cost[2] for cost in costs_of),
        measured=tuple(sorted({cost[3] for cost in costs_of if cost[3]})),
    )


def _modules(row: FeatureRow, feature: Feature | None, probes: Sequence[PlannedProbe], on: Basis) -> tuple[str, ...]:
    """The JIT modules of what decides the row: as asked for on a machine of that SM, else by its entry or the probe."""
    named = modules.of(feature.entry, row.sm) if feature is not None else ""
    if all(probe.skip for probe in probes):
        return (named,) if named else ()
    use = called.use_of(feature, row.sm, on.facts) if feature is not None else None
    deciding = [cell for cell in deciding_cells(use, row.cells) if cell.verdict is not Verdict.UNSUPPORTED]
    found: set[str] = set()
    for cell in deciding:
        asked = _asked(row, cell.variant, on)
        of_probe = {probe.spec.module for probe in probes if probe.spec.id == cell.probe and probe.spec.module}
        if asked is None and named:
            of_probe = {named}
        elif asked is None and row.sm != 90 and any(map(_OF_SM90.search, of_probe)):
            return ()
        found |= set(asked) if asked is not None else {image.as_family(name) for name in of_probe}
    return tuple(sorted(found))


def _asked(row: FeatureRow, variant: str, on: Basis) -> tuple[str, ...] | None:
    """What a machine of that SM asked for, one with this release first."""
    seen = _seen(row, on).get(variant, {})
    asked = [(one.flashinfer != _release(on.facts), name, one.modules) for name, one in seen.items() if one.modules]
    return min(asked)[-1] if asked else None


def _seen(row: FeatureRow, on: Basis) -> dict[str, dict[str, atlas.Ran]]:
    return {} if isinstance(row.sm, Missing) else on.known.seen.get((row.feature, row.sm), {})


def _cost(name: str, sm: int | Missing, on: Basis) -> tuple[int, float, int, str]:
    """Objects, CPU seconds, MiB of the largest compiler, and where that was measured; "" where it is estimated."""
    asked = None if isinstance(sm, Missing) else atlas.asked_of(on.facts, sm)
    if asked is not None and (found := atlas.cost(on.known, asked, name)):
        built, place = found
        code = "" if place.sm == sm else f", sm_{built.arch}"
        return built.units, built.cpu_s, built.peak_mib, f"{place.name} (nvcc {built.nvcc}{code})"
    objects = estimates.objects(name)
    return objects, estimates.core_seconds(name, objects), estimates.peak_mib(name), ""


def _leans(row: FeatureRow, cell: Cell, foreseen: Foreseen) -> tuple[str, ...]:
    """The rules and machines by which a cell is known that says what its row says."""
    word = foretelling.about(foreseen, row.feature, cell.variant)
    return word.sources if word is not None and cell.verdict is row.verdict is word.verdict else ()


def _open(row: FeatureRow, on: Basis, findings: tuple[Finding, ...]) -> str:
    """Why nothing is foretold: what stands against it, or the nearest that was measured."""
    against = [one.id for one in findings if one.severity is not Severity.INFO and row.feature in one.features]
    if against:
        return f"{', '.join(dict.fromkeys(against))} {'stand' if len(against) > 1 else 'stands'} against it"
    seen = [(machine, one) for there in _seen(row, on).values() for machine, one in there.items()]
    if not seen:
        return f"it was not measured on SM{row.sm}, and nothing is known against it"
    machine, near = min(seen, key=lambda one: (atlas.releases_apart(one[1].flashinfer, _release(on.facts)), one[0]))
    verdicts = {one.verdict for name, one in seen if name == machine}
    said = "ran" if verdicts == {Verdict.WORKS} else "ran in part" if Verdict.WORKS in verdicts else "failed"
    where = f"{on.known.places[near.place].gpu} with FlashInfer {near.flashinfer} and nvcc {near.nvcc} ({machine})"
    return f"nothing is known against it; it {said} on {where}, the nearest that was measured"


def _release(facts: Facts) -> str:
    version = facts.flashinfer.version if isinstance(facts.flashinfer, FlashInfer) else ""
    return "" if isinstance(version, Missing) else version


def _is_alike(one: str, other: str) -> bool:
    """Whether two toolkits are of one release, "13.0.1" and "13.0"."""
    return one.split(".")[:2] == other.split(".")[:2]
