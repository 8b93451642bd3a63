"""A difference as text: what it did to the verdicts and what can be the cause, then the facts, then the findings."""

from __future__ import annotations

from typing import Any

import msgspec

from fi_doctor.model import (
    DIFFERENCE_SCHEMA,
    Cause,
    CauseKind,
    Difference,
    FactChange,
    Missing,
    RowChange,
)
from fi_doctor.reports.table import fold
from fi_doctor.reports.text import amount, clean, names, wrap

FORMATS = ("console", "json", "markdown")
MOST_FACTS = 30
MOST_CAUSES = 3  # of a row
_MOST_OF_A_CAUSE = 3
_MOST_ITEMS = 8


def to_json(difference: Difference) -> str:
    """Indented by two, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(difference), indent=2).decode() + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema of a difference, generated from the types."""
    return {"$id": DIFFERENCE_SCHEMA, "title": "fi-doctor difference", **msgspec.json.schema(Difference)}


def render(difference: Difference, *, width: int = 80) -> str:
    """For people; ends with a newline."""
    lines = [*wrap(headline(difference), width)]
    for row in difference.rows:
        lines += _row(row, width)
    if difference.request:
        lines += ["", "Asked or judged otherwise"]
        lines += [line for fact in difference.request for line in _fact(fact, width)]
    if difference.facts:
        lines += ["", "Facts that differ"]
        lines += [line for fact in difference.facts[:MOST_FACTS] for line in _fact(fact, width)]
        more = len(difference.facts) - MOST_FACTS
        lines += [f"  and {more} more; --format json has all"] if more > 0 else []
    for title, ids in (("Findings that are gone", difference.findings_gone), ("New findings", difference.findings_new)):
        if ids:
            lines += ["", title, *(f"  {clean(one)}" for one in ids)]
    return "\n".join(lines) + "\n"


def headline(difference: Difference) -> str:
    """What differs, in one line."""
    total = amount(difference.rows_compared, "row")
    if not difference.rows:
        facts = amount(len(difference.facts), "fact") if difference.facts else "no fact"
        return f"No verdict of {total} differs; {facts} {'differs' if len(difference.facts) < 2 else 'differ'}"
    verb = "differs" if len(difference.rows) == 1 else "differ"
    return f"{len(difference.rows)} of {total} {verb}, and {amount(len(difference.facts), 'fact')}"


def row_name(row: RowChange) -> str:
    """The row as sentences name it; its SM stands here where it is that of both sides."""
    sms = {sm for sm in row.sms if isinstance(sm, int)}
    return f"{row.feature} on SM{sms.pop()}" if len(sms) == 1 and not _has_sms(row) else row.feature


def standing(row: RowChange) -> tuple[str, str]:
    """How the row stands on either side: "broken (ran)"; with the scope where that differs."""
    has_scopes = None not in row.scope and row.scope[0] is not row.scope[1]
    before, after = (
        "no row"
        if verdict is None
        else f"{verdict}{_on(sm) if _has_sms(row) else ''} ({evidence}{f', {scope}' if has_scopes else ''})"
        for sm, verdict, evidence, scope in zip(row.sms, row.verdicts, row.evidence, row.scope, strict=True)
    )
    return before, after


def _has_sms(row: RowChange) -> bool:
    """Whether it is a row of two GPUs that differ, or of a GPU and of none."""
    one, other = row.sms
    return one != other and one is not None and other is not None and isinstance(one, int) | isinstance(other, int)


def _on(sm: int | Missing | None) -> str:
    return f" on SM{sm}" if isinstance(sm, int) else " without a GPU"


def cause_name(cause: Cause) -> str:
    """What can be the cause, in words."""
    match cause.kind:
        case CauseKind.FINDING:
            return f"the finding {cause.name} {cause.said}"
        case CauseKind.REQUEST:
            return cause.said
        case CauseKind.LIBRARY | CauseKind.VARIABLE:
            return f"the {cause.kind} {cause.name} ({cause.said})"
        case CauseKind.OTHER | CauseKind.PACKAGE | CauseKind.FLASHINFER:
            return f"the package {cause.name} ({cause.said})"
        case _:
            return f"the {cause.name} ({cause.said})"


def cause_facts(cause: Cause) -> str:
    """The facts that tell most of it, in a line."""
    if not cause.facts:
        return "by what was measured: of the facts that its rule reads none differs"
    told = "; ".join(f"{clean(fact.name)}: {change(fact)}" for fact in cause.facts[:_MOST_OF_A_CAUSE])
    more = len(cause.facts) - _MOST_OF_A_CAUSE
    return f"{told}; and {more} more" if more > 0 else told


def change(fact: FactChange) -> str:
    """What became of a fact; of a list what is gone and what is new."""
    if not fact.gone and not fact.new:
        return f"{clean(fact.before, 200) or '(empty)'} -> {clean(fact.after, 200) or '(empty)'}"
    sides = (("gone", fact.gone), ("new", fact.new))
    return "; ".join(f"{word}: {names((clean(one, 200) for one in of), _MOST_ITEMS)}" for word, of in sides if of)


def _fact(fact: FactChange, width: int) -> list[str]:
    first, *rest = fold(f"{clean(fact.name)}: {change(fact)}", width - 6)
    return [f"  {first}", *(f"      {one}" for one in rest)]


def _row(row: RowChange, width: int) -> list[str]:
    before, after = standing(row)
    lines = wrap(f"{clean(row_name(row))}: {before} -> {after}", width, "  ", "      ")
    for word, why in zip(("before", "after"), row.why, strict=True):
        lines += wrap(f"{word}: {clean(why, 400)}", width, "      ", "        ") if why else []
    for place, cause in enumerate(row.causes[:MOST_CAUSES]):
        word = "may be" if place else "first to look at"
        lines += wrap(f"{word}: {clean(cause_name(cause))}", width, "      ", "        ")
        lines += _told(cause_facts(cause), width)
    more = len(row.causes) - MOST_CAUSES
    lines += [f"      and {more} more that it can rest on; --format json has all"] if more > 0 else []
    return lines


def _told(text: str, width: int) -> list[str]:
    first, *rest = fold(text, width - 12)
    return [f"          {first}", *(f"            {one}" for one in rest)]
