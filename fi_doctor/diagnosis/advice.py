"""Advice: of what would mend the findings and serve the rows, that which the installed versions read."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from fi_doctor import conditions
from fi_doctor.conditions import View
from fi_doctor.diagnosis import called, given
from fi_doctor.diagnosis.findings import UNEXPLAINED_FAILURE, addressee, filled_line, report_command
from fi_doctor.diagnosis.reads import is_awaited, is_read, read_in
from fi_doctor.diagnosis.uses import Asked, asked_by_rows
from fi_doctor.model import (
    Action,
    ActionKind,
    Facts,
    FeatureRow,
    Finding,
    KnowledgeBase,
    Missing,
    Outcome,
    Package,
    Recommendation,
    Report,
    Rule,
    Setting,
    Severity,
)
from fi_doctor.model.upgrade import Upgrade

# What changes least comes first: a variable, a flag, a file of a cache, a package, and at last work for somebody else.
_ORDER = (
    ActionKind.SET,
    ActionKind.FLAG,
    ActionKind.RUN,
    ActionKind.INSTALL,
    ActionKind.NOTE,
    ActionKind.REPORT,
)


def advise(  # noqa: PLR0913 - what is known, what was judged, what was tried
    kb: KnowledgeBase,
    facts: Facts,
    outcomes: tuple[Outcome, ...],
    rows: tuple[FeatureRow, ...],
    findings: tuple[Finding, ...],
    *,
    refuted: frozenset[str] = frozenset(),
) -> tuple[Recommendation, ...]:
    """For each finding the first of its fixes that applies here, then what the rows ask for; equal lines are merged.

    What turns on something that works and is off is optional, and comes last.
    refuted: lines that were tried here and did not help; the next fix is given in their place.
    """
    view = View(facts, outcomes)
    rules = {rule.id: rule for rule in kb.rules}
    asked = [one for finding in findings if (one := _chosen(finding, rules.get(finding.id), view, kb, refuted))]
    held = frozenset(finding.id for finding in findings)
    for server in called.servers(facts):
        asked += asked_by_rows(kb, view, rows, server, held)
    recommended = (
        Recommendation(
            kind=one.kind,
            line=one.line,
            why=one.why,
            findings=one.findings,
            features=one.features,
            optional=one.optional,
            holds=read_in(one.setting, facts, kb.settings, one.server or "vllm"),
        )
        for one in _merged(asked)
        if one.line not in refuted
    )
    return tuple(sorted(recommended, key=_place))


def with_upgrade(report: Report, upgrade: Upgrade | None) -> Report:
    """The report with a change of versions in place of the one that it had.

    It is recommended where it mends something that vLLM calls here.
    """
    former = report.upgrade.line if report.upgrade is not None else ""
    report = replace(report, recommendations=tuple(one for one in report.recommendations if one.line != former))
    if upgrade is None or not upgrade.is_needed:
        return replace(report, upgrade=upgrade)
    called = [one for one in upgrade.mends if one.is_called]
    names = ", ".join(one.row for one in called)
    install = Recommendation(
        kind=ActionKind.INSTALL,
        line=upgrade.line,
        why=f"no setting helps {names}, and {upgrade.package} {upgrade.version} is known to be free of the problem",
        findings=tuple(dict.fromkeys(rule for one in called for rule in one.rules)),
        features=tuple(dict.fromkeys(one.row.partition(" ")[0] for one in called)),
    )
    return replace(
        report, upgrade=upgrade, recommendations=tuple(sorted((*report.recommendations, install), key=_place))
    )


def advise_sglang(kb: KnowledgeBase, report: Report, version: str) -> tuple[Recommendation, ...]:
    """What is recommended where this release of SGLang serves, which need not be installed."""
    why = Missing(reason="it was asked for, and not looked for")
    asked = Package(name="sglang", version=version, location="", editable=False, commit=why, requires=(), shadowed=())
    facts = replace(report.facts, packages={**report.facts.packages, "sglang": asked})
    return advise(kb, facts, report.outcomes, report.features, report.findings)


def _place(one: Recommendation) -> tuple[bool, int, tuple[str, ...], tuple[str, ...], str]:
    return (one.optional, _ORDER.index(one.kind), one.findings, one.features, one.line)


def _merged(asked: Iterable[Asked]) -> list[Asked]:
    """One of each line, which names all that ask for it; the first one says why.

    What would set to one value what is needed at another is left out.
    """
    lines: dict[tuple[ActionKind, str, str], Asked] = {}
    taken: set[tuple[str, str]] = set()
    for one in sorted(asked, key=lambda each: each.optional):
        server = one.server or "vllm"
        known = lines.get((one.kind, one.line, server))
        if known is not None:
            lines[one.kind, one.line, server] = known._replace(
                findings=tuple(dict.fromkeys((*known.findings, *one.findings))),
                features=tuple(dict.fromkeys((*known.features, *one.features))),
            )
        elif not one.optional or (one.setting, server) not in taken:
            lines[one.kind, one.line, server] = one
            taken |= {(one.setting, server)} if one.setting else set()
    return list(lines.values())


def _chosen(
    finding: Finding, rule: Rule | None, view: View, kb: KnowledgeBase, refuted: frozenset[str]
) -> Asked | None:
    asked_by = (finding.id,)
    if finding.id == UNEXPLAINED_FAILURE:
        whom = addressee(kb, finding.features[0])
        line = f"{whom}: the script that `{finding.fix[0]}` prints, and {report_command(view.facts)}"
        return Asked(ActionKind.REPORT, line, "no known problem explains the failure", "", asked_by)
    if finding.severity is Severity.INFO:
        return None
    if finding.id in given.IDS:
        line = next((one for one in finding.fix if one.startswith("unset ")), "")
        return Asked(ActionKind.RUN, line, finding.title, "", asked_by) if line else None
    if rule is None:
        return None
    for action in rule.fix:
        if _applies(action, view, kb.settings) and filled_line(action, view) not in refuted:
            why = conditions.fill(action.why, view) if action.why else finding.title
            return Asked(action.kind, filled_line(action, view), why, action.setting, asked_by)
    return None


def _applies(action: Action, view: View, settings: tuple[Setting, ...]) -> bool:
    if conditions.unknowns(action.line, view):
        return False
    # What is to be set for a FlashInfer that is yet to be installed is said now, too: all lines are pasted at once.
    awaited = is_awaited(action.setting, view.facts, settings)
    return not action.setting or awaited or is_read(action.setting, view.facts, settings)
