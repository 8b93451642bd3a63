"""One end of a move as a report: the pipeline's own stages over its facts, with nothing built or run."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor import expecting, pipeline
from fi_doctor.diagnosis import findings, matrix, serving
from fi_doctor.model import Depth, Facts, FeatureRow, Finding, KnowledgeBase, PlannedProbe, ProbeSpec, Report, Request
from fi_doctor.model.given import Stated
from fi_doctor.model.targets import Target
from fi_doctor.probing import plan as planning

_NOT_HERE = Target(words="an end of a move", sm=0)  # its GPUs are those of the facts


class Known(NamedTuple):
    """What verdicts rest on beside the facts."""

    kb: KnowledgeBase
    specs: tuple[ProbeSpec, ...]
    stated: tuple[Stated, ...] = ()


class Judged(NamedTuple):
    """The part of a report that tells how rows stand."""

    facts: Facts
    features: tuple[FeatureRow, ...]
    findings: tuple[Finding, ...]


def judge(facts: Facts, known: Known, features: tuple[str, ...] = ()) -> Report:
    """What is known of these facts without a measurement. features: the rows that are looked at, none for all."""
    request = Request(depth=Depth.STATIC, features=features)
    planned = plan(facts, known, features)
    return pipeline.conclude(
        request,
        kb=known.kb,
        facts=facts,
        planned=planned,
        outcomes=(),
        created="",
        stated=known.stated,
        target=_NOT_HERE,
    )


def glance(facts: Facts, known: Known, features: tuple[str, ...] = ()) -> Judged:
    """The same without what is to be done about it, for where many are compared."""
    found = findings.find(known.kb, facts, ())
    planned = plan(facts, known, features)
    on = expecting.basis(known.kb, facts, planned, Request(depth=Depth.STATIC, features=features), None)
    foreseen = expecting.foresee(on, (), found)
    rows = matrix.judge(known.kb, facts, planned, (), found, selected=features, foreseen=foreseen)
    return Judged(facts, rows, findings.of_selected(found, features))


def plan(facts: Facts, known: Known, features: tuple[str, ...] = ()) -> tuple[PlannedProbe, ...]:
    """The probes of these rows with what a server calls by default."""
    planned = planning.plan(known.specs, facts, Request(depth=Depth.STATIC, features=features))
    return serving.with_served(known.kb, facts, matrix.with_deciding(known.kb, facts, planned))


def as_measured(recorded: Report, known: Known) -> Report:
    """A report of what was measured, by today's knowledge, for all of its rows."""
    request = replace(recorded.request, required=(), features=())
    return pipeline.rejudge(recorded, request, kb=known.kb, specs=known.specs, stated=known.stated)
