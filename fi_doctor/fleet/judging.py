"""What the verdicts of a node come to under what is asked here; reports that are alike are judged once."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fi_doctor import pipeline
from fi_doctor.diagnosis import findings, gate
from fi_doctor.fleet.reading import Reader, Reading, key_of
from fi_doctor.model import (
    FeatureRow,
    FlashInfer,
    KnowledgeBase,
    Missing,
    ProbeSpec,
    Report,
    Request,
    Verdict,
    secrets,
    selects,
)

# The worst first; what cannot be told is worse than what is known not to be there.
_WORST = (Verdict.WRONG_RESULT, Verdict.BROKEN, Verdict.UNKNOWN, Verdict.UNSUPPORTED, Verdict.WORKS)

FINDING = "the finding "  # before the ids of those that stand beside rows


class Judge:
    """Judges readings, each kind of them once."""

    def __init__(self, reader: Reader, request: Request, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]) -> None:
        self.reports: list[Report] = []  # one for each number
        self.recorded: list[bool] = []  # whether its verdicts stand as they were written
        self._reader, self._request, self._kb, self._specs = reader, request, kb, specs
        self._numbers: dict[tuple[object, ...], int] = {}

    def judge(self, reading: Reading) -> int:
        """The number of its judgement."""
        key = key_of(reading)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.reports)
            self.recorded.append(self._reader.stands(reading.doctor))
            self.reports.append(_light(self._judged(self._reader.sample(reading), as_recorded=self.recorded[-1])))
        return number

    def whole(self, reading: Reading) -> Report:
        """The judged report with all its facts, for a comparison."""
        judged, report = self.reports[self.judge(reading)], self._reader.sample(reading)
        return replace(report, request=judged.request, features=judged.features, findings=judged.findings)

    def _judged(self, report: Report, *, as_recorded: bool) -> Report:
        asked = replace(
            report.request,
            features=self._request.features or report.request.features,
            required=self._request.required,
            policy=self._request.policy,
        )
        if not as_recorded:
            # Of rows that were not asked for there, nothing was recorded.
            return pipeline.rejudge(report, asked, kb=self._kb, specs=self._specs)
        rows = tuple(row for row in report.features if selects(asked.features, row.feature))
        found = findings.of_selected(report.findings, asked.features)
        decided = gate.decide(asked, rows, found, report.facts)
        return replace(report, request=asked, features=rows, findings=found, gate=decided)


def worst(report: Report) -> FeatureRow | None:
    """The row that stands worst; None without rows.

    Of those that are required; else of those that keep the gate from holding; else of those that vLLM calls.
    """
    globs = (*report.request.required, *(one.feature for one in report.request.policy.requirements))
    blamed = {name for ruling in report.gate.requirements for name in ruling.rows}
    rows = [row for row in report.features if globs and selects(globs, row.feature)]
    rows = rows or [row for row in report.features if row.name in blamed]
    rows = rows or [row for row in report.features if row.vllm_calls] or list(report.features)
    return min(rows, key=lambda row: (_WORST.index(row.verdict), -row.evidence.rank, row.name), default=None)


def standing(report: Report) -> frozenset[tuple[str, str]]:
    """What of its verdicts makes nodes unlike each other: rows with their verdicts, findings that are no mere notes."""
    rows = ((row.name, str(row.verdict)) for row in report.features)
    grave = ((f"{FINDING}{one.id}", str(one.severity)) for one in report.findings if one.severity.rank > 0)
    return frozenset((*rows, *grave))


def _light(report: Report) -> Report:
    """The report without the tables of facts and the logs of what went well: there may be thousands of it."""
    facts, left = report.facts, Missing(reason="it is left out of what is kept of a fleet")
    if isinstance(facts.flashinfer, FlashInfer):
        facts = replace(facts, flashinfer=replace(facts.flashinfer, symbols={}, majors={}, public={}, admissions={}))
    facts = replace(facts, vllm=left, calls=left, binaries=left, site=left, sources={})
    failed = tuple(one for one in report.outcomes if one.ending.is_bad or any(cell.ending.is_bad for cell in one.cells))
    return secrets.without(replace(report, facts=facts, outcomes=failed))


def newest(readings: Sequence[Reading]) -> Reading:
    """The one that was made last; of several of one time the last by the name of its file."""
    return max(readings, key=lambda one: (one.created, one.source))
