"""What can be the cause that a row stands otherwise: of what differs, all that the row can rest on, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fi_doctor.conditions import View
from fi_doctor.diagnosis import fact_changes, swaps
from fi_doctor.diagnosis.findings import concerns, of_selected
from fi_doctor.diagnosis.rests import Rests
from fi_doctor.model import (
    Cause,
    CauseKind,
    FactChange,
    Feature,
    FeatureRow,
    Finding,
    KnowledgeBase,
    ProbeSpec,
    Report,
    Rule,
    Verdict,
)

# A gate compares the version of $CUDA_HOME/bin/nvcc where there is one.
_GATE, _NVCC = "toolkit.gate_version", "toolkit.jit.nvcc.version"
# The facts of a group that tell most, in this order; then versions, then by name.
_TELLING = (_NVCC, "toolkit.jit.compiler.version", _GATE, "gpus.sm", "gpus.count", "toolkit.jit.cuda_home")
_BUDGET = ("request.budget_s", "request.jobs", "request.memory_mib")
_GONE, _CAME = "is gone", "is new"


class Changed(NamedTuple):
    """What differs between two reports, ready to be laid to rows."""

    before: Report
    after: Report
    facts: tuple[FactChange, ...]
    request: tuple[FactChange, ...]
    findings: tuple[tuple[Finding, Cause], ...]  # that came or went, each with the facts that its rule reads


def between(before: Report, after: Report, kb: KnowledgeBase) -> Changed:
    """All that differs; findings that only what was measured brought about have no facts."""
    facts = fact_changes.changed(before.facts, after.facts)
    rules = {name: rule for rule in kb.rules for name in (rule.id, *rule.aliases)}
    came_or_went = [*_one_sided(before, after, _GONE), *_one_sided(after, before, _CAME)]
    found = swaps.swaps(before.facts, after.facts) if came_or_went else ()
    views = View(before.facts, before.outcomes), View(after.facts, after.outcomes)
    return Changed(
        before=before,
        after=after,
        facts=facts,
        request=fact_changes.asked(before, after),
        findings=tuple(
            (finding, _by_finding(rules[finding.id], said, views, found, facts))
            for finding, said in came_or_went
            if finding.id in rules
        ),
    )


def of_row(
    old: FeatureRow | None, new: FeatureRow | None, changed: Changed, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]
) -> tuple[Cause, ...]:
    """The causes that a row can have: the fewest facts first, then those that are closest to it, then by name."""
    sides = [row for row in (old, new) if row is not None]
    feature = kb.feature(sides[0].feature)
    rests = Rests(sides[0], feature, tuple(spec for spec in specs if spec.feature == sides[0].feature), kb)
    found = [cause for finding, cause in changed.findings if _is_about(finding, feature, sides[0], rests)]
    grouped: dict[tuple[CauseKind, str, str], list[FactChange]] = {}
    for fact in changed.facts:
        if (on := rests.on(fact.name)) is not None:
            grouped.setdefault(on, []).append(fact)
    found += [
        Cause(kind=kind, name=name, said=said, facts=_telling_first(facts))
        for (kind, name, said), facts in grouped.items()
    ]
    found += _by_request(changed.request, sides)
    return tuple(sorted(found, key=_order))


def _order(cause: Cause) -> tuple[int, int, str]:
    return (_size(cause), -cause.kind.rank, cause.name)


def _size(cause: Cause) -> int:
    """How many things must be otherwise for it: a group such as a toolkit is one of them; without facts it is last."""
    if cause.kind is not CauseKind.FINDING:
        return 1
    if not cause.facts:
        return 1_000_000
    names = {fact.name for fact in cause.facts}
    return len(names - {_NVCC}) if _GATE in names else len(names)


def _one_sided(here: Report, there: Report, said: str) -> Iterator[tuple[Finding, str]]:
    """The findings of one report that the other has not, though it was asked about their rows."""
    others = {finding.id for finding in there.findings}
    seen: set[str] = set()
    for finding in of_selected(here.findings, there.request.features):
        if finding.id not in others and finding.id not in seen:
            seen.add(finding.id)
            yield finding, said


def _by_finding(
    rule: Rule, said: str, views: tuple[View, View], found: tuple[swaps.Swap, ...], facts: tuple[FactChange, ...]
) -> Cause:
    places = swaps.decisive(rule.when, *views, found)
    changes = {fact.name: fact for place in places for fact in _at(place, facts, views)}
    if _GATE in changes and "nvcc" in {view.facts.toolkit.gate_source for view in views}:
        changes |= {fact.name: fact for fact in facts if fact.name == _NVCC}
    return Cause(kind=CauseKind.FINDING, name=rule.id, said=said, facts=_telling_first(changes.values()))


def _at(place: swaps.Place, facts: tuple[FactChange, ...], views: tuple[View, View]) -> list[FactChange]:
    """The facts that are told of a place; where none is, the place itself."""
    name = ".".join(place)
    told = [fact for fact in facts if fact.name == name or fact.name.startswith((f"{name}.", f"{name}["))]
    if name == "gpus.gpus":
        told = [fact for fact in facts if fact.name in ("gpus.count", "gpus.name", "gpus.sm")] or told
    if told:
        return told
    old, new = (fact_changes.said(swaps.value_at(view.facts, place)) for view in views)
    return [fact_changes.change(name, old, new)]


def _telling_first(facts: Iterable[FactChange]) -> tuple[FactChange, ...]:
    def place(fact: FactChange) -> tuple[int, bool, str]:
        named = _TELLING.index(fact.name) if fact.name in _TELLING else len(_TELLING)
        return (named, not fact.name.endswith(".version"), fact.name)

    return tuple(sorted(facts, key=place))


def _is_about(finding: Finding, feature: Feature | None, row: FeatureRow, rests: Rests) -> bool:
    rule = next((one for one in rests.kb.rules if finding.id in (one.id, *one.aliases)), None)
    stops = rule is not None and rule.stops_builds and rests.compiles
    named = rule is not None and feature is not None and concerns(rule, feature.id)
    return stops or named or row.feature in finding.features


def _by_request(changes: tuple[FactChange, ...], sides: list[FeatureRow]) -> Iterator[Cause]:
    """What was asked: how deep and by what knowledge always; which rows where one side has none.

    Time, jobs and memory count where one side is unknown: what was left out was so for want of them.
    """
    names = {"request.depth", "request.fresh_cache", "doctor.knowledge"}
    if len(sides) == 1:
        names.add("request.features")
    if facts := tuple(fact for fact in changes if fact.name in names):
        yield Cause(kind=CauseKind.REQUEST, name="request", said="what was asked for or known", facts=facts)
    facts = tuple(fact for fact in changes if fact.name in _BUDGET)
    if facts and any(row.verdict is Verdict.UNKNOWN for row in sides):
        yield Cause(kind=CauseKind.BUDGET, name="budget", said="what it may take", facts=facts)
