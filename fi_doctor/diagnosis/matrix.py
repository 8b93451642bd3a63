"""The matrix: one row for each feature and SM, with the verdict that its deciding cells allow. Nothing is rounded."""

from __future__ import annotations

import re

import msgspec

from fi_doctor.diagnosis import foretelling
from fi_doctor.diagnosis.called import depends_on_gpu, newest_use, use_of, vllm_use
from fi_doctor.diagnosis.cells import BEGUN, LATER, badness, cells_of
from fi_doctor.diagnosis.findings import is_measured
from fi_doctor.diagnosis.foretelling import Foreseen, Word
from fi_doctor.diagnosis.needs import (
    OTHER_GPUS,
    declared_at,
    lacks_entry,
    not_compiled_for,
    not_installed,
    offered_at,
    turned_away,
)
from fi_doctor.model import (
    Cell,
    Evidence,
    Facts,
    Feature,
    FeatureRow,
    Finding,
    KnowledgeBase,
    Missing,
    Outcome,
    Package,
    PlannedProbe,
    Requires,
    Scope,
    Use,
    Verdict,
    selects,
)

# Worst first: what one deciding cell shows is what the row shows. A variant that is not supported here says nothing
# against the others, so it decides only where there is no other.
_WORST = (Verdict.WRONG_RESULT, Verdict.BROKEN, Verdict.UNKNOWN, Verdict.WORKS, Verdict.UNSUPPORTED)


def judge(  # noqa: PLR0913 - the whole of what a verdict rests on
    kb: KnowledgeBase,
    facts: Facts,
    planned: tuple[PlannedProbe, ...],
    outcomes: tuple[Outcome, ...],
    findings: tuple[Finding, ...],
    *,
    selected: tuple[str, ...] = (),
    foreseen: Foreseen = foretelling.NOTHING,
) -> tuple[FeatureRow, ...]:
    """The rows of the features that the globs in `selected` name (all without any), sorted by feature and SM.

    foreseen: what is said of cells that nobody tried, beside the rules that are found.
    """
    rows: list[FeatureRow] = []
    foreseen = foreseen._replace(words=(*foretelling.by_findings(kb, findings), *foreseen.words))
    for feature in _features(kb, planned, outcomes):
        if not selects(selected, feature.id):
            continue
        ours = tuple(probe for probe in planned if probe.spec.feature == feature.id)
        theirs = tuple(outcome for outcome in outcomes if outcome.feature == feature.id)
        for sm in _sms(feature, ours, theirs, facts):
            cells = _predicted(_cells(ours, theirs, sm, facts), feature, foreseen)
            silent = frozenset(probe.spec.id for probe in ours if probe.spec.gate_only and not probe.is_tried)
            rows.append(_row(feature, sm, cells, facts, foreseen, beyond=_beyond(ours), silent=silent))
    return tuple(sorted(rows, key=lambda row: (row.feature, -1 if isinstance(row.sm, Missing) else row.sm)))


def with_deciding(kb: KnowledgeBase, facts: Facts, planned: tuple[PlannedProbe, ...]) -> tuple[PlannedProbe, ...]:
    """The plan, with the variants named that decide rows: they are built first where not everything fits."""
    features = {feature.id: feature for feature in kb.features}
    found = []
    for probe in planned:
        feature = features.get(probe.spec.feature)
        use = vllm_use(feature, probe.sm, facts) if feature is not None else None
        globs = use.variants if use is not None else ()
        names = tuple(name for name in probe.variants if globs and selects(globs, name))
        found.append(msgspec.structs.replace(probe, deciding=names))
    return tuple(found)


