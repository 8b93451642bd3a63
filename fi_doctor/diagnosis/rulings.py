"""Each thing that is asked for, and whether it holds; which of them decides is the gate's business."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fi_doctor.conditions.ranges import version_in
from fi_doctor.diagnosis.findings import is_measured
from fi_doctor.model import (
    Evidence,
    Facts,
    FeatureRow,
    Finding,
    FlashInfer,
    Holds,
    JitToolkit,
    Missing,
    Requirement,
    Ruling,
    Scope,
    Severity,
    Verdict,
    selects,
)
from fi_doctor.model.phrases import short

REQUIRE = "--require"
DEFAULT = "default"
FAIL_ON = "fail-on"
LOCKED = "--locked"
_SEVERITIES = {severity.value: severity.rank for severity in Severity}


class Judged(NamedTuple):
    """A ruling, every row because of which it does not hold, and how the deciding line ends if it decides."""

    ruling: Ruling
    said: str = ""
    rows: tuple[FeatureRow, ...] = ()
    findings: tuple[Finding, ...] = ()


def no_failing_row(  # noqa: PLR0913 - what is asked, and how it is said
    rows: tuple[FeatureRow, ...],
    fail_on: tuple[str, ...],
    source: str,
    of: str,
    uncalled: str = "",
    *,
    foretold: bool = False,
) -> Judged:
    """Of the rows that are looked at none has a verdict that fails. of: what one of them is called.

    uncalled: said where vLLM calls none of those that fail. foretold: whether what is predicted counts as measured.
    """
    words = [verdict.value for verdict in Verdict if verdict.value in fail_on]
    if not words:
        return _judged("no verdict of a row fails", source, Holds.YES)
    said = f"no {of} is {' or '.join(words)}"
    bad = [row for row in rows if row.verdict.value in words]
    known = [row for row in bad if _is_known(row, foretold=foretold) or row.verdict is Verdict.UNSUPPORTED]
    if known:
        # What vLLM calls is what a reader must see first, and of that wrong numbers, which nothing else tells.
        known.sort(key=lambda row: (not row.vllm_calls, row.verdict is not Verdict.WRONG_RESULT))
        why = f"{known[0].name}: {short(known[0].why)}"
        rest = [row for row in bad if row not in known]
        note = f" ({uncalled})" if uncalled and not any(row.vllm_calls for row in bad) else ""
        return _judged(said, source, Holds.NO, why, f"{note}: {why}", rows=(*known, *rest))
    if bad:
        how = "is unknown" if bad[0].verdict is Verdict.UNKNOWN else "was not measured"
        why = f"{bad[0].name} {how}: {short(bad[0].why)}"
        return _judged(said, source, Holds.CANNOT_TELL, why, f": {why}", rows=bad)
    return _judged(said, source, Holds.YES)


def _is_known(row: FeatureRow, *, foretold: bool) -> bool:
    """Whether a row was measured, or is foretold where that counts as much."""
    is_foretold = row.verdict is not Verdict.UNKNOWN and row.evidence.rank >= Evidence.PREDICTED.rank
    return is_measured(row.verdict, row.evidence) or (foretold and is_foretold)


def is_built(row: FeatureRow) -> bool:
    """Whether a row compiled and loaded here, or was run, and does not fail."""
    return not row.verdict.is_failure and row.evidence.rank >= Evidence.BUILT.rank


def counted_of(rows: Sequence[FeatureRow]) -> list[FeatureRow]:
    """The rows of which one must be measured: those that need a GPU, or all where none does."""
    return [row for row in rows if row.needs_gpu] or list(rows)


def out_of(rows: Sequence[FeatureRow]) -> str:
    """How many rows count, in words: "58", and "58 that need a GPU" where others are among the rows."""
    counted = counted_of(rows)
    return f"{len(counted)} that need a GPU" if len(counted) < len(rows) else str(len(counted))


def something_measured(
    rows: Sequence[FeatureRow], of: str, *, asks_build: bool, foretold: bool = False, refused: tuple[str, ...] = ()
) -> Judged:
    """At least one of the rows that count was measured: nothing looked at is not good.

    of: as above.  asks_build: somebody asks that rows are built, which is then enough here too.  refused: globs of the
    rows that are required to be unsupported, which the source foretells.
    """
    said = f"at least one {of} was measured{' or built' if asks_build else ' or is foretold' if foretold else ''}"
    counted = counted_of(rows)
    if not counted:
        why = f"there is no {of}" if of != "selected row" else "no row is selected"
        return _judged(said, DEFAULT, Holds.CANNOT_TELL, why, f"; {why}" if of != "selected row" else "")
    measured = [row for row in counted if _is_known(row, foretold=foretold)]
    if foretold and refused:
        measured += [row for row in counted if row.verdict is Verdict.UNSUPPORTED and selects(refused, row.feature)]
    if measured:
        number = f"{len(measured)} of {out_of(rows)}"
        return _judged(said, DEFAULT, Holds.YES, ", ".join(filter(None, (number, _locked(measured)))))
    built = [row for row in counted if is_built(row)] if asks_build else []
    if built:
        return _judged(said, DEFAULT, Holds.YES, f"{len(built)} of {out_of(rows)} built, none measured")
    parts = ["that needs a GPU"] if counted[0].needs_gpu else []
    reason = _last_reason(counted[0])
    if foretold:  # of rows that are not looked at something may be foretold
        parts += [of.removeprefix("selected row ")] if of != "selected row" else []
        reason = f"{counted[0].name}: {reason}"
    what = f"{' '.join(('nothing', ' and '.join(parts))).strip()} was measured"
    what += " or built" if asks_build else " or is foretold" if foretold else ""
    why = f"{what}: {reason}"
    return _judged(said, DEFAULT, Holds.CANNOT_TELL, why, f"; {why}")


def required(asked: Requirement, rows: tuple[FeatureRow, ...], excused: frozenset[str]) -> Judged:
    """Every row that the glob names, on every GPU, gives at least what is asked; rows that are excused aside."""
    said = asked.words
    if not asked.source.endswith(": require") and (asked.verdict, asked.evidence) == (Verdict.WORKS, Evidence.RAN):
        said = f"{asked.feature} {asked.verdict}"
    found = [row for row in rows if fnmatch.fnmatchcase(row.feature, asked.feature)]
    if not found:
        why = f"{asked.feature} names no row"
        return _judged(said, asked.source, Holds.CANNOT_TELL, why, f"; required: {why}")
    counted = [row for row in found if row.name not in excused]
    for holds in (Holds.NO, Holds.CANNOT_TELL):
        lacking = [row for row in counted if _gives(row, asked)[0] is holds]
        if lacking:
            why = _gives(lacking[0], asked)[1]
            rest = [row for row in counted if row not in lacking and _gives(row, asked)[0] is not Holds.YES]
            return _judged(said, asked.source, holds, why, f"; required: {why}", rows=(*lacking, *rest))
    return _judged(said, asked.source, Holds.YES, "; ".join(filter(None, (_locked(counted), _unrun(counted, asked)))))


def still_known(missed: list[FeatureRow]) -> Judged:
    """Of every row that works by the lock and that vLLM calls, it is known how it stands."""
    said = "no row that was locked as working is unknown"
    if not missed:
        return _judged(said, LOCKED, Holds.YES)
    why = f"{missed[0].name} is unknown: {_last_reason(missed[0])}"
    return _judged(said, LOCKED, Holds.CANNOT_TELL, why, f"; {why}", rows=missed)


def version(facts: Facts, name: str, wanted: str, source: str) -> Judged:
    """What is installed, or is there, has a version in the range."""
    said = f"{name} {wanted}"
    found = read_version(facts, name)
    if isinstance(found, Missing):
        why = f"{name}: {short(found.reason)}"
        holds = Holds.NO if found.absent else Holds.CANNOT_TELL
        return _judged(said, source, holds, why, f"; version: {why}")
    held = version_in(found, wanted)
    if held is None:
        why = f"{name} says {short(found)}, which is no version that can be compared"
        return _judged(said, source, Holds.CANNOT_TELL, why, f"; version: {why}")
    why = f"{name} is {found}, {wanted} is asked for"
    return _judged(said, source, Holds.YES if held else Holds.NO, why, f"; version: {why}")


def no_failing_finding(found: tuple[Finding, ...], fail_on: tuple[str, ...], source: str) -> Judged | None:
    """No finding is as grave as one of the severities that fail; None where none of those is named."""
    ranks = [_SEVERITIES[word] for word in fail_on if word in _SEVERITIES]
    if not ranks:
        return None
    named = next(word for word, rank in _SEVERITIES.items() if rank == min(ranks))
    bad = [finding for finding in found if finding.severity.rank >= min(ranks)]
    said = f"no finding is {named}{'' if named == Severity.ERROR.value else ' or graver'}"
    if not bad:
        return _judged(said, source, Holds.YES)
    why = f"{bad[0].id} ({bad[0].severity}): {short(bad[0].title)}"
    return _judged(said, source, Holds.NO, why, f"; finding: {why}", findings=bad)


def read_version(facts: Facts, name: str) -> str | Missing:
    """The version of a package, the driver, nvcc, CUDA as FlashInfer's gates see it, or Python.

    Missing is absent where it was looked for and is not installed.
    """
    match name:
        case "driver":
            driver = facts.gpus.driver
            return driver if isinstance(driver, Missing) else driver.version
        case "nvcc":
            jit = facts.toolkit.jit
            nvcc = jit.nvcc if isinstance(jit, JitToolkit) else jit
            return nvcc if isinstance(nvcc, Missing) else nvcc.version
        case "cuda":
            return facts.toolkit.gate_version
        case "python":
            return facts.interpreter.version
        case _:
            return _package(facts, name)


def _package(facts: Facts, name: str) -> str | Missing:
    package = facts.packages.get(name, Missing(reason="nothing is known of it"))
    if not isinstance(package, Missing):
        return package.version
    if name == "flashinfer-python" and isinstance(facts.flashinfer, FlashInfer):
        return facts.flashinfer.version  # a checkout on PYTHONPATH has no metadata
    return Missing(reason=package.reason, absent=name in facts.packages)


def _gives(row: FeatureRow, asked: Requirement) -> tuple[Holds, str]:
    """Whether a row gives what is asked, and what there is to say of it where it does not."""
    if asked.asks_build:
        return _is_built(row, asked)
    measured = _is_known(row, foretold=asked.evidence is Evidence.PREDICTED)
    if row.verdict is not asked.verdict:
        known = measured or row.verdict is Verdict.UNSUPPORTED
        return (Holds.NO if known else Holds.CANNOT_TELL), f"{row.name} is {row.verdict}: {short(row.why)}"
    if row.verdict is Verdict.WORKS and not measured:
        return Holds.CANNOT_TELL, f"{row.name} is {row.verdict}: {short(row.why)}"
    if row.evidence.rank < asked.evidence.rank:
        how = f"{row.evidence} (locked {row.locked})" if row.locked else row.evidence
        return Holds.CANNOT_TELL, f"{row.name} {row.verdict} by {how}, {asked.evidence} is asked for"
    if asked.scope is Scope.FULL and row.scope is not Scope.FULL and row.evidence is not Evidence.DECLARED:
        return Holds.CANNOT_TELL, f"{row.name} {row.verdict} for a {row.scope}, full is asked for: {short(row.why)}"
    return Holds.YES, ""


def _is_built(row: FeatureRow, asked: Requirement) -> tuple[Holds, str]:
    """The same where all that is asked is that it compiled and loaded: whether it works is not looked at."""
    if row.verdict.is_failure or row.verdict is Verdict.UNSUPPORTED:
        is_known = is_measured(row.verdict, row.evidence) or row.verdict is Verdict.UNSUPPORTED
        return (Holds.NO if is_known else Holds.CANNOT_TELL), f"{row.name} is {row.verdict}: {short(row.why)}"
    if not is_built(row):
        return Holds.CANNOT_TELL, f"{row.name} was not built: {_last_reason(row)}"
    if asked.scope is Scope.FULL and row.scope is not Scope.FULL:
        return Holds.CANNOT_TELL, f"{row.name} was built for a {row.scope}, full is asked for: {short(row.why)}"
    return Holds.YES, ""


def _last_reason(row: FeatureRow) -> str:
    """Why it was not run, where it is said how far it came before."""
    return short(row.why.rpartition("; not run: ")[2])


def _locked(rows: list[FeatureRow]) -> str:
    """Which of the rows were not measured now, in words: "locked 2026-11-28"; "" where all of them were."""
    locked = [row for row in rows if row.locked]
    if not locked:
        return ""
    number = "" if len(locked) == len(rows) else f"{len(locked)} of {len(rows)} rows "
    return f"{number}locked {', '.join(sorted({row.locked for row in locked}))}"


def _unrun(rows: list[FeatureRow], asked: Requirement) -> str:
    """The variants that a row stands without, since they do not decide it; "" where there are none."""
    least = Evidence.BUILT if asked.asks_build else Evidence.RAN
    told: list[str] = []
    for row in rows:
        # Of one that is not for this machine no more can be known.
        open_ones = [cell for cell in row.cells if cell.verdict is not Verdict.UNSUPPORTED]
        left = [cell.variant for cell in open_ones if cell.variant and cell.evidence.rank < least.rank]
        told += [f"{', '.join(left)} of {row.name}"] if 0 < len(left) < len(open_ones) else []
    return f"{'not built' if asked.asks_build else 'not run'}, and not deciding: {'; '.join(told)}" if told else ""


def _judged(  # noqa: PLR0913 - the parts of a ruling
    said: str,
    source: str,
    holds: Holds,
    why: str = "",
    end: str = "",
    *,
    rows: Iterable[FeatureRow] = (),
    findings: Iterable[Finding] = (),
) -> Judged:
    rows, findings = tuple(rows), tuple(findings)
    ruling = Ruling(
        requirement=said,
        source=source,
        holds=holds,
        why=why,
        rows=tuple(row.name for row in rows),
        findings=tuple(finding.id for finding in findings),
    )
    return Judged(ruling, end, rows, findings)
