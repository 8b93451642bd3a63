"""Advice: of what would mend the findings, that which the installed versions read, ready to paste."""

from __future__ import annotations

from fi_doctor import conditions
from fi_doctor.conditions import View
from fi_doctor.conditions.ranges import version_in
from fi_doctor.diagnosis.findings import UNEXPLAINED_FAILURE, UPSTREAM, filled_line
from fi_doctor.model import (
    Action,
    ActionKind,
    Facts,
    Finding,
    KnowledgeBase,
    Missing,
    Outcome,
    Package,
    Recommendation,
    Rule,
    Setting,
    Severity,
)

# What changes least comes first: a variable, a flag, a file of a cache, a package, and at last work for somebody else.
_ORDER = (
    ActionKind.SET,
    ActionKind.FLAG,
    ActionKind.RUN,
    ActionKind.INSTALL,
    ActionKind.NOTE,
    ActionKind.REPORT,
)


def advise(
    kb: KnowledgeBase,
    facts: Facts,
    outcomes: tuple[Outcome, ...],
    findings: tuple[Finding, ...],
) -> tuple[Recommendation, ...]:
    """For each finding the first of its fixes that applies here; equal ones are merged and name all their findings."""
    view = View(facts, outcomes)
    rules = {rule.id: rule for rule in kb.rules}
    asked: dict[tuple[ActionKind, str], tuple[str, list[str]]] = {}
    for finding in findings:
        chosen = _chosen(finding, rules.get(finding.id), view, kb.settings)
        if chosen is not None:
            kind, line, why = chosen
            asked.setdefault((kind, line), (why, []))[1].append(finding.id)
    recommended = (
        Recommendation(kind=kind, line=line, why=why, findings=tuple(dict.fromkeys(ids)))
        for (kind, line), (why, ids) in asked.items()
    )
    return tuple(sorted(recommended, key=lambda one: (_ORDER.index(one.kind), one.findings, one.line)))


def is_read(name: str, facts: Facts, settings: tuple[Setting, ...]) -> bool:
    """Whether an installed package reads this setting in its installed version."""
    return any(setting.name == name and _owner_reads(setting, facts) for setting in settings)


def _chosen(
    finding: Finding, rule: Rule | None, view: View, settings: tuple[Setting, ...]
) -> tuple[ActionKind, str, str] | None:
    if finding.id == UNEXPLAINED_FAILURE:
        line = f"{UPSTREAM}: the script that `{finding.fix[0]}` prints, and fi-doctor report --yaml"
        return ActionKind.REPORT, line, "no known problem explains the failure"
    if rule is None or finding.severity is Severity.INFO:
        return None
    for action in rule.fix:
        if _applies(action, view, settings):
            why = conditions.fill(action.why, view) if action.why else finding.title
            return action.kind, filled_line(action, view), why
    return None


def _applies(action: Action, view: View, settings: tuple[Setting, ...]) -> bool:
    if conditions.unknowns(action.line, view):
        return False
    return not action.setting or is_read(action.setting, view.facts, settings)


def _owner_reads(setting: Setting, facts: Facts) -> bool:
    package = facts.packages.get(setting.owner)
    if not isinstance(package, Package) or isinstance(package.version, Missing):
        return False
    return version_in(package.version, setting.read_by) is True
