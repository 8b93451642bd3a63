"""What the verdicts of a node come to under what is asked here; reports that are alike are judged once."""

from __future__ import annotations

from msgspec.structs import replace

from fi_doctor import pipeline
from fi_doctor.diagnosis import findings, gate
from fi_doctor.fleet.reading import Reader, Reading, alike_of, key_of
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
        self._firsts: dict[tuple[object, ...], int] = {}  # of nodes that are alike but for their own folders
        self._commons: dict[tuple[object, ...], int | None] = {}  # of the others of these; None: each is judged

    def judge(self, reading: Reading) -> int:
        """The number of its judgement."""
        key = key_of(reading)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._new(reading)
        return number

    def _new(self, reading: Reading) -> int:
        """The number for a node of which no equal was judged.

        Of nodes that are alike but for folders of their own the first is judged as it is. The second is judged without
        them: where that changes nothing of the first one's verdicts nothing rests on these folders, and it stands for
        all others, with <host> in its words.
        """
        alike = alike_of(reading)
        if alike not in self._firsts:
            self._firsts[alike] = self._add(self._reader.sample(reading), reading)
            return self._firsts[alike]
        if alike not in self._commons:
            common = self._reader.common(reading)
            judged = None if common is None else self._judged(common, as_recorded=self._reader.stands(reading.doctor))
            is_same = judged is not None and verdicts(judged) == verdicts(self.reports[self._firsts[alike]])
            self._commons[alike] = self._put(judged, reading) if judged is not None and is_same else None
        number = self._commons[alike]
        return self._add(self._reader.sample(reading), reading) if number is None else number

    def _add(self, report: Report, reading: Reading) -> int:
        return self._put(self._judged(report, as_recorded=self._reader.stands(reading.doctor)), reading)

    def _put(self, judged: Report, reading: Reading) -> int:
        self.recorded.append(self._reader.stands(reading.doctor))
        self.reports.append(_light(judged))
        return len(self.reports) - 1

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


def verdicts(report: Report) -> tuple[object, ...]:
    """All that is decided of a node, without the words for it."""
    rows = tuple((row.name, row.verdict, row.evidence, row.scope) for row in report.features)
    found = tuple((one.id, one.severity, one.features) for one in report.findings)
    return rows, found, report.gate.code


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
