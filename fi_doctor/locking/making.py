"""A lock from a report: its measured rows, what they rest on, and why the others are not in it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from fi_doctor.locking.attribution import Attribution
from fi_doctor.locking.digests import Digests
from fi_doctor.locking.inputs import Inputs
from fi_doctor.locking.judging import stripped
from fi_doctor.locking.model import ABSENT, LOCK_SCHEMA, UNREADABLE, Key, Lock, LockedRow, key_of
from fi_doctor.locking.needs import is_import
from fi_doctor.model import FeatureRow, Outcome, Report

_CLOCK_NS = 2_000_000_000  # a report's time is given in seconds


def make(  # noqa: PLR0913 - the whole of what it rests on
    report: Report,
    *,
    proved: Mapping[Key, tuple[str, ...]],
    attribution: Attribution,
    inputs: Inputs,
    digests: Digests,
    loads: Mapping[str, tuple[str, ...]],
    doubts: Mapping[Key, str],
) -> Lock:
    """The lock of a report that was made on this machine.

    proved: the rows that were measured, each with the variants that decide it. loads: what the imports load.
    doubts: rows that are not what they were when they were measured, and why.
    A row is left out when one of its files was written after the report was made: it may not be what was measured.
    """
    maker = _Maker(report, inputs, digests, loads)
    # The imports first: what they load is what the others rest on where they are not in the lock.
    for row in sorted(report.features, key=lambda one: (not is_import(one.feature), *_place(one))):
        key = key_of(row.feature, row.sm)
        if key in doubts and key in proved:
            maker.left_out[str(key)] = doubts[key]
            continue
        if key not in proved:
            maker.left_out[str(key)] = f"{row.verdict}, {row.evidence}: {row.why}"
            continue
        outcomes = [one for one in report.outcomes if _is_of(one, key)]
        maker.take(row, proved[key], outcomes, attribution)
    return maker.lock()


class _Maker:
    def __init__(self, report: Report, inputs: Inputs, digests: Digests, loads: Mapping[str, tuple[str, ...]]) -> None:
        self.left_out: dict[str, str] = {}
        self._report = report
        self._inputs = inputs
        self._loads = loads
        self._digests = digests
        made = dt.datetime.fromisoformat(report.created.replace("Z", "+00:00"))
        self._made_ns = int(made.timestamp() * 1e9) + _CLOCK_NS
        self._values: dict[str, tuple[str, int]] = {}  # name -> value and the latest mtime of its files
        self._rows: list[LockedRow] = []
        self._outcomes: list[Outcome] = []
        self._groups: dict[str, tuple[str, ...]] = {}

    def take(
        self, row: FeatureRow, deciding: tuple[str, ...], outcomes: list[Outcome], attribution: Attribution
    ) -> None:
        """Put a row into the lock, or say why not."""
        taken = frozenset(one.feature for one in self._rows if is_import(one.feature))
        own, groups = attribution.of(row, outcomes, taken=taken)
        names = {*own, *(name for group in groups for name in attribution.groups[group])}
        if why := self._doubt(names):
            self.left_out[str(key_of(row.feature, row.sm))] = why
            return
        self._groups.update({group: attribution.groups[group] for group in groups})
        self._outcomes += (one for one in map(stripped, outcomes) if one not in self._outcomes)
        self._rows.append(
            LockedRow(
                feature=row.feature,
                sm=row.sm,
                verdict=row.verdict,
                evidence=row.evidence,
                scope=row.scope,
                why=row.without_lock().why,
                measured=row.locked or self._report.created,
                deciding=deciding,
                inputs=own,
                groups=groups,
            )
        )

    def lock(self) -> Lock:
        used = {name for row in self._rows for name in row.inputs}
        used.update(name for names in self._groups.values() for name in names)
        return Lock(
            schema=LOCK_SCHEMA,
            doctor=self._report.doctor,
            rows=tuple(sorted(self._rows, key=_place)),
            inputs={name: self._values[name][0] for name in sorted(used)},
            groups=dict(sorted(self._groups.items())),
            loads={name: words for name, words in sorted(self._loads.items()) if f"loads:{name}" in used},
            outcomes=tuple(sorted(self._outcomes, key=lambda one: (one.feature, one.probe, str(one.sm)))),
            left_out=dict(sorted(self.left_out.items())),
        )

    def _doubt(self, names: set[str]) -> str:
        """Why a measurement may be of something else than what is here now; "" where nothing says so."""
        for name in sorted(names):
            value, written_ns = self._value(name)
            if name.startswith("gpu:") and value == ABSENT:
                return f"{name.removeprefix('gpu:')} is not what NVML lists here, so that a change could not be seen"
            if written_ns > self._made_ns:
                return f"{name} was written after it was measured"
            if value.startswith(UNREADABLE):
                return f"{name} is {value}, so that a change could not be seen"
        return ""

    def _value(self, name: str) -> tuple[str, int]:
        if name not in self._values:
            self._digests.newest_ns = 0
            value = self._inputs.value(name)
            self._values[name] = value, self._digests.newest_ns
        return self._values[name]


def _is_of(outcome: Outcome, key: Key) -> bool:
    """Whether a row is made of this outcome; one without a compute capability belongs to every row of its feature."""
    there = key_of(outcome.feature, outcome.sm)
    return there.feature == key.feature and (there.sm in (key.sm, None) or key.sm is None)


def _place(row: FeatureRow | LockedRow) -> tuple[str, int]:
    return row.feature, row.sm if isinstance(row.sm, int) else -1