def deciding_cells(use: Use | None, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """Of a row's cells those that the installed vLLM would call; all of them where that is not known.

    A gate that is open says nothing where there are other cells: it lets through what then works or does not.
    """
    globs = use.variants if use is not None else ()
    called = tuple(cell for cell in cells if globs and selects(globs, cell.variant)) or cells
    return tuple(cell for cell in called if not _is_open_gate(cell)) or called


def worst_of(cells: tuple[Cell, ...]) -> tuple[Verdict, Evidence, list[Cell]]:
    """The worst verdict of some cells, how it is known, and the cells that have it."""
    verdict = min((cell.verdict for cell in cells), key=_WORST.index)
    same = [cell for cell in cells if cell.verdict is verdict]
    if verdict.is_failure:  # one that was seen is enough, whatever is foretold of the others
        same = [cell for cell in same if is_measured(cell.verdict, cell.evidence)] or same
    return verdict, min((cell.evidence for cell in same), key=lambda word: word.rank), same


def _is_open_gate(cell: Cell) -> bool:
    return cell.verdict is Verdict.UNKNOWN and cell.evidence is Evidence.DECLARED


def _features(
    kb: KnowledgeBase, planned: tuple[PlannedProbe, ...], outcomes: tuple[Outcome, ...]
) -> tuple[Feature, ...]:
    """The known features, and those that only a probe of someone else names."""
    known = {feature.id for feature in kb.features}
    probes: dict[str, list[str]] = {}
    for feature, probe in (
        *((item.spec.feature, item.spec.id) for item in planned),
        *((outcome.feature, outcome.probe) for outcome in outcomes),
    ):
        if feature not in known and probe not in probes.setdefault(feature, []):
            probes[feature].append(probe)
    foreign = (Feature(id=name, title=name, entry=(), probes=tuple(of), vllm=()) for name, of in probes.items())
    return (*kb.features, *foreign)


def _sms(
    feature: Feature, planned: tuple[PlannedProbe, ...], outcomes: tuple[Outcome, ...], facts: Facts
) -> tuple[int | Missing, ...]:
    tried = {probe.sm for probe in planned if not isinstance(probe.sm, Missing)}
    tried |= {outcome.sm for outcome in outcomes if not isinstance(outcome.sm, Missing)}
    if tried:
        return tuple(sorted(tried))
    without = [*(probe.sm for probe in planned), *(outcome.sm for outcome in outcomes)]
    if without:
        return (without[0],)
    return _machine_sms(facts) if feature.needs_gpu else (Missing(reason="it needs no GPU"),)


def _machine_sms(facts: Facts) -> tuple[int | Missing, ...]:
    gpus = facts.gpus.gpus
    if not isinstance(gpus, Missing):
        seen = (gpu.sm for gpu in gpus if not isinstance(gpu.cuda_index, Missing))
        sms = {sm for sm in seen if not isinstance(sm, Missing)}
        if sms:
            return tuple(sorted(sms))
    targets = Missing(reason="") if isinstance(facts.flashinfer, Missing) else facts.flashinfer.architectures
    if not isinstance(targets, Missing) and targets:
        found = (re.match(r"\d{1,6}", target) for target in targets)
        return tuple(sorted({int(number.group()) for number in found if number})) or (Missing(reason="no number"),)
    return (Missing(reason="CUDA sees no GPU, and no architecture is named"),)


def _cells(
    planned: tuple[PlannedProbe, ...], outcomes: tuple[Outcome, ...], sm: int | Missing, facts: Facts
) -> tuple[Cell, ...]:
    """The cells of every probe of a row. A probe that was tried without an SM belongs to every row."""
    plans = {probe.spec.id: probe for probe in planned if _is_of(probe.sm, sm)}
    worst_last = sorted((one for one in outcomes if _is_of(one.sm, sm)), key=badness, reverse=True)
    ends = {outcome.probe: outcome for outcome in worst_last}
    probes = dict.fromkeys((*plans, *ends))
    return tuple(cell for probe in probes for cell in cells_of(plans.get(probe), ends.get(probe), facts))


def _is_of(one: int | Missing, row: int | Missing) -> bool:
    return isinstance(one, Missing) or isinstance(row, Missing) or one == row


def _predicted(cells: tuple[Cell, ...], feature: Feature, foreseen: Foreseen) -> tuple[Cell, ...]:
    """The cells, with the ones that nothing was measured of as the rules predict them."""
    return tuple(_as_foretold(cell, foretelling.about(foreseen, feature.id, cell.variant)) for cell in cells)


def _as_foretold(cell: Cell, word: Word | None) -> Cell:
    if word is None or cell.verdict is not Verdict.UNKNOWN:
        return cell
    if word.verdict is Verdict.WORKS and cell.evidence is Evidence.BUILT:
        return msgspec.structs.replace(cell, verdict=word.verdict, why=f"it compiled and loaded here; {word.why}")
    return msgspec.structs.replace(cell, verdict=word.verdict, evidence=Evidence.PREDICTED, why=word.why)


def _beyond(planned: tuple[PlannedProbe, ...]) -> frozenset[str]:
    """Variants that need more than others and than there is: a whole module in place of a part of it, or more GPUs."""
    found = set()
    for probe in planned:
        subset = probe.spec.subset
        parts = subset.variants if subset is not None and not subset.if_short else ()
        found |= {name for name in probe.spec.variants if parts and name not in parts}
        found |= {name for name in probe.skipped_variants if probe.spec.variants.get(name, Requires()).gpus}
    return frozenset(found)


def _row(  # noqa: PLR0913 - as judge
    feature: Feature,
    sm: int | Missing,
    cells: tuple[Cell, ...],
    facts: Facts,
    foreseen: Foreseen,
    *,
    beyond: frozenset[str],
    silent: frozenset[str],
) -> FeatureRow:
    # What only the whole module could show, which is not there, keeps no verdict from the row: its scope says so.
    # So little does what more GPUs than there are would show: no server here runs on them.
    # A gate that was not asked, as where rows are only built, says no more than an open one. Nor does what was not yet
    # asked when other things were.
    is_tried = any(cell.evidence.rank >= Evidence.BUILT.rank for cell in cells)
    shown = tuple(
        cell
        for cell in cells
        if cell.evidence is not Evidence.NONE
        or not (cell.variant in beyond or cell.probe in silent or (is_tried and cell.why.startswith(LATER)))
    )
    verdict, evidence, scope, why = _decide(feature, sm, shown or cells, facts, foreseen)
    return FeatureRow(
        feature=feature.id,
        sm=sm,
        verdict=verdict,
        evidence=evidence,
        scope=scope,
        why=why,
        needs_gpu=feature.needs_gpu,
        vllm=_vllm_words(feature, sm, facts),
        cells=cells,
        vllm_calls=_is_called(feature, sm, facts),
    )


def _decide(
    feature: Feature, sm: int | Missing, cells: tuple[Cell, ...], facts: Facts, foreseen: Foreseen
) -> tuple[Verdict, Evidence, Scope, str]:
    use = vllm_use(feature, sm, facts)
    deciding = deciding_cells(use, cells)
    tried = any(is_measured(cell.verdict, cell.evidence) for cell in deciding)
    # Without the package every probe fails in its import, which says no more than that.
    if absent := not_installed(feature, facts):
        return Verdict.UNKNOWN, Evidence.NONE, Scope.FULL, absent
    lack = lacks_entry(feature, facts) or turned_away(feature, sm, facts) or not_compiled_for(feature, sm, facts)
    if lack and not tried:
        return Verdict.UNSUPPORTED, Evidence.DECLARED, Scope.FULL, lack
    if not deciding:
        return _undecided(feature, facts, foreseen)
    verdict, evidence, same = worst_of(deciding)
    scope = min((cell.scope for cell in same), key=lambda word: word.rank)
    if verdict is Verdict.WORKS:  # the reason is that of what is known least well
        same.sort(key=lambda cell: (cell.evidence.rank, cell.scope.rank))
    why = _why(same, deciding)
    if all(cell.why.startswith(OTHER_GPUS) for cell in deciding):
        # That our probes are for other GPUs is no word of FlashInfer's.
        if word := foretelling.about(foreseen, feature.id, None):
            return word.verdict, Evidence.PREDICTED, Scope.FULL, word.why
        if place := offered_at(feature, facts):
            verdict, evidence, why = Verdict.UNKNOWN, Evidence.DECLARED, f"{place} on SM{sm}"
    if use is not None and use.unchecked and verdict is not Verdict.UNKNOWN:
        return Verdict.UNKNOWN, Evidence.DECLARED, scope, f"{use.unchecked} ({verdict}: {why})"
    if verdict is Verdict.UNKNOWN and evidence is Evidence.NONE and (place := declared_at(feature, facts)):
        # What was begun and cut off says so itself.
        said = why.startswith((*BEGUN, "not run", "not reached", LATER))
        return verdict, Evidence.DECLARED, scope, f"{place}; {'' if said else 'not run: '}{why}"
    return verdict, evidence, scope, why


def _undecided(feature: Feature, facts: Facts, foreseen: Foreseen) -> tuple[Verdict, Evidence, Scope, str]:
    """What is to be said of a feature that no probe was planned for."""
    if word := foretelling.about(foreseen, feature.id, None):
        return word.verdict, Evidence.PREDICTED, Scope.FULL, word.why
    if not feature.probes and (place := offered_at(feature, facts)):
        return Verdict.UNKNOWN, Evidence.DECLARED, Scope.FULL, place
    place = declared_at(feature, facts)
    evidence = Evidence.DECLARED if place else Evidence.NONE
    return Verdict.UNKNOWN, evidence, Scope.FULL, f"{place}; no probe was planned" if place else "no probe was planned"


def _why(same: list[Cell], deciding: tuple[Cell, ...]) -> str:
    """The first reason; with the variants that it is true of, where that is not all of them."""
    reason = same[0].why
    variants = [cell.variant for cell in same if cell.variant and cell.why == reason]
    offered = [cell for cell in deciding if cell.verdict is not Verdict.UNSUPPORTED] or deciding
    return f"{', '.join(variants)}: {reason}" if variants and len(variants) < len(offered) else reason


def _is_called(feature: Feature, sm: int | Missing, facts: Facts) -> bool:
    use = use_of(feature, sm, facts)
    return use is None or use.called


def _vllm_words(feature: Feature, sm: int | Missing, facts: Facts) -> str:
    package = facts.packages.get("vllm")
    use = vllm_use(feature, sm, facts)
    if use is not None:
        return use.use
    if depends_on_gpu(feature, sm, facts):
        return "depends on the GPU, of which nothing is known here"
    if isinstance(package, Package):
        return f"not known for vLLM {package.version if isinstance(package.version, str) else 'of this version'}"
    newest = newest_use(feature, sm)
    return f"{newest.use} (vLLM {newest.vllm})" if newest is not None else "vLLM is not installed"
