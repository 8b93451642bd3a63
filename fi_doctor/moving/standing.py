"""How every row stands at one end of a move, and what differs between two. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fi_doctor import upgraded
from fi_doctor.diagnosis import called, findings, upgrades
from fi_doctor.model import Evidence, FeatureRow, KnowledgeBase, Missing, Report, Severity, Verdict
from fi_doctor.model.plans import RowMove, Standing
from fi_doctor.moving.judging import Judged

_OF_VERDICT = {
    Verdict.UNSUPPORTED: Standing.UNSUPPORTED,
    Verdict.BROKEN: Standing.BROKEN,
    Verdict.WRONG_RESULT: Standing.WRONG_RESULT,
    Verdict.WORKS: Standing.WORKS,
}
_STANDS = {Standing.OPEN, Standing.EXPECTED, Standing.WORKS}


class Stand(NamedTuple):
    """One row at one end."""

    row: FeatureRow
    standing: Standing
    why: str
    evidence: Evidence
    is_called: bool  # without a flag of vllm serve
    calls: str  # the same in words; "" without vLLM
    causes: frozenset[str] = frozenset()  # all that stands against it: ids of findings, or a word


def stands(report: Report | Judged, kb: KnowledgeBase, *, before: Report | None = None) -> dict[str, Stand]:
    """Feature -> how it stands; of several GPUs that on which it stands worst.

    before: the report at which the move begins; what failed when it was measured there and is not known to be mended
    is not open here.
    """
    is_read = upgraded.is_read(report.facts)
    lasting = {} if before is None else _lasting(before, report, kb)
    found: dict[str, Stand] = {}
    for row in report.features:
        one = _stand(row, report, kb, is_read=is_read, lasting=lasting)
        if row.feature not in found or one.standing.rank < found[row.feature].standing.rank:
            found[row.feature] = one
    return found


def moves(before: dict[str, Stand], after: dict[str, Stand]) -> Iterator[RowMove]:
    """The rows that stand otherwise, or that vLLM calls otherwise, by name."""
    for feature in sorted({*before, *after}):
        old, new = before.get(feature), after.get(feature)
        sides = tuple(side.standing if side else Standing.ABSENT for side in (old, new))
        calls = (old.calls if old else "", new.calls if new else "")
        if not all(calls):
            calls = ("", "")  # of a vLLM that is on one side alone nothing changes
        # That a row is no longer measured says nothing.
        is_same = sides[0] is sides[1] or _STANDS.issuperset(sides)
        if is_same and calls[0] == calls[1]:
            continue
        told = new if new is not None and (new.standing.is_against or old is None) else old
        if new is not None and old is not None and (not old.standing.is_against or new.evidence is Evidence.PREDICTED):
            told = new  # what was measured is no reason of what is foretold
        assert told is not None  # noqa: S101 - a name comes from one of the two
        yield RowMove(
            feature=feature,
            sms=(_sm(old), _sm(new)),
            before=sides[0],
            after=sides[1],
            why=told.why,
            evidence=told.evidence,
            calls=calls,
        )


def _stand(
    row: FeatureRow, report: Report | Judged, kb: KnowledgeBase, *, is_read: bool, lasting: dict[str, Stand]
) -> Stand:
    feature = kb.feature(row.feature)
    is_called = feature is not None and called.is_called(feature, row.sm, report.facts, kb)
    calls = _calls(row, is_called=is_called) if report.facts.vllm_version else ""
    against = [one for one in report.findings if one.severity is Severity.ERROR and row.feature in one.features]
    why = "; ".join(f"{one.id}: {one.title}" for one in against)
    causes = {one.id for one in against}
    if row.verdict in _OF_VERDICT:
        why = why if why and row.evidence is Evidence.PREDICTED else row.why
        standing = _OF_VERDICT[row.verdict]
        if standing is Standing.WORKS and not findings.is_measured(row.verdict, row.evidence):
            standing = Standing.EXPECTED
            if row.feature in lasting and lasting[row.feature].standing.is_against:
                return lasting[row.feature]._replace(row=row, is_called=is_called, calls=calls)
        if standing.is_against and (row.verdict is Verdict.UNSUPPORTED or not causes):
            causes.add(str(standing))
        return Stand(row, standing, why, row.evidence, is_called, calls, frozenset(causes))
    if against:
        return Stand(row, Standing.BROKEN, why, Evidence.PREDICTED, is_called, calls, frozenset(causes))
    if row.feature in lasting and (lasting[row.feature].standing is not Standing.OPEN or is_read):
        return lasting[row.feature]._replace(row=row, is_called=is_called, calls=calls)
    if not is_read and row.needs_gpu:
        why = "what that FlashInfer has is not in the shipped data, and it is not installed"
        return Stand(row, Standing.UNKNOWN, why, Evidence.NONE, is_called, calls)
    return Stand(row, Standing.OPEN, row.why, Evidence.DECLARED, is_called, calls)


def _lasting(before: Report, after: Report | Judged, kb: KnowledgeBase) -> dict[str, Stand]:
    """The rows that were measured to fail, on the same kind of GPU: still against them, but where a mend is known."""
    sms = {row.sm for row in after.features if not isinstance(row.sm, Missing)}
    failed = [row for row in before.features if row.verdict.is_failure and row.sm in sms]
    failed = [row for row in failed if findings.is_measured(row.verdict, row.evidence)]
    laid = {fault.row.feature: fault for fault in upgrades.faults(kb, before)} if failed else {}
    found = {}
    for row in failed:
        fault = laid.get(row.feature)
        standing = _OF_VERDICT[row.verdict]
        why = f"measured before the move, and not known to be mended by it: {row.why}"
        if fault is not None and upgrades.mended(fault, after.facts, kb, before.outcomes):
            standing, why = Standing.OPEN, f"known to be mended: {', '.join(rule.id for rule in fault.rules)}"
        causes = frozenset({"measured"} if standing.is_against else ())
        found[row.feature] = Stand(row, standing, why, Evidence.PREDICTED, is_called=False, calls="", causes=causes)
    return found


def _calls(row: FeatureRow, *, is_called: bool) -> str:
    """What vLLM does with it, in words that change where that does."""
    if not row.needs_gpu:
        return ""
    return "called without a flag" if is_called else "only when told to" if row.vllm_calls else "not called"


def _sm(one: Stand | None) -> int | Missing | None:
    return None if one is None else one.row.sm
