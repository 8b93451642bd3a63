"""Recommended changes tried here: the probes that failed run again in children that have the change, all else equal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor.diagnosis import advice, cells, proofs
from fi_doctor.diagnosis.proofs import Place
from fi_doctor.errors import TargetError
from fi_doctor.facts import Gathering
from fi_doctor.model import (
    Cell,
    Depth,
    Facts,
    FeatureRow,
    KnowledgeBase,
    Missing,
    Outcome,
    PlannedProbe,
    Proof,
    Proven,
    Recommendation,
    Report,
    Request,
    Silent,
    Verdict,
    Watch,
)
from fi_doctor.model.assignments import Assignment, without_remark
from fi_doctor.probing import plan as planning
from fi_doctor.probing import run, surroundings

# Variables on which no compiled module depends. With any other a trial has caches of its own: FlashInfer may keep what
# it compiled before, and what it would compile is not what the machine's server looks for as it stands.
_NOT_COMPILED = (
    "FLASHINFER_CUBIN_DIR",
    "FLASHINFER_DISABLE_VERSION_CHECK",
    "FLASHINFER_USE_CUDA_NORM",
    "LD_LIBRARY_PATH",
    "MAX_JOBS",
)
_LEAST_S = 2.0  # less is not worth a process


class Examined(NamedTuple):
    """What the report rests on."""

    kb: KnowledgeBase
    gathering: Gathering
    symbols: tuple[str, ...]
    planned: tuple[PlannedProbe, ...]
    watch: Watch


class _Seen(NamedTuple):
    """What became of a cell in a trial."""

    cell: Cell
    seconds: float
    is_tried: bool  # False: the cell says why not


Meant = Sequence[tuple[FeatureRow, Cell]]


def prove(report: Report, examined: Examined, deadline: float) -> Report:
    """The report, in which each recommended change says what came of it here; what did not help is set apart.

    The best comes first, each alone; cells that one has turned are not tried again with the others.
    deadline: time.monotonic() at which the budget is used up; what is not reached by then is not proven.
    """
    prover = _Prover(report, examined, deadline)
    known: dict[str, Proof] = {}
    disproved: list[Recommendation] = []
    while pending := [one for one in report.recommendations if proofs.is_change(one) and one.line not in known]:
        for one in pending:
            proof = known[one.line] = prover.answer(one)
            if proof.result is Proven.DID_NOT_HELP:
                disproved.append(replace(one, proof=proof))
        refuted = frozenset(one.line for one in disproved)
        again = advice.advise(
            examined.kb, report.facts, report.outcomes, report.features, report.findings, refuted=refuted
        )
        report = replace(report, recommendations=again)
    return proofs.with_proofs(report, known, disproved)


class _Prover:
    """Trials of one report."""

    def __init__(self, report: Report, examined: Examined, deadline: float) -> None:
        self._report, self._examined, self._deadline = report, examined, deadline
        self._plans = {(one.spec.id, _number(one.sm)): one for one in examined.planned}
        self._outcomes = {(one.probe, _number(one.sm)): one for one in report.outcomes}
        self._turned: dict[Place, str] = {}  # cells, and the line that turned them
        self._controls: dict[Place, Cell] = {}  # cells with empty caches and no change

    def answer(self, one: Recommendation) -> Proof:
        """What trying it shows, or why that shows nothing."""
        environ = self._examined.gathering.environ
        settings = proofs.settable(one, self._examined.kb, environ)
        if isinstance(settings, str):
            return _unproven(settings)
        meant = proofs.meant(one, self._examined.kb, self._report.features, self._report.findings)
        meant = [(row, cell) for row, cell in meant if self._could_turn(row, cell)]
        if not meant:
            return _unproven("nothing was tried here and failed that it is meant to turn")
        open_ = [(row, cell) for row, cell in meant if proofs.place(cell, row.sm) not in self._turned]
        if not open_:
            others = dict.fromkeys(self._turned[proofs.place(cell, row.sm)] for row, cell in meant)
            return _unproven(f"not tried, since what it is meant to turn is turned by {' and '.join(others)}")
        self._examined.watch.note(f"Trying {without_remark(one.line)}")
        proof = self._tried(open_, settings)
        line = without_remark(one.line)
        self._turned |= {(each.probe, _number(each.sm), each.variant): line for each in proof.trials if each.turned}
        self._examined.watch.note(f"{line}: {proof.result} in {proof.seconds:.0f} s")
        return proof

    def _could_turn(self, row: FeatureRow, cell: Cell) -> bool:
        """Whether it was tried and failed or was refused, or was not tried for want of something."""
        plan = self._plans.get((cell.probe, _number(row.sm))) or self._plans.get((cell.probe, None))
        if plan is None or proofs.is_measured_failure(cell):
            return plan is not None
        return not plan.is_tried or cell.variant in plan.skipped_variants or cell.verdict is Verdict.UNSUPPORTED

    def _tried(self, meant: Meant, settings: tuple[Assignment, ...]) -> Proof:
        begun = time.monotonic()
        is_fresh = _needs_own_caches(settings)
        try:
            if is_fresh and (alike := self._works_with_empty_caches(meant)):
                meant = [(row, cell) for row, cell in meant if proofs.place(cell, row.sm) not in alike]
                if not meant:
                    return _unproven("what it is meant to turn works with empty caches, without the change too")
            seen = self._run(meant, settings, is_fresh=is_fresh)
        except _NoTimeError:
            return _unproven("no time: the budget is used up")
        except TargetError as error:
            why = f"with it the interpreter cannot be used: {error.what}: {error.why}"
            return Proof(result=Proven.DID_NOT_HELP, why=why, seconds=round(time.monotonic() - begun, 1))
        trials = [
            proofs.trial(row, cell, found.cell, self._seconds(cell, row.sm), found.seconds)
            for row, cell in meant
            if (found := seen.get(proofs.place(cell, row.sm))) and (found.is_tried or proofs.is_measured_failure(cell))
        ]
        return proofs.conclude(trials, round(time.monotonic() - begun, 1))

    def _works_with_empty_caches(self, meant: Meant) -> set[Place]:
        """Of cells whose modules were taken from a cache those that turn when nothing is changed but the cache.

        Else a change would be given the credit that is the empty cache's.
        """
        request, facts = self._report.request, self._report.facts
        if request.fresh_cache or surroundings.foreign_cache(facts):
            return set()
        cached = [(row, cell) for row, cell in meant if self._is_of_cache(cell, row.sm)]
        if left := [one for one in cached if proofs.place(one[1], one[0].sm) not in self._controls]:
            seen = self._run(left, (), is_fresh=True)
            self._controls |= {place: one.cell for place, one in seen.items()}
        return {
            place
            for row, cell in cached
            if (control := self._controls.get(place := proofs.place(cell, row.sm))) and proofs.has_turned(cell, control)
        }

    def _run(self, meant: Meant, settings: tuple[Assignment, ...], *, is_fresh: bool) -> dict[Place, _Seen]:
        """The cells as they are with these variables, of those that can be tried then. Raises TargetError."""
        gathering = self._examined.gathering.again(settings, self._report.facts) if settings else None
        facts = gathering.finish(self._examined.symbols) if gathering else self._report.facts
        environ = gathering.environ if gathering else self._examined.gathering.environ
        left_s = self._deadline - time.monotonic()
        if left_s < _LEAST_S:
            raise _NoTimeError
        request = replace(
            self._report.request,
            budget_s=left_s,
            features=(),
            fresh_cache=self._report.request.fresh_cache or is_fresh,
        )
        planned = self._plan(meant, facts, request)
        outcomes, _ = run.run_all(planned, facts=facts, request=request, watch=Silent(), environ=environ)
        return dict(_seen(planned, outcomes, facts))

    def _plan(self, meant: Meant, facts: Facts, request: Request) -> tuple[PlannedProbe, ...]:
        """The probes of these cells, with no other variants than theirs."""
        wanted = {proofs.place(cell, row.sm) for row, cell in meant}
        probes = {probe for probe, _, _ in wanted}
        specs = {one.spec.id: one.spec for one in self._examined.planned if one.spec.id in probes}

        def is_wanted(one: PlannedProbe, name: str) -> bool:
            return any((one.spec.id, sm, name) in wanted for sm in (_number(one.sm), None))

        planned = planning.plan(tuple(specs.values()), facts, request)
        kept = (replace(one, variants=tuple(name for name in one.variants if is_wanted(one, name))) for one in planned)
        return tuple(one if one.variants else replace(one, depth=Depth.STATIC) for one in kept)

    def _is_of_cache(self, cell: Cell, sm: int | Missing) -> bool:
        """Whether its module was taken from FlashInfer's cache, or lies there as another environment left it."""
        outcome, flashinfer = self._outcome(cell, sm), self._report.facts.flashinfer
        happened = [one for one in outcome.cells if one.variant == cell.variant] if outcome else []
        stale = {} if isinstance(flashinfer, Missing) else flashinfer.stale_modules
        modules = {name for one in self._examined.planned if one.spec.id == cell.probe for name in (one.spec.module,)}
        modules.update(name for one in happened for name in one.modules)
        return any("cache" in one.module_from.split(", ") for one in happened) or bool(modules & set(stale))

    def _seconds(self, cell: Cell, sm: int | Missing) -> float:
        outcome = self._outcome(cell, sm)
        return sum(outcome.seconds.values()) if outcome else 0.0

    def _outcome(self, cell: Cell, sm: int | Missing) -> Outcome | None:
        return self._outcomes.get((cell.probe, _number(sm))) or self._outcomes.get((cell.probe, None))


class _NoTimeError(Exception):
    """Nothing of the budget is left."""


def _seen(planned: Sequence[PlannedProbe], outcomes: Iterable[Outcome], facts: Facts) -> Iterable[tuple[Place, _Seen]]:
    for one, outcome in zip(planned, outcomes, strict=True):
        for cell in cells.cells_of(one, outcome, facts):
            is_tried = one.is_tried and cell.variant in one.variants
            yield proofs.place(cell, one.sm), _Seen(cell, sum(outcome.seconds.values()), is_tried)


def _needs_own_caches(settings: tuple[Assignment, ...]) -> bool:
    """Whether what is compiled may depend on these variables. A place for caches is tried as the place that it is."""
    if any(one.name in surroundings.CACHES for one in settings):
        return False
    return any(one.name not in _NOT_COMPILED for one in settings)


def _unproven(why: str) -> Proof:
    return Proof(result=Proven.NOT_PROVEN, why=why)


def _number(sm: int | Missing) -> int | None:
    return None if isinstance(sm, Missing) else sm
