"""A difference as Markdown, for a merge request or an issue: verdicts with what can be the cause, facts, findings."""

from __future__ import annotations

from collections.abc import Iterator

from fi_doctor.model import Difference, FactChange, RowChange
from fi_doctor.reports.changes import (
    MOST_CAUSES,
    MOST_FACTS,
    cause_facts,
    cause_name,
    change,
    headline,
    row_name,
    standing,
)
from fi_doctor.reports.markdown import code, words

_WHY = 400


def render(difference: Difference) -> str:
    """The whole difference; what stands in it is data, and no markup of it is obeyed."""
    parts = (
        [f"# fi-doctor: {words(headline(difference))}"],
        _rows(difference),
        _facts("Asked or judged otherwise", difference.request),
        _facts("Facts that differ", difference.facts),
        _findings("Findings that are gone", difference.findings_gone),
        _findings("New findings", difference.findings_new),
    )
    return "\n\n".join("\n".join(lines) for lines in map(list, parts) if lines) + "\n"


def _rows(difference: Difference) -> Iterator[str]:
    if not difference.rows:
        return
    yield "## Verdicts that differ"
    yield ""
    yield "| feature | before | after |"
    yield "| --- | --- | --- |"
    for row in difference.rows:
        sides = (f"**{words(stands)}** {words(why, _WHY)}" for stands, why in zip(standing(row), row.why, strict=True))
        yield f"| {words(row_name(row))} | {' | '.join(side.rstrip() for side in sides)} |"
    if not any(row.causes for row in difference.rows):
        return
    yield ""
    yield "What can be the cause, the smallest difference that is closest to the row first:"
    for row in difference.rows:
        yield from _causes(row)


def _causes(row: RowChange) -> Iterator[str]:
    if not row.causes:
        return
    yield ""
    yield f"- {words(row_name(row))}"
    for cause in row.causes[:MOST_CAUSES]:
        yield f"  - {words(cause_name(cause))}: {words(cause_facts(cause), 2000)}"
    if (more := len(row.causes) - MOST_CAUSES) > 0:
        yield f"  - and {more} more that it can rest on"


def _facts(title: str, facts: tuple[FactChange, ...]) -> Iterator[str]:
    if not facts:
        return
    yield f"## {title}"
    yield ""
    for fact in facts[:MOST_FACTS]:
        yield f"- {code(fact.name)}: {words(change(fact), 4000)}"
    if (more := len(facts) - MOST_FACTS) > 0:
        yield f"- and {more} more"


def _findings(title: str, ids: tuple[str, ...]) -> Iterator[str]:
    if not ids:
        return
    yield f"## {title}"
    yield ""
    yield from (f"- {code(one)}" for one in ids)
