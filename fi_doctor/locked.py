"""The stages in order where a lock stands for measurements: inputs are compared, and only what differs is probed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from fi_doctor import __version__, pipeline
from fi_doctor.diagnosis import called, findings, gate, matrix, serving, symbols
from fi_doctor.facts import Gathering
from fi_doctor.facts.imports import Imports
from fi_doctor.locking import compare, judging, loads, making
from fi_doctor.locking.attribution import Attribution
from fi_doctor.locking.digests import Digests
from fi_doctor.locking.inputs import Inputs
from fi_doctor.locking.judging import Standing
from fi_doctor.locking.model import Key, Lock, key_of
from fi_doctor.locking.needs import imports_of, is_import, unfounded
from fi_doctor.model import (
    Builds,
    Depth,
    Facts,
    KnowledgeBase,
    Outcome,
    PlannedProbe,
    ProbeSpec,
    Report,
    Request,
    Verdict,
    Watch,
    secrets,
    selects,
)
from fi_doctor.probing import plan as planning
from fi_doctor.probing import run as running


def lock_of(  # noqa: PLR0913 - the whole of what it rests on
    report: Report,
    *,
    kb: KnowledgeBase,
    specs: tuple[ProbeSpec, ...],
    facts: Facts,
    imports: Imports,
    environ: Mapping[str, str],
    digests: Digests,
) -> Lock:
    """What the report proved.

    facts, imports and environ: of this machine, on which it was made, as a locked check reads them.
    """
    features = {feature.id: feature for feature in kb.features}
    rows = {key_of(row.feature, row.sm): row for row in report.features}
    uses = {
        key: called.vllm_use(features[key.feature], row.sm, facts) if key.feature in features else None
        for key, row in rows.items()
    }
    proved = {
        key: tuple(cell.variant for cell in matrix.deciding_cells(uses[key], row.cells))
        for key, row in rows.items()
        if findings.is_measured(row.verdict, row.evidence)
    }
    words = loads.words(imports, facts.interpreter.version)
    return making.make(
        report,
        proved=proved,
        attribution=Attribution(facts, kb, specs, uses, imports=loads.groups(imports, words)),
        inputs=Inputs(facts, kb, specs, digests=digests, environ=environ, loads=words),
        digests=digests,
        loads=words,
        doubts=_not_imported(report, specs, imports),
    )


def _not_imported(report: Report, specs: tuple[ProbeSpec, ...], imports: Imports) -> dict[Key, str]:
    """The rows that worked and need a package that cannot be imported now, as the lock is made."""
    errors = {f"import.{one.name}": one.error for one in imports.loaded}
    probes: dict[str, list[ProbeSpec]] = {}
    for spec in specs:
        probes.setdefault(spec.feature, []).append(spec)
    found = {}
    for row in report.features:
        needed = sorted(imports_of(probes.get(row.feature, ())))
        failed = [name for name in needed if errors.get(name, "the interpreter gave no answer")]
        if failed and row.verdict is Verdict.WORKS:
            why = errors.get(failed[0], "the interpreter gave no answer")
            package = failed[0].removeprefix("import.")
            found[key_of(row.feature, row.sm)] = (
                f"it was measured as working, and {package} cannot be imported now: {why}"
            )
    return found


class LockedCheck:
    """One check against a lock."""

    def __init__(  # noqa: PLR0913 - the whole of what it rests on
        self,
        lock: Lock,
        request: Request,
        *,
        kb: KnowledgeBase,
        specs: tuple[ProbeSpec, ...],
        facts: Facts,
        now: dict[str, str],
    ) -> None:
        self._lock = lock
        self._request = request
        self._kb = kb
        self._specs = specs
        self._facts = facts
        self._now = now
        self.changed = compare.changed(lock, now)
        reasons = compare.reasons(lock, now, "since it was locked")
        every = frozenset(row.key for row in lock.rows)
        self.standing = Standing(every - reasons.keys(), reasons)
        self._settle()
        lacking = unfounded(lock, specs)
        self.standing = self.standing.without({key: lacking[key] for key in self.standing.valid & lacking.keys()})
        self._lean()

    def to_measure(self) -> tuple[Key, ...]:
        """The rows of the lock that are asked for and do not hold any more."""
        return tuple(sorted(key for key in self.standing.invalid if selects(self._request.features, key.feature)))

    def not_held(self) -> tuple[Key, ...]:
        """The rows that are asked for, that could be measured here, and that the lock does not hold."""
        held = {row.key for row in self._lock.rows}
        planned = planning.plan(self._specs, self._facts, self._request)
        found = {key_of(one.spec.feature, one.sm) for one in planned if one.is_tried and not self._is_left_out(one)}
        return tuple(sorted(found - held, key=str))

    @property
    def budget_s(self) -> float:
        """The bound on measuring."""
        return self._request.budget_s

    def difference(self) -> str:
        """What changed on this machine, in one line; "" where nothing that matters did."""
        return compare.words(self.changed, self._lock, self._now)

    def report(self) -> Report:
        """The locked rows that hold; those that do not are unknown, and the gate cannot tell where vLLM calls them."""
        return self._concluded(self._facts, (), frozenset(), Builds())

    def measured(self, gather: Callable[[], Gathering], watch: Watch, now: Callable[[], dict[str, str]]) -> Report:
        """The same after the rows that do not hold, or are not in the lock, were measured, and only these.

        now: reads the inputs once more in the end; a row that rests on one that changed meanwhile holds no more.
        """
        begun = time.monotonic()
        gathering = gather()
        facts = gathering.finish(symbols.of(self._kb, self._specs))
        self._request = replace(self._request, depth=planning.deepest(facts))
        planned = matrix.with_deciding(self._kb, facts, planning.plan(self._specs, facts, self._request))
        planned = serving.with_served(self._kb, facts, planned)
        ours = self._to_try(planned)
        watch.planned(ours, self._request.budget_s)
        outcomes, builds = running.run_all(
            ours, facts=facts, request=self._request, watch=watch, environ=gathering.environ
        )
        self._compare_again(now())
        done = self._concluded(facts, outcomes, frozenset(key_of(one.spec.feature, one.sm) for one in ours), builds)
        return replace(done, seconds=round(time.monotonic() - begun, 1))

    def _compare_again(self, now: dict[str, str]) -> None:
        """Take out the rows that rest on what was changed while others were measured."""
        doubts = compare.reasons(self._lock, now, "changed while other rows were measured")
        self.standing = self.standing.without({key: doubts[key] for key in self.standing.valid & doubts.keys()})

    def _to_try(self, planned: tuple[PlannedProbe, ...]) -> tuple[PlannedProbe, ...]:
        """The probes of rows that do not hold; where their GPU is gone, those of the GPUs that are here instead."""
        wanted = frozenset((*self.to_measure(), *self.not_held()))
        here = {key_of(probe.spec.feature, probe.sm) for probe in planned}
        moved = {key.feature for key in wanted - here}
        found = []
        for probe in planned:
            key = key_of(probe.spec.feature, probe.sm)
            if key in wanted or (key.feature in moved and key not in self.standing.valid):
                found.append(probe)
        return tuple(found)

    def _is_left_out(self, probe: PlannedProbe) -> bool:
        """Whether it can only be built here, of which nothing comes that a lock holds, and nobody requires it."""
        required = tuple(one.feature for one in gate.asked_rows(self._request))
        return probe.depth is Depth.BUILD and not (required and selects(required, probe.spec.feature))

    def _settle(self) -> None:
        """Take out rows that today's judgement sees otherwise."""
        rows = self._conclude(self._facts, (), frozenset()).features
        selected = [row for row in self._lock.rows if selects(self._request.features, row.feature)]
        lock = replace(self._lock, rows=tuple(selected))
        self.standing = self.standing.without(judging.judged_otherwise(lock, self.standing, rows, __version__))

    def _lean(self) -> None:
        """Take out the rows that need an import, where it does not hold and is not asked for, so not measured again."""
        doubted = {key: why for key, why in self.standing.invalid.items() if is_import(key.feature)}
        for key, why in doubted.items():
            if not selects(self._request.features, key.feature):
                rest = [other for other in self.standing.valid if not is_import(other.feature)]
                self.standing = self.standing.without(dict.fromkeys(rest, f"{key} may not hold any more: {why}"))

    def _conclude(self, facts: Facts, outcomes: tuple[Outcome, ...], measured: frozenset[Key]) -> Report:
        planned = planning.plan(self._specs, facts, self._request)
        planned = judging.with_reasons(planned, self.standing, measured)
        kept = judging.kept(self._lock, self.standing.valid)
        kept = tuple(one for one in kept if selects(self._request.features, one.feature))
        return pipeline.conclude(
            self._request,
            kb=self._kb,
            facts=facts,
            planned=planned,
            outcomes=(*kept, *outcomes),
            created=pipeline.now(),
            locked=judging.days(self._lock, self.standing),
        )

    def _concluded(
        self, facts: Facts, outcomes: tuple[Outcome, ...], measured: frozenset[Key], builds: Builds
    ) -> Report:
        done = self._conclude(facts, outcomes, measured)
        if broken := judging.without_import(self.standing, done.features):
            self.standing = self.standing.without(broken)
            done = self._conclude(facts, outcomes, measured)
        rows = judging.unpredicted(self.standing, done.features)
        rows = (*rows, *judging.lost(self._lock, self.standing, rows, self._request.features))
        missed = judging.missed(self._lock, self.standing, rows)
        found = gate.decide(self._request, rows, done.findings, facts, missed=missed)
        done = replace(done, features=rows, gate=found, builds=builds)
        return secrets.without(done, secrets.held(os.environ))
