"""Recommendations and what trying them here showed: which cells one is meant to turn, and whether it did. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from fi_doctor.diagnosis.findings import is_measured, laid_to
from fi_doctor.model import (
    ActionKind,
    Cell,
    Evidence,
    FeatureRow,
    Finding,
    KnowledgeBase,
    Missing,
    Proof,
    Proven,
    Recommendation,
    Report,
    Trial,
    Tried,
    Verdict,
)
from fi_doctor.model.assignments import Assignment, in_effect

Place = tuple[str, int | None, str]  # a probe, the SM that it was tried for, a variant

_CHANGES = (ActionKind.SET, ActionKind.RUN, ActionKind.FLAG, ActionKind.INSTALL)  # others ask for nothing to be changed
_UNTRIED = {
    ActionKind.INSTALL: "it installs a package, and nothing is installed here",
    ActionKind.FLAG: "it is a flag of the server, which no probe reads",
}


def is_change(recommendation: Recommendation) -> bool:
    """Whether it asks for something to be changed, and not only for something to be known or done elsewhere."""
    return recommendation.kind in _CHANGES


def settable(
    recommendation: Recommendation, kb: KnowledgeBase, environ: Mapping[str, str]
) -> tuple[Assignment, ...] | str:
    """The variables that it comes to for a probe's process, or why no probe can try it."""
    if recommendation.kind in _UNTRIED:
        return _UNTRIED[recommendation.kind]
    found = in_effect(recommendation.line, environ)
    if found is None:
        is_open = recommendation.kind is ActionKind.SET
        return "its value is to be chosen first" if is_open else "it does more than set variables"
    foreign = [one.name for one in found if _is_of_a_server(one.name, kb)]
    if foreign:
        return f"{', '.join(foreign)} is vLLM's, and no probe reads it"
    if not any(environ.get(one.name) != one.value for one in found):
        return "that is how it is set already"
    return found


def meant(
    recommendation: Recommendation, kb: KnowledgeBase, rows: Iterable[FeatureRow], findings: Iterable[Finding]
) -> list[tuple[FeatureRow, Cell]]:
    """The cells that do not work and that a finding which asks for it, or its own row, lays to what it changes."""
    rules = {rule.id: rule for rule in kb.rules}
    asking = [(one, rules[one.id]) for one in findings if one.id in recommendation.findings and one.id in rules]
    return [
        (row, cell)
        for row in rows
        for cell in row.cells
        if cell.verdict is not Verdict.WORKS
        and not _is_built(cell)
        and (row.feature in recommendation.features or any(laid_to(rule, one, row, cell) for one, rule in asking))
    ]


def is_measured_failure(cell: Cell) -> bool:
    """Whether it was tried and failed; what was only foretold, or left out for want of a tool, was not."""
    return cell.verdict.is_failure and is_measured(cell.verdict, cell.evidence)


def place(cell: Cell, sm: int | Missing) -> Place:
    """What tells a cell from all others."""
    return cell.probe, None if isinstance(sm, Missing) else sm, cell.variant


def trial(row: FeatureRow, before: Cell, after: Cell, before_s: float, after_s: float) -> Trial:
    """One cell before and after."""
    return Trial(
        feature=row.feature,
        sm=row.sm,
        probe=before.probe,
        variant=before.variant,
        before=_tried(before, before_s),
        after=_tried(after, after_s),
        turned=has_turned(before, after),
    )


def has_turned(before: Cell, after: Cell) -> bool:
    """Whether it works now, or, where it failed in its build and nothing is run here, is built now."""
    if after.verdict is Verdict.WORKS:
        return True
    return before.evidence in (Evidence.BUILT, Evidence.NONE, Evidence.PREDICTED) and _is_built(after)


def conclude(trials: Sequence[Trial], seconds: float) -> Proof:
    """The answer that these trials give; a trial that came to no verdict proves nothing against the change."""
    turned = [one for one in trials if one.turned]
    unknown = [one for one in trials if not one.turned and one.after.verdict is Verdict.UNKNOWN]
    if turned:
        result = Proven.TURNED if len(turned) == len(trials) else Proven.IN_PART
        return Proof(result=result, trials=tuple(trials), seconds=seconds)
    if unknown or not trials:
        why = unknown[0].after.why if unknown else "with it nothing could be tried either"
        return Proof(result=Proven.NOT_PROVEN, why=why, trials=tuple(trials), seconds=seconds)
    return Proof(result=Proven.DID_NOT_HELP, trials=tuple(trials), seconds=seconds)


def with_proofs(report: Report, proofs: Mapping[str, Proof], disproved: Iterable[Recommendation]) -> Report:
    """The report with what trying showed, by line; what did not help stands apart from what is recommended."""
    refuted = tuple(disproved)
    lines = {one.line for one in refuted}
    kept = tuple(
        replace(one, proof=proofs.get(one.line, one.proof)) for one in report.recommendations if one.line not in lines
    )
    return replace(report, recommendations=kept, disproved=refuted)


def as_recorded(report: Report, recorded: Report) -> Report:
    """A report that was judged anew, with what trying had shown when it was recorded."""
    proofs = {one.line: one.proof for one in recorded.recommendations if one.proof is not None}
    return with_proofs(report, proofs, recorded.disproved)


def _tried(cell: Cell, seconds: float) -> Tried:
    return Tried(verdict=cell.verdict, evidence=cell.evidence, why=cell.why, seconds=round(seconds, 1))


def _is_built(cell: Cell) -> bool:
    """Whether its module was compiled, as far as can be seen where nothing is run."""
    return cell.verdict is Verdict.UNKNOWN and (cell.evidence is Evidence.BUILT or cell.why.startswith("it compiled"))


def _is_of_a_server(name: str, kb: KnowledgeBase) -> bool:
    owners = {setting.owner for setting in kb.settings if setting.name == name}
    return owners <= {"vllm"} if owners else name.startswith(("VLLM_", "SGLANG_"))
