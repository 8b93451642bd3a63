"""A difference as text: what it did to the verdicts, then the facts, then the findings."""

from __future__ import annotations

from typing import Any

import msgspec

from fi_doctor.model import DIFFERENCE_SCHEMA, Difference, Missing, RowChange
from fi_doctor.reports.table import fold
from fi_doctor.reports.text import amount, clean, wrap

_MOST_FACTS = 30


def to_json(difference: Difference) -> str:
    """Indented by two, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(difference), indent=2).decode() + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema of a difference, generated from the types."""
    return {"$id": DIFFERENCE_SCHEMA, "title": "fi-doctor difference", **msgspec.json.schema(Difference)}


def render(difference: Difference, *, width: int = 80) -> str:
    """For people; ends with a newline."""
    lines = [*wrap(_headline(difference), width)]
    for row in difference.rows:
        lines += _row(row, width)
    if difference.facts:
        lines += ["", "Facts that differ"]
        for fact in difference.facts[:_MOST_FACTS]:
            told = f"{fact.name}: {clean(fact.before, 200) or '(empty)'} -> {clean(fact.after, 200) or '(empty)'}"
            first, *rest = fold(told, width - 6)
            lines += [f"  {first}", *(f"      {one}" for one in rest)]
        if more := len(difference.facts) - _MOST_FACTS:
            lines += [f"  and {more} more; --format json has all"] if more > 0 else []
    for title, ids in (("Findings that are gone", difference.findings_gone), ("New findings", difference.findings_new)):
        if ids:
            lines += ["", title, *(f"  {clean(one)}" for one in ids)]
    return "\n".join(lines) + "\n"


def _headline(difference: Difference) -> str:
    total = amount(difference.rows_compared, "row")
    if not difference.rows:
        facts = amount(len(difference.facts), "fact") if difference.facts else "no fact"
        return f"No verdict of {total} differs; {facts} {'differs' if len(difference.facts) < 2 else 'differ'}"
    verb = "differs" if len(difference.rows) == 1 else "differ"
    return f"{len(difference.rows)} of {total} {verb}, and {amount(len(difference.facts), 'fact')}"


def _row(row: RowChange, width: int) -> list[str]:
    where = "" if isinstance(row.sm, Missing) else f" on SM{row.sm}"
    before, after = (
        f"{verdict} ({evidence})" if verdict is not None else "no row"
        for verdict, evidence in zip(row.verdicts, row.evidence, strict=True)
    )
    lines = wrap(f"{clean(row.feature)}{where}: {before} -> {after}", width, "  ", "      ")
    for word, why in zip(("before", "after"), row.why, strict=True):
        lines += wrap(f"{word}: {clean(why, 400)}", width, "      ", "        ") if why else []
    return lines
