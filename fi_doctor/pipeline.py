"""The stages in order: facts are read, probes are run, rules judge, and a report comes out."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Mapping
from concurrent.futures import Future
from types import MappingProxyType

from msgspec.structs import replace

from fi_doctor import __version__, choosing, expecting, leaning, proving, settings, targeting, upgrading
from fi_doctor.diagnosis import (
    advice,
    aging,
    captured,
    cells,
    deployment,
    differs,
    findings,
    foretelling,
    gate,
    matrix,
    proofs,
    serving,
    symbols,
)
from fi_doctor.facts import Gathering
from fi_doctor.facts.system import unbounded
from fi_doctor.knowledge.atlas import Atlas
from fi_doctor.model import (
    SCHEMA,
    Depth,
    Doctor,
    Facts,
    KnowledgeBase,
    Missing,
    Outcome,
    PlannedProbe,
    ProbeSpec,
    Report,
    Request,
    Watch,
    secrets,
)
from fi_doctor.model.deployed import Wanted
from fi_doctor.model.given import Stated
from fi_doctor.model.registry import Registry
from fi_doctor.model.targets import Target
from fi_doctor.probing import memory, surroundings
from fi_doctor.probing import plan as planning
from fi_doctor.probing import run as running


def diagnose(  # noqa: PLR0913 - what is asked, what is known, what is examined
    request: Request | None,
    asked: Request,
    *,
    kb: KnowledgeBase,
    specs: tuple[ProbeSpec, ...],
    gathering: Gathering,
    watch: Watch,
    wanted: Wanted | None = None,
    stated: tuple[Stated, ...] = (),
    proves: bool = False,
    starts: bool = False,
    target: Target | None = None,
) -> Report:
    """A report on the interpreter whose facts are being gathered, as this machine stands.

    request: what is to be done, or None for `asked` at the deepest depth that the machine allows.
    wanted: what is to be served; then only what that runs through is looked at, unless rows were asked for.
    proves: whether recommended changes are tried, in what the probes leave of the budget.
    target: the machine for which it is judged; its GPUs were gathered in place of those that are here.
    starts: whether vLLM is started on tiny models beforehand, to see what it takes; no budget bounds that.
    Errors: TargetError when the interpreter cannot be used.
    """
    begun = time.monotonic()
    facts, environ = gathering.finish(symbols.of(kb, specs)), gathering.environ
    if target is not None:
        environ = targeting.environ_for(facts, environ)
        facts = targeting.facts_for(facts, target, request.depth if request else None)
    request = request or replace(asked, depth=planning.deepest(facts))
    planned = planning.plan(specs, facts, request)
    chosen, sm, answer = None, choosing.capability(planned, facts), None
    if wanted is not None:
        chosen = choosing.Chosen(choosing.by_table(wanted, facts, sm))
        answer = choosing.ask_vllm(wanted, facts, request, gathering.environ)
        if isinstance(chosen.choices, Missing) and answer is not None:
            chosen = choosing.Chosen(answer.result())  # what is to be looked at depends on it
        if starts:
            chosen = _started(wanted, chosen.choices, answer, facts, request, gathering, watch)
            answer = None
        request = deployment.narrowed(request, () if isinstance(chosen.choices, Missing) else chosen.choices)
        planned = planning.plan(specs, facts, request)
    planned = serving.with_served(kb, facts, matrix.with_deciding(kb, facts, planned))
    watch.planned(planned, request.budget_s)
    deadline = time.monotonic() + request.budget_s
    outcomes, builds = running.run_all(planned, facts=facts, request=request, watch=watch, environ=environ)
    report = conclude(
        request,
        kb=kb,
        facts=facts,
        planned=planned,
        outcomes=outcomes,
        created=now(),
        stated=stated,
        registries=settings.read_installed(facts, stated),
        target=target,
    )
    if proves:
        examined = proving.Examined(kb, gathering, symbols.of(kb, specs), planned, watch)
        report = proving.prove(report, examined, deadline)
    if wanted is not None and chosen is not None:
        chosen = chosen.told(answer.result()) if answer is not None else chosen
        report = _with_upgrade(_deployed(report, wanted, chosen, kb, sm), kb, specs, stated)
    bounds = () if request.depth is Depth.STATIC else (*memory.held_back(facts, request), *_told(facts, request))
    seconds = round(time.monotonic() - begun, 1)
    target = target and leaning.leant(target, facts, report.features, planned)
    report = replace(report, seconds=seconds, builds=builds, bounds=bounds, target=target)
    return secrets.without(report, secrets.held(gathering.environ, os.environ))


def _told(facts: Facts, request: Request) -> tuple[str, ...]:
    return *unbounded(uid=facts.running_uid), *surroundings.used_cache(facts, request)


def _started(  # noqa: PLR0913, PLR0917 - as diagnose
    wanted: Wanted,
    chosen: choosing.Choices,
    answer: Future[choosing.Choices] | None,
    facts: Facts,
    request: Request,
    gathering: Gathering,
    watch: Watch,
) -> choosing.Chosen:
    """The choices as vLLM was seen to make them, beside those that are predicted best."""
    told = answer.result() if answer is not None else chosen
    if facts.gpus.cuda_sees_any:
        watch.note("Starting vLLM on tiny models; that takes some minutes, which the budget does not count")
    fresh = request.fresh_cache or bool(surroundings.foreign_cache(facts))
    predicted = chosen if isinstance(told, Missing) else told
    return choosing.by_start(wanted, predicted, facts, gathering.environ, fresh=fresh)


def rejudge(  # noqa: PLR0913 - what is recorded, what is asked, what is known
    recorded: Report,
    request: Request,
    *,
    kb: KnowledgeBase,
    specs: tuple[ProbeSpec, ...],
    wanted: Wanted | None = None,
    stated: tuple[Stated, ...] = (),
) -> Report:
    """The verdicts of today's knowledge on recorded facts and outcomes; nothing of this machine is read."""
    asked = None
    if wanted is not None:
        sm = choosing.capability(planning.plan(specs, recorded.facts, request), recorded.facts)
        chosen = choosing.as_recorded(wanted, choosing.by_table(wanted, recorded.facts, sm), recorded, sm)
        request = deployment.narrowed(request, () if isinstance(chosen.choices, Missing) else chosen.choices)
        asked = wanted, chosen, sm
    planned = cells.as_recorded(planning.plan(specs, recorded.facts, request), recorded.outcomes)
    probes = {probe.spec.id for probe in planned}
    outcomes = tuple(outcome for outcome in recorded.outcomes if outcome.probe in probes)
    report = conclude(
        request,
        kb=kb,
        facts=recorded.facts,
        planned=planned,
        outcomes=outcomes,
        created=recorded.created,
        locked={(row.feature, _number(row.sm)): row.locked for row in recorded.features if row.locked},
        stated=stated,
        refuted=frozenset(one.line for one in recorded.disproved),
        target=recorded.target,
    )
    report = proofs.as_recorded(report, recorded)
    if asked is not None:
        wanted, chosen, sm = asked
        report = _with_upgrade(_deployed(report, wanted, chosen, kb, sm), kb, specs, stated)
    return replace(report, seconds=recorded.seconds, builds=recorded.builds, bounds=recorded.bounds)


