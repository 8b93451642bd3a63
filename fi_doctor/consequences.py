"""What other versions would change in the matrix, by what is known of them: the facts are judged with those put in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor import settings, upgraded
from fi_doctor.diagnosis import called, findings, given, matrix
from fi_doctor.knowledge import registry
from fi_doctor.model import (
    Depth,
    Evidence,
    Facts,
    FeatureRow,
    Finding,
    KnowledgeBase,
    ProbeSpec,
    Report,
    Severity,
    Verdict,
)
from fi_doctor.model.given import Stated
from fi_doctor.model.upgrade import Change
from fi_doctor.probing import plan as planning

_OF_SETTINGS = {
    given.UNKNOWN: "not known",
    given.NEVER_READ: "not read",
    given.REFUSED: "refused",
    given.MEANS_OTHERWISE: "means something else",
    given.CONTRADICT: "contradicted",
}
_NOTHING = "nothing known against it"


class _Judged(NamedTuple):
    """What is known without a measurement."""

    rows: dict[str, FeatureRow]
    findings: tuple[Finding, ...]
    settings: tuple[Finding, ...]


def find(  # noqa: PLR0913 - what is known, what was judged, what is put in
    kb: KnowledgeBase,
    report: Report,
    target: Facts,
    specs: tuple[ProbeSpec, ...],
    stated: tuple[Stated, ...],
    *,
    besides: set[str],
) -> tuple[Change, ...]:
    """The rows that would stand otherwise, what vLLM would call or leave, new problems, and settings that end.

    besides: rows that are told of elsewhere. What was measured is not carried over, and nothing becomes "works".
    """
    settings_set = {*report.facts.environment, *(one.name for one in stated)}
    now = _judge(kb, report, upgraded.completed(report.facts), specs, stated)
    then = _judge(kb, report, target, specs, stated)
    measured = {row.name: row for row in report.features}
    names = [name for name in then.rows if name in now.rows and name not in besides]
    changed = (_of_row(now.rows[name], then.rows[name], measured.get(name), target) for name in names)
    return (
        *(change for change in changed if change is not None),
        *_of_calls(kb, report, target, list(then.rows.values())),
        *_problems(now, then),
        *of_settings(now.settings, then.settings, settings_set, report.facts),
    )


def _judge(
    kb: KnowledgeBase, report: Report, facts: Facts, specs: tuple[ProbeSpec, ...], stated: tuple[Stated, ...]
) -> _Judged:
    request = replace(report.request, depth=Depth.STATIC)
    planned = planning.plan(specs, facts, request)
    found = findings.find(kb, facts, ())
    rows = matrix.judge(kb, facts, planned, (), found, selected=request.features)
    return _Judged(
        {row.name: row for row in rows},
        findings.of_selected(found, request.features),
        settings.find(facts, stated),
    )


def _of_row(now: FeatureRow, then: FeatureRow, measured: FeatureRow | None, target: Facts) -> Change | None:
    before, after = _standing(now), _standing(then)
    is_measured = measured is not None and findings.is_measured(measured.verdict, measured.evidence)
    is_unread = now.evidence is Evidence.DECLARED and not upgraded.is_read(target)
    # That a foretelling falls away says nothing of what was measured, nor of a row whose release was not read.
    if before == after or (not after and (is_measured or is_unread)):
        return None
    return Change(
        subject=then.name,
        before=(str(measured.verdict) if measured is not None and is_measured else before) or _NOTHING,
        after=after or "may work",
        why=then.why if after else f"what stands against it now would be gone: {now.why}",
        evidence=then.evidence if after else now.evidence,
    )


def _standing(row: FeatureRow) -> str:
    """What is known against a row that nothing was measured of; "" where that is nothing."""
    if row.verdict is Verdict.UNSUPPORTED or (row.verdict.is_failure and row.evidence is Evidence.PREDICTED):
        return str(row.verdict)
    return ""


def _of_calls(kb: KnowledgeBase, report: Report, target: Facts, rows: list[FeatureRow]) -> Iterator[Change]:
    """Where the other vLLM calls a row without being told to and the installed one does not, or the other way round."""
    if not target.vllm_version or target.vllm_version == report.facts.vllm_version:
        return
    features = {feature.id: feature for feature in kb.features}
    for row in rows:
        feature = features.get(row.feature)
        if feature is None or not row.needs_gpu:
            continue
        now, then = (called.is_called(feature, row.sm, facts, kb) for facts in (report.facts, target))
        if now is not then:
            yield Change(
                subject=row.name,
                before=_calls(is_called=now),
                after=_calls(is_called=then),
                why=f"vLLM {target.vllm_version}: {row.vllm}",
                evidence=Evidence.DECLARED,
            )


def _calls(*, is_called: bool) -> str:
    return "called without a flag" if is_called else "not called without a flag"


def _problems(now: _Judged, then: _Judged) -> Iterator[Change]:
    known = {finding.id for finding in now.findings}
    for finding in then.findings:
        if finding.id not in known and finding.severity is not Severity.INFO:
            yield Change(
                subject=finding.id,
                before="not there",
                after=str(finding.severity),
                why=finding.title,
                evidence=Evidence.PREDICTED,
            )


def of_settings(now: tuple[Finding, ...], then: tuple[Finding, ...], names: set[str], facts: Facts) -> Iterator[Change]:
    """The settings that are set here and of which the other versions make less.

    now, then: what these and the other versions make of them, as settings.find has it. names: those that are set.
    """
    before = {(finding.id, name) for finding in now for name in _named(finding, names)}
    for finding in then:
        for name in _named(finding, names):
            if finding.id in _OF_SETTINGS and (finding.id, name) not in before:
                fix = f"; {finding.fix[0]}" if finding.fix else ""
                yield Change(
                    subject=name,
                    before="read" if facts.vllm_version in registry.history(name).read else _NOTHING,
                    after=_OF_SETTINGS[finding.id],
                    why=f"{finding.title}{fix}",
                    evidence=Evidence.DECLARED,
                )


def _named(finding: Finding, names: set[str]) -> list[str]:
    return sorted(name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", finding.title))
