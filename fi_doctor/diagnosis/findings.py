"""Findings: the rules that hold here, and the contradictions between what was expected and what was measured."""

from __future__ import annotations

import fnmatch
import shlex
from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from fi_doctor import conditions
from fi_doctor.conditions import Truth, View, patterns, toolkits
from fi_doctor.diagnosis import called, misfits
from fi_doctor.model import (
    Action,
    ActionKind,
    Cell,
    Evidence,
    Facts,
    FeatureRow,
    Finding,
    KnowledgeBase,
    Outcome,
    Rule,
    Severity,
    Verdict,
    command,
    selects,
)

_NAMES_TOOLKIT = "export CUDA_HOME="
MEASURED_BEATS_KNOWN = "measured-beats-known"
UNEXPLAINED_FAILURE = "unexplained-failure"
UPSTREAM = "https://github.com/flashinfer-ai/flashinfer/issues"
MAKERS = "the makers of the package that brought the probe"  # of a row that is not ours


def find(kb: KnowledgeBase, facts: Facts, outcomes: tuple[Outcome, ...]) -> tuple[Finding, ...]:
    """The rules that surely hold, and calls of vLLM that do not fit, the gravest first."""
    view = View(facts, outcomes)
    rows = tuple(feature.id for feature in kb.features)
    held = (rule for rule in kb.rules if conditions.holds(rule.when, view) is Truth.YES)
    known = (_as_called(_finding(rule, view, rows), rule, kb, view) for rule in held)
    return _sorted((*known, *misfits.find(kb, facts, outcomes)))


