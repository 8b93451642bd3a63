"""What vLLM does with the rows, in words."""

from __future__ import annotations

import re

from fi_doctor.model import FeatureRow, Report
from fi_doctor.model.targets import Measured
from fi_doctor.reports.text import clean

USES = "What vLLM does with them:"
LEANS = "What was measured nearest to this:"


def by_use(rows: tuple[FeatureRow, ...]) -> dict[str, list[str]]:
    """What is said of the rows that need a GPU -> the features of which it is true; all of it where one fails."""
    told: dict[str, dict[str, None]] = {}  # each once, in the order of the rows
    for row in rows:
        if row.needs_gpu:
            told.setdefault(_use(row), {})[row.feature] = None
    return {said: list(features) for said, features in told.items()}


def by_measurement(report: Report) -> dict[str, list[str]]:
    """What came of it where -> the rows that lean on such a run, and the modules that were compiled so."""
    told: dict[str, dict[str, None]] = {}
    for feature, measured in report.target.nearest.items() if report.target else ():
        for one in measured:
            where = f"{one.outcome} ({clean(one.place)}; {', '.join(map(clean, one.differs)) or 'exactly this'})"
            told.setdefault(where, {})[_subject(feature, one)] = None
    return {where: list(subjects) for where, subjects in sorted(told.items(), key=lambda item: -len(item[1]))}


def _subject(feature: str, one: Measured) -> str:
    """A row that ran well is its name, one that did not names the variant; a module says what it took, or why not."""
    if one.is_run:
        return feature if one.outcome in ("verified", "ran", "built") else f"{feature} ({clean(one.subject, 60)})"
    return f"{clean(one.subject, 60)} ({clean(one.detail, 100)})"


def _use(row: FeatureRow) -> str:
    """In words; of a row that works, without what serves instead: "not called (vLLM >=0.11,<0.34)"."""
    said = clean(row.vllm)
    if row.verdict.is_failure:
        return said
    use, _, rest = said.partition(": ")
    releases = re.search(r" \(vLLM [^()]*\)$", rest)
    return use + releases[0] if releases else use
