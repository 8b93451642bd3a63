"""Which lines the rows ask for: what turns off that which fails here, and what turns on that which works and is off."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor import conditions
from fi_doctor.conditions import View
from fi_doctor.diagnosis import captured, reads
from fi_doctor.diagnosis.called import Server, is_on
from fi_doctor.diagnosis.cells import LATER
from fi_doctor.diagnosis.findings import concerns, filled_line, is_measured
from fi_doctor.diagnosis.matrix import deciding_cells, worst_of
from fi_doctor.model import (
    Action,
    ActionKind,
    Cell,
    Evidence,
    Feature,
    FeatureRow,
    KnowledgeBase,
    Missing,
    Rule,
    SglangUse,
    Use,
    Verdict,
)


class Asked(NamedTuple):
    """A line to set, and what asks for it."""

    kind: ActionKind
    line: str
    why: str
    setting: str
    findings: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    optional: bool = False
    server: str = ""  # "vllm", "sglang": whose flag it is; "": of neither in particular


class _Member(NamedTuple):
    """A feature, what a server does with it on one GPU, and its row; None where it was not judged."""

    feature: str
    use: Use
    row: FeatureRow | None
    # Where only what is captured in a CUDA graph fails: how, and what avoids that.
    captured: str = ""
    outside: Action | None = None
    instead: str = ""  # what lets something else serve, in words


def asked_by_rows(
    kb: KnowledgeBase,
    view: View,
    rows: tuple[FeatureRow, ...],
    server: Server,
    held: frozenset[str] = frozenset(),
) -> list[Asked]:
    """The lines for a server, those that avoid a failure first; nothing for a release of which nothing is known.

    held: ids of the rules that hold here.
    """
    is_read = functools.partial(reads.is_read, facts=view.facts, settings=kb.settings, server=server.owner)
    doubted = [rule for rule in kb.rules if rule.id in held and rule.predicts is not None and rule.predicts.is_failure]
    avoided: dict[tuple[ActionKind, str], tuple[Action, list[_Member]]] = {}
    enabled: dict[tuple[ActionKind, str], tuple[Action, list[_Member]]] = {}
    for member in _members(kb.features, rows, view, server, is_read):
        is_used = is_on(member.use, view.facts, is_read)
        action = _first(member.use.avoid if is_used else member.use.enable, view, is_read)
        action = member.outside if is_used and member.outside is not None else action
        if action is not None and (not is_used or _fails_here(member)):
            lines = avoided if is_used else enabled
            lines.setdefault((action.kind, action.line), (action, []))[1].append(member)
    needed = [_needed(action, members, view, server.name) for action, members in avoided.values()]
    optional = [
        _optional(action, members, view, server.name)
        for action, members in enabled.values()
        if _is_wanted(action, members, doubted)
    ]
    return [one._replace(server=server.owner) for one in (*needed, *optional)]


def _members(
    features: tuple[Feature, ...],
    rows: tuple[FeatureRow, ...],
    view: View,
    server: Server,
    is_read: Callable[[str], bool],
) -> list[_Member]:
    """Every feature that the server calls on the GPUs of the rows."""
    judged = {(row.feature, row.sm): row for row in rows}
    sms = dict.fromkeys(row.sm for row in rows if not isinstance(row.sm, Missing))
    found = []
    for feature in features:
        for sm in sms:
            use = server.use_of(feature, sm)
            if use is not None and use.called:
                row = _as_called(use, judged.get((feature.id, sm)))
                bad = captured.failing(use, row.cells) if row is not None else ()
                outside = captured.action(feature, view, is_read) if bad else None
                avoid = _first(use.avoid, view, is_read)
                instead = f"{filled_line(avoid, view)}: {conditions.fill(avoid.why, view)}" if avoid is not None else ""
                found.append(_Member(feature.id, use, row, captured.words(bad) if bad else "", outside, instead))
    return found


def _as_called(use: Use, row: FeatureRow | None) -> FeatureRow | None:
    """The row, which vLLM's calls decide, as those of another server do."""
    if row is None or not isinstance(use, SglangUse):
        return row
    # What was not yet asked when the report was made keeps no verdict from it, as in the matrix.
    cells = tuple(cell for cell in deciding_cells(use, row.cells) if not cell.why.startswith(LATER))
    if not any(is_measured(cell.verdict, cell.evidence) for cell in cells):
        return row
    verdict, evidence, _ = worst_of(cells)
    return replace(row, verdict=Verdict.UNKNOWN if use.unchecked else verdict, evidence=evidence)


