"""What vLLM does with the rows, in words."""

from __future__ import annotations

import re

from fi_doctor.model import FeatureRow
from fi_doctor.reports.text import clean

USES = "What vLLM does with them:"


def by_use(rows: tuple[FeatureRow, ...]) -> dict[str, list[str]]:
    """What is said of the rows that need a GPU -> the features of which it is true; all of it where one fails."""
    told: dict[str, dict[str, None]] = {}  # each once, in the order of the rows
    for row in rows:
        if row.needs_gpu:
            told.setdefault(_use(row), {})[row.feature] = None
    return {said: list(features) for said, features in told.items()}


def _use(row: FeatureRow) -> str:
    """In words; of a row that works, without what serves instead: "not called (vLLM >=0.11,<0.34)"."""
    said = clean(row.vllm)
    if row.verdict.is_failure:
        return said
    use, _, rest = said.partition(": ")
    releases = re.search(r" \(vLLM [^()]*\)$", rest)
    return use + releases[0] if releases else use
