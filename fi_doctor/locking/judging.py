"""From a lock to the parts of a report, and from a report to the parts of a lock. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor.locking.model import Key, Lock, LockedRow, key_of
from fi_doctor.model import (
    COUNTS,
    Depth,
    Evidence,
    Facts,
    FeatureRow,
    Missing,
    Outcome,
    PlannedProbe,
    Scope,
    Verdict,
    selects,
)
from fi_doctor.model.phrases import NOT_LOCKED


class Standing(NamedTuple):
    """Which rows of a lock still hold, and of each other one why not."""

    valid: frozenset[Key]
    invalid: dict[Key, str]

    def without(self, reasons: Mapping[Key, str]) -> Standing:
        """The same, with further rows that do not hold."""
        return Standing(self.valid - reasons.keys(), {**self.invalid, **reasons})


def kept(lock: Lock, valid: AbstractSet[Key]) -> tuple[Outcome, ...]:
    """The outcomes of these rows."""
    return tuple(outcome for outcome in lock.outcomes if key_of(outcome.feature, outcome.sm) in valid)


def with_reasons(
    planned: Iterable[PlannedProbe], standing: Standing, measured: AbstractSet[Key] = frozenset()
) -> tuple[PlannedProbe, ...]:
    """The plan, in which nothing is tried but what is locked or measured now; the others say why."""
    found = []
    for probe in planned:
        key = key_of(probe.spec.feature, probe.sm)
        if key in standing.valid or key in measured or not probe.is_tried:
            found.append(probe)
            continue
        found.append(replace(probe, depth=Depth.STATIC, skip=standing.invalid.get(key, NOT_LOCKED)))
    return tuple(found)


def judged_otherwise(lock: Lock, standing: Standing, rows: Iterable[FeatureRow], version: str) -> dict[Key, str]:
    """Rows that hold by their inputs, and that this fi-doctor makes something else of than the one that locked them."""
    now = {key_of(row.feature, row.sm): row for row in rows}
    found = {}
    for row in lock.rows:
        today = now.get(row.key)
        if row.key not in standing.valid or (today is not None and _judgement(today) == _judgement(row)):
            continue
        what = "this fi-doctor has no such row" if today is None else f"its outcome gives {today.verdict} now"
        found[row.key] = f"{what}: locked by fi-doctor {lock.doctor.version}, judged by {version}"
    return found


def without_import(standing: Standing, rows: Iterable[FeatureRow]) -> dict[Key, str]:
    """The rows that hold by themselves, where an import that all need does not hold and is not known to work now."""
    broken = [
        row
        for row in rows
        if row.feature.startswith("import.")
        and row.verdict is not Verdict.WORKS
        and key_of(row.feature, row.sm) in standing.invalid
    ]
    if not broken:
        return {}
    is_measured = broken[0].evidence.rank >= Evidence.BUILT.rank
    why = f"{broken[0].feature} {'does not work' if is_measured else 'may not work'} any more"
    return {key: why for key in standing.valid if not key.feature.startswith("import.")}


def days(lock: Lock, standing: Standing) -> dict[tuple[str, int | None], str]:
    """The rows that hold, each with the day of its measurement."""
    return {row.key: row.measured[:10] for row in lock.rows if row.key in standing.valid}


def unpredicted(standing: Standing, rows: Iterable[FeatureRow]) -> tuple[FeatureRow, ...]:
    """The rows; of those that were measured once and do not hold, what a rule foretells is not the answer."""
    found = []
    for row in rows:
        why = standing.invalid.get(key_of(row.feature, row.sm), "")
        if why and row.evidence is Evidence.PREDICTED:
            said = {"verdict": Verdict.UNKNOWN, "evidence": Evidence.NONE, "why": why}
            cells = (replace(cell, **said) if cell.evidence is Evidence.PREDICTED else cell for cell in row.cells)
            found.append(replace(row, **said, cells=tuple(cells)))
        else:
            found.append(row)
    return tuple(found)


def lost(
    lock: Lock, standing: Standing, rows: Iterable[FeatureRow], selected: tuple[str, ...]
) -> tuple[FeatureRow, ...]:
    """Rows of the lock that nothing on this machine or in this version stands for: unknown, and why."""
    there = {key_of(row.feature, row.sm) for row in rows}
    return tuple(
        _unknown(row, standing.invalid.get(row.key, NOT_LOCKED))
        for row in lock.rows
        if row.key not in there and selects(selected, row.feature)
    )


def missed(lock: Lock, standing: Standing, rows: Iterable[FeatureRow]) -> tuple[FeatureRow, ...]:
    """Rows that worked when they were locked, that vLLM calls, and of which nothing is known now."""
    worked = {row.key for row in lock.rows if row.verdict is Verdict.WORKS}
    return tuple(
        row
        for row in rows
        if row.vllm_calls
        and row.verdict is Verdict.UNKNOWN
        and key_of(row.feature, row.sm) in worked & standing.invalid.keys()
    )


def stripped(outcome: Outcome) -> Outcome:
    """What a verdict needs of an outcome: no output, tracebacks, times and paths, which differ from run to run."""
    cells = tuple(
        replace(cell, traceback="", seconds=0.0, measurements=_told(cell.measurements)) for cell in outcome.cells
    )
    return replace(outcome, cells=cells, seconds={}, output="", reproduce="")


def machine_differs(recorded: Facts, now: Facts) -> str:
    """In which of what everything rests on a report and this machine differ, in words; "" where they agree."""
    pairs = {
        "Python": (recorded.interpreter.version, now.interpreter.version),
        **{
            name: (_version(recorded, name), _version(now, name))
            for name in ("torch", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "vllm")
        },
        "driver": (_driver(recorded), _driver(now)),
        "GPUs": (_sms(recorded), _sms(now)),
        "nvcc": (_nvcc(recorded), _nvcc(now)),
    }
    return ", ".join(f"{name} {then} there, {here} here" for name, (then, here) in pairs.items() if then != here)


def _told(measurements: dict[str, float | int | str | bool]) -> dict[str, float | int | str | bool]:
    """Those that a verdict rests on or speaks of: what was compared or refused, which tactics were compiled."""
    named = (*COUNTS, "answer", "refusal", "tactics")
    return {name: value for name, value in measurements.items() if name in named}


def _judgement(row: FeatureRow | LockedRow) -> tuple[Verdict, Evidence, Scope]:
    return row.verdict, row.evidence, row.scope


def _unknown(row: LockedRow, why: str) -> FeatureRow:
    return FeatureRow(
        feature=row.feature,
        sm=row.sm,
        verdict=Verdict.UNKNOWN,
        evidence=Evidence.NONE,
        scope=Scope.FULL,
        why=why,
        needs_gpu=not isinstance(row.sm, Missing),
        vllm="not known here",
        cells=(),
    )


def _version(facts: Facts, name: str) -> str:
    found = facts.packages.get(name)
    version = None if found is None or isinstance(found, Missing) else found.version
    return version if isinstance(version, str) else "none"


def _driver(facts: Facts) -> str:
    return "none" if isinstance(facts.gpus.driver, Missing) else facts.gpus.driver.version


def _sms(facts: Facts) -> str:
    gpus = () if isinstance(facts.gpus.gpus, Missing) else facts.gpus.gpus
    return ", ".join(sorted({f"SM{gpu.sm}" for gpu in gpus if not isinstance(gpu.cuda_index, Missing)})) or "none"


def _nvcc(facts: Facts) -> str:
    jit = facts.toolkit.jit
    compiler = jit if isinstance(jit, Missing) else jit.compiler
    build = compiler if isinstance(compiler, Missing) else compiler.build
    return build if isinstance(build, str) else "none"
