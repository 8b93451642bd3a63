"""Which rows fail of a problem that another version is known to be free of, and that no setting helps. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor import conditions
from fi_doctor.conditions import Truth, View
from fi_doctor.diagnosis import called
from fi_doctor.diagnosis.findings import concerns, explains, is_measured
from fi_doctor.diagnosis.matrix import deciding_cells
from fi_doctor.model import (
    ActionKind,
    Evidence,
    Facts,
    FeatureRow,
    FlashInfer,
    KnowledgeBase,
    Missing,
    Outcome,
    Package,
    Recommendation,
    Report,
    Rule,
)

_HELPS = (ActionKind.SET, ActionKind.FLAG, ActionKind.RUN, ActionKind.INSTALL)


class Fault(NamedTuple):
    """A row that fails, and the known problems that all of its failures are laid to."""

    row: FeatureRow
    rules: tuple[Rule, ...]
    is_called: bool


def faults(kb: KnowledgeBase, report: Report) -> tuple[Fault, ...]:
    """The rows that fail or are foretold to fail, are wholly explained, and that no recommended setting helps.

    is_called: whether the installed vLLM calls them as the environment stands, or the model that is to be served runs
    through them; without vLLM all count.
    """
    former = report.upgrade.line if report.upgrade is not None else ""
    helping = [one for one in report.recommendations if one.kind in _HELPS and not one.optional and one.line != former]
    held = {finding.id for finding in report.findings}
    rules = [rule for rule in kb.rules if rule.id in held]
    found = (_fault(row, rules, helping, kb, report) for row in report.features if row.verdict.is_failure)
    return tuple(fault for fault in found if fault is not None)


def mended(fault: Fault, facts: Facts, kb: KnowledgeBase, outcomes: tuple[Outcome, ...]) -> bool:
    """Whether none of the problems is there in the versions that these facts name, and no other failure is foretold.

    outcomes: those that were measured before, since some problems are known by them.
    """
    foretold = [rule for rule in kb.rules if rule.predicts is not None and concerns(rule, fault.row.feature)]
    if any(conditions.holds(rule.when, View(facts)) is Truth.YES for rule in foretold):
        return False
    return all(conditions.holds(rule.when, View(facts, outcomes)) is Truth.NO for rule in fault.rules)


def with_versions(facts: Facts, versions: dict[str, str]) -> Facts:
    """The facts with these packages in these versions, and nothing else changed."""
    packages = {
        name: replace(package, version=versions[name]) if name in versions and isinstance(package, Package) else package
        for name, package in facts.packages.items()
    }
    package, version = facts.flashinfer, versions.get("flashinfer-python")
    if version and isinstance(package, FlashInfer):
        package = replace(package, version=version)
    return replace(facts, packages=packages, flashinfer=package)


def _fault(
    row: FeatureRow, rules: list[Rule], helping: list[Recommendation], kb: KnowledgeBase, report: Report
) -> Fault | None:
    facts = report.facts
    if any(row.feature in one.features for one in helping):
        return None
    feature = kb.feature(row.feature)
    use = called.vllm_use(feature, row.sm, facts) if feature is not None else None
    laid_to: dict[str, Rule] = {}
    for cell in deciding_cells(use, row.cells):
        if not cell.verdict.is_failure:
            continue
        if is_measured(cell.verdict, cell.evidence):
            of_cell = [rule for rule in rules if explains(rule, row.feature, cell)]
        else:
            of_cell = _foretelling(rules, row) if cell.evidence is Evidence.PREDICTED else []
        if not of_cell:
            return None  # of this failure nothing is known
        laid_to |= {rule.id: rule for rule in of_cell}
    if not row.cells:
        laid_to = {rule.id: rule for rule in _foretelling(rules, row)}
    helped = {name for one in helping for name in one.findings}
    left = tuple(rule for name, rule in sorted(laid_to.items()) if name not in helped)
    if not left:
        return None
    served = {name for part in report.deployed.parts for name in part.rows} if report.deployed else set()
    without_vllm = isinstance(facts.packages.get("vllm"), Missing)
    is_called = feature is None or without_vllm or called.is_called(feature, row.sm, facts, kb)
    return Fault(row, left, is_called or row.feature in served)


def _foretelling(rules: Iterable[Rule], row: FeatureRow) -> list[Rule]:
    return [
        rule for rule in rules if rule.predicts is not None and rule.predicts.is_failure and concerns(rule, row.feature)
    ]