def with_contradictions(
    kb: KnowledgeBase, facts: Facts, rows: tuple[FeatureRow, ...], found: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """The findings, with those added in which the verdicts contradict or exceed what is known."""
    rules = {rule.id: rule for rule in kb.rules}
    extra = [_beaten(rules[finding.id], facts, rows) for finding in found if finding.id in rules]
    beaten = [finding for finding in extra if finding is not None]
    return _sorted((*found, *beaten, *_unexplained(kb, facts, rows, found)))


def addressee(kb: KnowledgeBase, feature: str) -> str:
    """Who is told of a failure that nothing explains."""
    return UPSTREAM if any(one.id == feature for one in kb.features) else MAKERS


def of_selected(found: Iterable[Finding], globs: tuple[str, ...]) -> tuple[Finding, ...]:
    """The findings about the machine, and about rows that are selected; of those about others nobody asks."""
    return tuple(one for one in found if not one.features or any(selects(globs, name) for name in one.features))


def explains(rule: Rule, feature: str, cell: Cell) -> bool:
    """Whether a failure is to be laid to a rule that holds."""
    return concerns(rule, feature) and _is_its(rule, rule.severity, cell)


def is_measured(verdict: Verdict, evidence: Evidence) -> bool:
    """Whether a verdict was found by trying here: a success by running, a failure by compiling or running."""
    if verdict is Verdict.WORKS:
        return evidence.rank >= Evidence.RAN.rank
    return verdict.is_failure and evidence.rank >= Evidence.BUILT.rank


def _finding(rule: Rule, view: View, rows: tuple[str, ...]) -> Finding:
    lines = [filled_line(action, view) for action in rule.fix if not conditions.unknowns(action.line, view)]
    return Finding(
        id=rule.id,
        cause=rule.cause,
        severity=rule.severity,
        title=conditions.fill(rule.title, view),
        why=conditions.fill(rule.why, view),
        fix=tuple(lines),
        features=tuple(row for row in rows if concerns(rule, row)),
        source=rule.source,
    )


def _as_called(finding: Finding, rule: Rule, kb: KnowledgeBase, view: View) -> Finding:
    """The finding, as an info where it speaks of what a server does only when it is told to."""
    if not rule.when_called:
        return finding
    features = [feature for feature in kb.features if concerns(rule, feature.id)]
    sms = {outcome.sm for outcome in view.outcomes if concerns(rule, outcome.feature)}
    if any(called.is_called(feature, sm, view.facts, kb) for feature in features for sm in sms):
        return finding
    title = f"{finding.title}; only when turned on ({called.caller(kb, view.facts)})"
    return replace(finding, severity=Severity.INFO, title=title)


def laid_to(rule: Rule, finding: Finding, row: FeatureRow, cell: Cell) -> bool:
    """Whether what a cell shows is laid to a finding of this rule."""
    return row.feature in finding.features and _is_its(rule, finding.severity, cell)


def _is_its(rule: Rule, severity: Severity, cell: Cell) -> bool:
    """Whether a cell's failure can be that of a rule, which is grave, or foretells failures, or says which are its own.

    What fails in other words than the rule's has another cause, which must not be hidden.
    """
    is_telling = severity is Severity.ERROR or rule.predicts is not None or bool(rule.explains)
    said = f"{cell.variant}: {cell.why}" if cell.variant else cell.why
    if not is_telling or patterns.search(rule.explains, said) is None:
        return False
    return not rule.explains_not or patterns.search(rule.explains_not, said) is None


def filled_line(action: Action, view: View) -> str:
    """The line of an action; what is filled into a command is quoted, so that it can be pasted.

    A toolkit that is proposed says what it lacks itself: nobody is to find that out by the next failure.
    """
    is_command = action.kind in (ActionKind.SET, ActionKind.FLAG, ActionKind.RUN, ActionKind.INSTALL)
    line = conditions.fill(action.line, view, quote=is_command)
    if line.startswith(_NAMES_TOOLKIT):
        [home, *_] = shlex.split(line.removeprefix(_NAMES_TOOLKIT), comments=True)
        lacks = toolkits.lacks_told(home, view.facts)
        return f"{line}  # {lacks}" if lacks else line
    if action.kind is ActionKind.RUN and line.startswith("fi-doctor "):
        _, name, *rest = line.split(" ", 2)
        line = " ".join([command.line(view.facts.interpreter, name), *rest])
    return line


def concerns(rule: Rule, feature: str) -> bool:
    """Whether a rule is about this feature."""
    return any(fnmatch.fnmatchcase(feature, glob) for glob in rule.features)


def report_command(facts: Facts) -> str:
    """What prints the report on this interpreter, to attach it somewhere."""
    return command.line(facts.interpreter, "report", "--yaml")


def _beaten(rule: Rule, facts: Facts, rows: tuple[FeatureRow, ...]) -> Finding | None:
    """What to say of a rule whose prediction the measurements contradict."""
    if rule.predicts is None:
        return None
    working = [
        row
        for row in rows
        if concerns(rule, row.feature) and row.verdict is Verdict.WORKS and is_measured(row.verdict, row.evidence)
    ]
    if not working:
        return None
    named = ", ".join(f"{row.name} (locked {row.locked})" if row.locked else row.name for row in working)
    return Finding(
        id=MEASURED_BEATS_KNOWN,
        cause="contradiction",
        severity=Severity.WARNING,
        title=f"{rule.id} predicts {rule.predicts}, measured here: works",
        why=f"Measured: {named}. The measurement decides; the rule does not fit this machine.",
        fix=(f"Report it to fi-doctor with the output of {report_command(facts)}",),
        features=tuple(dict.fromkeys(row.feature for row in working)),
        source=rule.source,
    )


def _unexplained(
    kb: KnowledgeBase, facts: Facts, rows: tuple[FeatureRow, ...], found: tuple[Finding, ...]
) -> list[Finding]:
    """One finding for each failure that no finding explains; equal words share one."""
    rules = {rule.id: rule for rule in kb.rules}
    known = [(finding, rules[finding.id]) for finding in found if finding.id in rules]
    groups: defaultdict[str, list[tuple[FeatureRow, Cell]]] = defaultdict(list)
    for row in rows:
        bad = [cell for cell in row.cells if cell.verdict.is_failure and is_measured(cell.verdict, cell.evidence)]
        bad = [cell for cell in bad if not any(laid_to(rule, finding, row, cell) for finding, rule in known)]
        if bad:
            worst = max(bad, key=lambda cell: cell.verdict is Verdict.WRONG_RESULT)
            groups[worst.why].append((row, worst))
    return [_failure(kb, facts, why, members) for why, members in groups.items()]


def _failure(kb: KnowledgeBase, facts: Facts, why: str, members: list[tuple[FeatureRow, Cell]]) -> Finding:
    first, cell = members[0]
    whom = addressee(kb, first.feature)
    more = f" and {len(members) - 1} more" if len(members) > 1 else ""
    said = "gives wrong numbers" if cell.verdict is Verdict.WRONG_RESULT else "fails"
    return Finding(
        id=UNEXPLAINED_FAILURE,
        cause="not-known",
        severity=Severity.ERROR,
        title=f"{first.name}{more} {said if not more else 'fail'}, and no known problem explains it",
        why=why,
        fix=(
            f"fi-doctor probes show {cell.probe}",
            f"{ActionKind.REPORT}: {whom}, with that script and the output of {report_command(facts)}",
        ),
        features=tuple(dict.fromkeys(row.feature for row, _ in members)),
        source="measured here",
    )


def _sorted(found: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(found, key=lambda finding: (-finding.severity.rank, finding.id, finding.features)))
