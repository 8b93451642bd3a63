"""Whether required rows are still there after a move."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from fi_doctor.diagnosis import called
from fi_doctor.model import ActionKind, Facts, Holds, KnowledgeBase, Report, Severity
from fi_doctor.model.plans import Kept, Standing
from fi_doctor.moving.standing import Stand

_HELPS = (ActionKind.SET, ActionKind.RUN, ActionKind.INSTALL)


def kept(  # noqa: PLR0913, PLR0917 - both ends and what they are judged by
    required: Iterable[str],
    before: dict[str, Stand],
    after: dict[str, Stand],
    facts: Facts,
    kb: KnowledgeBase,
    globbed: frozenset[str] = frozenset(),
) -> tuple[Kept, ...]:
    """Each of these features: no where something known stands against it, or vLLM could call it and cannot any more.

    facts: those after the move. globbed: of these one that stands at neither end is allowed to.
    """
    found = (_kept(name, before.get(name), after.get(name), facts, kb) for name in required)
    return tuple(
        replace(one, holds=Holds.ALLOWED)
        if one.feature in globbed and one.holds is Holds.NO and one.before.is_against
        else one
        for one in found
    )


def with_mends(one: Kept, report: Report) -> Kept:
    """The same with the lines that the report after the move recommends for what stands against it."""
    if one.after is not Standing.BROKEN:
        return one
    errors = (finding for finding in report.findings if finding.severity is Severity.ERROR)
    against = {finding.id for finding in errors if one.feature in finding.features}
    lines = (
        action.line
        for action in report.recommendations
        if action.kind in _HELPS and not action.optional and against & {*action.findings}
    )
    return replace(one, mends=tuple(dict.fromkeys(lines)))


def _kept(feature: str, old: Stand | None, new: Stand | None, facts: Facts, kb: KnowledgeBase) -> Kept:
    sides = [side.standing if side else Standing.ABSENT for side in (old, new)]
    holds, why, line = Holds.YES, new.why if new else "there is no such row", ""
    if new is None or new.standing is Standing.UNKNOWN:
        holds = Holds.CANNOT_TELL
    elif new.standing.is_against:
        holds = Holds.NO
    elif old is not None and old.calls and new.calls and old.row.vllm_calls and not new.row.vllm_calls:
        holds, why = Holds.NO, f"vLLM {facts.vllm_version} does not call it: {new.row.vllm}"
    elif old is not None and old.is_called and not new.is_called:
        why, line = new.row.vllm, _turned_on(feature, new, facts, kb)
    return Kept(feature=feature, holds=holds, before=sides[0], after=sides[1], why=why, line=line)


def _turned_on(name: str, new: Stand, facts: Facts, kb: KnowledgeBase) -> str:
    """What makes the other vLLM call it; "" where nothing is known to."""
    feature = kb.feature(name)
    use = None if feature is None else called.vllm_use(feature, new.row.sm, facts)
    return next((action.line for action in use.enable), "") if use is not None else ""