def _deployed(report: Report, wanted: Wanted, chosen: choosing.Chosen, kb: KnowledgeBase, sm: int | Missing) -> Report:
    """The report with what becomes of the deployment."""
    found = deployment.judge(wanted, chosen.choices, kb, report, sm, stopped=chosen.stopped)
    found = replace(found, notes=(*found.notes, *chosen.notes))
    return replace(report, deployed=found, gate=deployment.with_gate(report.gate, found))


def _with_upgrade(
    report: Report, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...], stated: tuple[Stated, ...]
) -> Report:
    return advice.with_upgrade(report, upgrading.find(kb, report, specs, stated))


def conclude(  # noqa: PLR0913 - the whole of what a verdict rests on
    request: Request,
    *,
    kb: KnowledgeBase,
    facts: Facts,
    planned: tuple[PlannedProbe, ...],
    outcomes: tuple[Outcome, ...],
    created: str,
    locked: Mapping[tuple[str, int | None], str] = MappingProxyType({}),
    stated: tuple[Stated, ...] = (),
    registries: Mapping[str, Registry] = MappingProxyType({}),
    refuted: frozenset[str] = frozenset(),
    target: Target | None = None,
    known: Atlas | None = None,
) -> Report:
    """The report that these facts and outcomes amount to; pure.

    locked: (feature, SM) -> the day of the measurement, of rows whose outcomes are those of a lock.
    stated: settings that were given beside those of the facts. registries: those that were read from installed files.
    refuted: lines that were tried here and did not help, which are not recommended.
    target: the machine that it is for, where that is not this one. known: what tells of it; None: all that is shipped.
    """
    found = findings.find(kb, facts, outcomes)
    on = expecting.basis(kb, facts, planned, request, known) if target is not None else None
    foreseen = expecting.foresee(on, outcomes, found) if on is not None else foretelling.NOTHING
    judged = matrix.judge(kb, facts, planned, outcomes, found, selected=request.features, foreseen=foreseen)
    days = ((row, locked.get((row.feature, _number(row.sm)))) for row in judged)
    rows = tuple(row.as_locked(day) if day else row for row, day in days)
    further = (*captured.find(kb, facts, rows), *differs.find(kb, facts), *aging.find(kb, facts))
    further += settings.find(facts, stated, registries)
    found = findings.with_contradictions(kb, facts, rows, (*found, *further))
    found = findings.of_selected(found, request.features)
    expected = expecting.expect(rows, on, found, foreseen, request) if on is not None else None
    rows = expecting.with_reasons(rows, expected) if expected is not None else rows
    report = Report(
        schema=SCHEMA,
        doctor=Doctor(version=__version__, knowledge=kb.version, knowledge_from=kb.origin),
        request=request,
        created=created,
        facts=facts,
        features=rows,
        findings=found,
        recommendations=advice.advise(kb, facts, outcomes, rows, found, refuted=refuted),
        outcomes=outcomes,
        gate=gate.decide(request, rows, found, facts, foretold=target is not None),
        target=target,
        expected=expected,
    )
    specs = {probe.spec.id: probe.spec for probe in planned}
    return _with_upgrade(report, kb, tuple(specs.values()), stated)


def now() -> str:
    """The time for `Report.created`: ISO 8601, UTC."""
    return dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")


def _number(sm: int | Missing) -> int | None:
    return None if isinstance(sm, Missing) else sm
