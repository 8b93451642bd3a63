"""What differs between two reports: rows with what can be the cause, facts, findings."""

from __future__ import annotations

from fi_doctor.diagnosis import causes
from fi_doctor.diagnosis.findings import of_selected
from fi_doctor.model import (
    DIFFERENCE_SCHEMA,
    Cause,
    Difference,
    FeatureRow,
    KnowledgeBase,
    Missing,
    ProbeSpec,
    Report,
    RowChange,
)

_Pair = tuple[FeatureRow | None, FeatureRow | None]


def difference(before: Report, after: Report, *, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]) -> Difference:
    """Rows, facts and findings that are not the same in both; the other way round it says the same, exchanged."""
    # What is about rows that the other report was not asked about has neither come nor gone.
    gone, came = (
        {finding.id for finding in of_selected(one.findings, other.request.features)}
        for one, other in ((before, after), (after, before))
    )
    changed = causes.between(before, after, kb)
    pairs = _pairs(before, after)
    differing = [pair for pair in pairs if not _is_same(*pair)]
    return Difference(
        schema=DIFFERENCE_SCHEMA,
        rows=tuple(_row(*pair, causes.of_row(*pair, changed, kb, specs)) for pair in differing),
        facts=changed.facts,
        findings_gone=tuple(sorted(gone - came)),
        findings_new=tuple(sorted(came - gone)),
        rows_compared=len(pairs),
        request=changed.request,
    )


def _pairs(before: Report, after: Report) -> list[_Pair]:
    """The rows of either report, those of one feature and SM together; of one feature where each has one more."""
    old, new = ({(row.feature, _sm(row)): row for row in report.features} for report in (before, after))
    pairs = {key: (old.get(key), new.get(key)) for key in {*old, *new}}
    for feature in {feature for feature, _ in pairs}:
        gone = [key for key in old.keys() - new.keys() if key[0] == feature]
        came = [key for key in new.keys() - old.keys() if key[0] == feature]
        if len(gone) == len(came) == 1:
            one, other = pairs.pop(gone[0]), pairs.pop(came[0])
            pairs[min(*gone, *came)] = (one[0], other[1])
    return [pairs[key] for key in sorted(pairs)]


def _sm(row: FeatureRow) -> int:
    return -1 if isinstance(row.sm, Missing) else row.sm


def _is_same(old: FeatureRow | None, new: FeatureRow | None) -> bool:
    if old is None or new is None:
        return False
    return (old.verdict, old.evidence, old.scope) == (new.verdict, new.evidence, new.scope)


def _row(old: FeatureRow | None, new: FeatureRow | None, found: tuple[Cause, ...]) -> RowChange:
    one = old or new
    assert one is not None  # noqa: S101 - a key comes from one of the two
    return RowChange(
        feature=one.feature,
        sms=(old.sm if old else None, new.sm if new else None),
        verdicts=(old.verdict if old else None, new.verdict if new else None),
        evidence=(old.evidence if old else None, new.evidence if new else None),
        scope=(old.scope if old else None, new.scope if new else None),
        why=(old.why if old else "", new.why if new else ""),
        causes=found,
    )
