"""What differs between two reports: rows first, then the facts, those that verdicts rest on most before the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from fi_doctor.model import (
    DIFFERENCE_SCHEMA,
    Difference,
    FactChange,
    Facts,
    FeatureRow,
    Missing,
    Report,
    RowChange,
)

# Groups of facts in the order in which they are told; what is in none of them says nothing about verdicts (`sources`).
_GROUPS = ("toolkit", "packages", "environment", "gpus", "flashinfer", "libraries", "vllm", "interpreter", "system")
# Facts that differ from one minute to the next, or in whole tables because one version differs.
_UNTOLD = (
    "gpus.gpus.memory_free_mib",
    "system.memory_available_mib",
    "flashinfer.symbols",
    "flashinfer.majors",
    "vllm.variables",
    "vllm.flags",
    "vllm.keys",
    "vllm.unread_variables",
)
# Facts that follow from the ones beside them.
_FOLLOWING = ("kind", "requires", "resolved", "copies", "architectures", "found_by", "build")
_ABSENT = "not there"


def difference(before: Report, after: Report) -> Difference:
    """Rows, facts and findings that are not the same in both."""
    old, new = ({(row.feature, _sm(row)): row for row in report.features} for report in (before, after))
    keys = sorted({*old, *new})
    gone, came = ({finding.id for finding in report.findings} for report in (before, after))
    return Difference(
        schema=DIFFERENCE_SCHEMA,
        rows=tuple(_row(old.get(key), new.get(key)) for key in keys if not _is_same(old.get(key), new.get(key))),
        facts=_facts(before.facts, after.facts),
        findings_gone=tuple(sorted(gone - came)),
        findings_new=tuple(sorted(came - gone)),
        rows_compared=len(keys),
    )


def _sm(row: FeatureRow) -> int:
    return -1 if isinstance(row.sm, Missing) else row.sm


def _is_same(old: FeatureRow | None, new: FeatureRow | None) -> bool:
    if old is None or new is None:
        return False
    return (old.verdict, old.evidence, old.scope) == (new.verdict, new.evidence, new.scope)


def _row(old: FeatureRow | None, new: FeatureRow | None) -> RowChange:
    one = old or new
    assert one is not None  # noqa: S101 - a key comes from one of the two
    return RowChange(
        feature=one.feature,
        sm=one.sm,
        verdicts=(old.verdict if old else None, new.verdict if new else None),
        evidence=(old.evidence if old else None, new.evidence if new else None),
        why=(old.why if old else "", new.why if new else ""),
    )


def _facts(before: Facts, after: Facts) -> tuple[FactChange, ...]:
    old, new = dict(_told(before)), dict(_told(after))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
    names.sort(key=lambda name: _GROUPS.index(name.partition(".")[0]))
    return tuple(FactChange(name=name, before=old.get(name, _ABSENT), after=new.get(name, _ABSENT)) for name in names)


def _told(facts: Facts) -> Iterator[tuple[str, str]]:
    plain = msgspec.to_builtins(facts, order="deterministic")
    for group in _GROUPS:
        yield from _leaves(group, group, plain[group])


def _leaves(name: str, kind: str, value: Any) -> Iterator[tuple[str, str]]:
    """Each fact below a name, in words. kind: the name without the numbers of lists."""
    if kind in _UNTOLD:
        return
    if isinstance(value, dict) and value.get("kind") == "missing" and "reason" in value:
        yield name, f"not known: {value['reason']}"
    elif isinstance(value, dict):
        for key, one in value.items():
            if key not in _FOLLOWING or name == "flashinfer":
                yield from _leaves(f"{name}.{key}", f"{kind}.{key}", one)
    elif isinstance(value, (list, tuple)) and any(isinstance(one, dict) for one in value):
        for number, one in enumerate(value):
            known_by = one.get("path", one.get("uuid", number)) if isinstance(one, dict) else number
            yield from _leaves(f"{name}[{known_by}]", kind, one)
    else:
        yield name, ", ".join(str(one) for one in value) if isinstance(value, (list, tuple)) else str(value)