def _first(actions: tuple[Action, ...], view: View, is_read: Callable[[str], bool]) -> Action | None:
    return next(
        (one for one in actions if is_read(one.setting) and not conditions.unknowns(one.line, view)),
        None,
    )


def _fails_here(member: _Member) -> bool:
    """Whether it fails, or a rule foretells it; of a feature that is checked only in part, that part."""
    if member.row is None:
        return False
    if member.use.unchecked:
        return any(_fails(cell) for cell in deciding_cells(member.use, member.row.cells))
    return _fails(member.row)


def _fails(judged: FeatureRow | Cell) -> bool:
    is_sure = is_measured(judged.verdict, judged.evidence) or judged.evidence is Evidence.PREDICTED
    return judged.verdict.is_failure and is_sure


def _works(row: FeatureRow | None) -> bool:
    return row is not None and row.verdict is Verdict.WORKS and row.evidence is Evidence.VERIFIED


def _is_wanted(action: Action, members: list[_Member], doubted: list[Rule]) -> bool:
    """Whether one line for all of these turns on something that works, and nothing that fails or is known to fail."""
    failing = [one for one in members if _fails_here(one) and not _is_mended(action, one)]
    if failing or any(concerns(rule, one.feature) for rule in doubted for one in members):
        return False
    return any(_works(one.row) or _is_mended(action, one) for one in members)


def _is_mended(action: Action, member: _Member) -> bool:
    """Whether a flag that turns it on can be given together with one that keeps it out of CUDA graphs."""
    return member.outside is not None and action.kind is member.outside.kind is ActionKind.FLAG


def _needed(action: Action, members: list[_Member], view: View, server: str) -> Asked:
    features = _names(members)
    if all(one.captured for one in members) and action is members[0].outside:
        return _needed_outside(action, members, view, server)
    is_part = any(one.use.unchecked for one in members)
    does = "does" if is_part or len(features) == 1 else "do"
    how = "by default" if any(one.use.default for one in members) else "as this environment tells it to"
    why = (
        f"{'what was checked of ' if is_part else ''}{_listed(features)} {does} not work here and "
        f"{server} calls {'it' if len(features) == 1 else 'them'} {how}; {conditions.fill(action.why, view)}"
    )
    return _asked(action, view, why, features)


def _needed_outside(action: Action, members: list[_Member], view: View, server: str) -> Asked:
    features = _names(members)
    said = "; ".join(f"{one.feature} {one.captured}" for one in sorted(members, key=lambda member: member.feature))
    why = f"{said}, which is how {server} decodes; {conditions.fill(action.why, view)}"
    why += "".join(f"; or {line}" for line in dict.fromkeys(one.instead for one in members if one.instead))
    return _asked(action, view, why, features)._replace(findings=(captured.FAILS_IN_GRAPH,))


def _optional(action: Action, members: list[_Member], view: View, server: str) -> Asked:
    mended = {one.feature: one for one in members if _is_mended(action, one)}
    good = _names(one for one in members if _works(one.row) or one.feature in mended)
    rest = tuple(name for name in _names(members) if name not in good)
    work, them = ("works", "it") if len(good) == 1 else ("work", "them")
    why = f"{_listed(good)} {work} here and {server} calls {them} only when told to"
    why += f"; {conditions.fill(action.why, view)}"
    why += "".join(f"; {name} {one.captured}, hence the second flag" for name, one in sorted(mended.items()))
    if rest:
        why += f"; not known to work of what the line turns on: {_listed(rest)}"
    outside = dict.fromkeys(filled_line(one.outside, view) for one in mended.values() if one.outside is not None)
    asked = _asked(action, view, why, good)
    return asked._replace(optional=True, line=" ".join((asked.line, *outside)))


def _asked(action: Action, view: View, why: str, features: tuple[str, ...]) -> Asked:
    return Asked(action.kind, filled_line(action, view), why, action.setting, features=features)


def _names(members: Iterable[_Member]) -> tuple[str, ...]:
    return tuple(sorted({one.feature for one in members}))


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
