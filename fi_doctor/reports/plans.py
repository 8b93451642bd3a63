"""A plan as text: the answer first, then what moves, what stands otherwise afterwards, and what is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from fi_doctor.model import Evidence, Holds, Missing
from fi_doctor.model.expected import FirstStarts
from fi_doctor.model.plans import (
    PLAN_SCHEMA,
    Alternative,
    Kept,
    Need,
    Pin,
    Plan,
    RowMove,
    SettingMove,
    Standing,
)
from fi_doctor.reports.expected import briefly, first_start
from fi_doctor.reports.markdown import words
from fi_doctor.reports.text import amount, clean, names, wrap

NOTHING_RUN = "All of it is declared or predicted: of what comes after the move nothing was built or run."
_WHY = 300  # characters of a reason
_MOST_ROWS = 40
_HOLDS = {Holds.YES: "is not lost", Holds.NO: "is lost", Holds.CANNOT_TELL: "is not known"}

_ALIKE = {Standing.OPEN, Standing.EXPECTED, Standing.WORKS}  # that a row is no longer measured says nothing


class _Section(NamedTuple):
    title: str
    items: list[str]


def to_json(plan: Plan) -> str:
    """Indented by two, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2).decode() + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema of a plan, generated from the types."""
    return {"$id": PLAN_SCHEMA, "title": "fi-doctor plan", **msgspec.json.schema(Plan)}


def render(plan: Plan, *, width: int = 80) -> str:
    """For people; ends with a newline."""
    lines = [*wrap(headline(plan), width), *wrap(_code(plan), width, "", "  "), ""]
    for line in _ends(plan):
        lines += wrap(line, width, "", "  ")
    for section in _sections(plan):
        lines += ["", section.title]
        for item in section.items:
            lines += wrap(item, width, "  ", "      ", limit=2000)
    lines += ["", *wrap(NOTHING_RUN, width)]
    return "\n".join(lines) + "\n"


def markdown(plan: Plan) -> str:
    """For a merge request or an issue; what stands in it is data, and no markup of it is obeyed."""
    parts = [[f"# fi-doctor: {words(headline(plan))}"], [words(_code(plan))]]
    parts += [[f"- {words(line)}" for line in _ends(plan)]]
    parts += [[f"## {one.title}", "", *(f"- {words(item, 2000)}" for item in one.items)] for one in _sections(plan)]
    parts += [[words(NOTHING_RUN)]]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def headline(plan: Plan) -> str:
    """What the move does, in one line."""
    lost, gained, others = _rows(plan)
    recalled = [row for row in plan.rows if row.calls[0] != row.calls[1]]
    told = (
        (lost, "{} would be lost"),
        (gained, "{} may work that cannot now"),
        (others, "{} would stand otherwise"),
        (recalled, "{} would be called otherwise"),
    )
    parts = [said.format(amount(len(rows), "row")) for rows, said in told if rows]
    along = [pin for pin in plan.pins if not pin.is_asked]
    moving = f"{amount(len(plan.pins), 'version')} {'moves' if len(plan.pins) == 1 else 'move'}"
    moving += f", {len(along)} of them unasked" if along else ""
    against = sum(bool(pin.overrides) for pin in plan.pins)
    moving += f", {against} AGAINST a requirement" if against else ""
    if not plan.pins:
        return "Nothing moves: it is there already"
    changed = ", ".join(parts) or f"No row of {plan.rows_compared} would stand otherwise, by what is known"
    return f"{changed}; {moving}"


def _code(plan: Plan) -> str:
    return f"Exit {plan.code}: {plan.reason}"


def _ends(plan: Plan) -> Iterator[str]:
    for word, side in (("From", plan.before), ("To", plan.after)):
        yield f"{word}: {', '.join(clean(one, 200) for one in side.told)}"


def _sections(plan: Plan) -> Iterator[_Section]:
    lost, gained, others = _rows(plan)
    for title, items in (
        ("Required", map(_required, plan.required)),
        ("What keeps them, the smallest change first", _search(plan)),
        ("What moves together", map(_pin, plan.pins)),
        ("What that needs", map(_need, plan.needs)),
        ("Would be lost", _grouped(lost)),
        ("May work then (known of it, not measured)", _grouped(gained)),
        ("Would stand otherwise", _grouped(others)),
        ("vLLM would call otherwise", _called(plan.rows)),
        ("Problems that come", plan.problems_new),
        ("Problems that go", plan.problems_gone),
        ("Settings that are set", map(_setting, (one for one in plan.settings if one.is_set))),
        ("Settings that end or change their default, set nowhere", _unset(plan.settings)),
        (
            "What a first start compiles of all that vLLM calls without a flag",
            _starts(plan.starts),
        ),
        ("Not known", plan.notes),
    ):
        told = [clean(item, 2000) for item in items]
        if told:
            yield _Section(title, told)


def _rows(plan: Plan) -> tuple[list[RowMove], list[RowMove], list[RowMove]]:
    """Those that are lost, those that nothing stands against any more, and those that stand otherwise."""
    moved = [row for row in plan.rows if row.before is not row.after and not {row.before, row.after} <= _ALIKE]
    lost = [row for row in moved if row.after.is_against and row.before in _ALIKE]
    gained = [row for row in moved if row.before.is_against and row.after in _ALIKE]
    return lost, gained, [row for row in moved if row not in lost and row not in gained]


def _grouped(rows: Iterable[RowMove]) -> Iterator[str]:
    """Rows that change alike for one reason in one item."""
    together: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        after = "may work" if row.after is Standing.OPEN else str(row.after)
        way = f"{row.before} -> {after} ({row.evidence})"
        why = clean(row.why, _WHY)
        if row.before.is_against and row.after is Standing.OPEN and row.evidence is not Evidence.PREDICTED:
            why = f"what stands against it now is gone: {why}"
        elif row.after is Standing.OPEN:
            why = ""
        together.setdefault((way, why), []).append(clean(row.feature, 100))
    for (way, why), found in together.items():
        yield f"{names(found, _MOST_ROWS)}: {way}{f'; {why}' if why else ''}"


def _called(rows: Iterable[RowMove]) -> Iterator[str]:
    together: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.calls[0] != row.calls[1]:
            together.setdefault(row.calls, []).append(clean(row.feature, 100))
    for (before, after), found in together.items():
        yield f"{before} -> {after} (declared): {names(found, _MOST_ROWS)}"


def _pin(pin: Pin) -> str:
    moved = f"{pin.what} {pin.before or '(none known)'} -> {pin.after or '(none known)'}"
    told = f"{moved}, asked for" if pin.is_asked else f"{moved}, not asked for: {pin.why} [{pin.source}]"
    return f"{told}, AGAINST a requirement: {pin.overrides}" if pin.overrides else told


def _need(need: Need) -> str:
    if isinstance(need.is_met, Missing):
        met = need.is_met.reason
    else:
        met = f"{need.found} is there" if need.is_met else f"{need.found} is NOT enough"
    return f"{need.what} {need.least} or newer ({met}): {need.why} [{need.source}]"


def _required(one: Kept) -> str:
    mends = f"; against it helps: {' and '.join(one.mends)}" if one.mends else ""
    if one.holds in (Holds.NO, Holds.ALLOWED) and one.before.is_against:
        spared = ", and only a glob names it" if one.holds is Holds.ALLOWED else ""
        told = f"{one.feature} is not there, before the move as after it{spared}: {one.after}"
        return f"{told}; {clean(one.why, _WHY)}{mends}"
    told = f"{one.feature} {_HOLDS.get(one.holds, str(one.holds))}: {one.before} -> {one.after}"
    if one.holds is Holds.YES:
        return f"{told}{f'; only when told to: {one.line or one.why}' if one.line else ''}"
    return f"{told}; {clean(one.why, _WHY)}{mends}"


def _search(plan: Plan) -> Iterator[str]:
    found = plan.search
    if found is None:
        return
    yield from map(_alternative, found.found)
    looked_at = f"{amount(found.tried, 'combination')} of other values of {', '.join(found.dimensions)}"
    if found.why_none:
        rows = ", ".join(one.feature for one in plan.required if one.holds is not Holds.YES)
        yield f"no known combination keeps {rows}: {'; '.join(clean(why, _WHY) for why in found.why_none)}"
    bound = f"; {found.bound}" if found.bound else ""
    untold = f"; of {amount(found.untold, 'further release')} nothing is in the shipped data" if found.untold else ""
    yield f"looked at: {looked_at}, the nearest first{untold}{bound}"


def _alternative(one: Alternative) -> str:
    changed = " and ".join(f"{pin.what} {pin.after} instead of {pin.before or 'none'}" for pin in one.changes)
    against = f"; it OVERRIDES a requirement: {'; '.join(one.overrides)}" if one.overrides else ""
    costs = f"; it loses {names(one.costs, 8)}, which the move as asked for does not" if one.costs else ""
    problems = f"; with the problems {'; '.join(one.problems)}" if one.problems else ""
    return f"{changed}{against}{costs}{problems}: {f'--to {one.words}' if one.words else 'to stay as it is'}"


def _setting(one: SettingMove) -> str:
    instead = f"; instead: {', '.join(one.instead)}" if one.instead else ""
    remark = f"; {clean(one.remark, _WHY)}" if one.remark else ""
    return f"{one.name}: {one.before} -> {one.after}{instead}{remark} [{one.source}]"


def _unset(settings: Iterable[SettingMove]) -> Iterator[str]:
    """Those that end for one that stands for them in one item."""
    ended: dict[str, list[str]] = {}
    for one in settings:
        if not one.is_set and one.before == "read":
            ended.setdefault(", ".join(one.instead), []).append(one.name)
    for instead, found in sorted(ended.items(), reverse=True):
        many = "them" if len(found) > 1 else "it"
        yield f"not read any more, {instead or 'and nothing'} stands for {many}: {names(found, 20)}"
    for one in settings:
        if not one.is_set and one.before != "read":
            yield f"{one.name}: {one.before} -> {one.after.removeprefix('default ')}"


def _starts(starts: tuple[FirstStarts, FirstStarts]) -> Iterator[str]:
    before, after = starts
    ends = [("before and after", after)] if before == after else [("before", before), ("after", after)]
    if not any(one.modules or one.unknown for one in starts):
        return
    for end, one in ends:
        yield f"{end}: {first_start(one)}{f': {briefly(one.modules)}' if one.modules else ''}"
        if one.unknown:
            yield f"{end}, of which it is not known: {names(one.unknown)}"
