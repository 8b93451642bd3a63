"""What is foretold of rows that nobody tried: by rules that hold, and by what rules say of releases and GPUs."""

from __future__ import annotations

from typing import NamedTuple

from fi_doctor import conditions
from fi_doctor.conditions import Truth, View
from fi_doctor.model import Ending, Facts, Finding, KnowledgeBase, Outcome, Rule, Stage, Verdict, selects


class Word(NamedTuple):
    """What one rule foretells."""

    rule: str  # its id
    verdict: Verdict
    features: tuple[str, ...]  # globs
    variants: tuple[str, ...]  # globs of the cells; none: all of them

    @property
    def why(self) -> str:
        """The reason that a cell gives."""
        return f"predicted by {self.rule}"


def by_findings(kb: KnowledgeBase, findings: tuple[Finding, ...]) -> tuple[Word, ...]:
    """What the rules foretell that were found here."""
    held = {finding.id for finding in findings}
    return tuple(Word(one.id, one.predicts, one.features, ()) for one in kb.rules if one.predicts and one.id in held)


def by_facts(kb: KnowledgeBase, facts: Facts, outcomes: tuple[Outcome, ...]) -> tuple[Word, ...]:
    """What the rules foretell by release and GPU alone, of rows that nobody tried."""
    tried = {outcome.feature for outcome in outcomes if _was_tried(outcome)}
    return tuple(word for rule in kb.rules for word in _of_facts(rule, facts, tried))


def about(words: tuple[Word, ...], feature: str, variant: str | None) -> Word | None:
    """The first word about a variant of a row. None as variant: about the whole row."""
    ours = (word for word in words if selects(word.features, feature) and word.features)
    return next((word for word in ours if not word.variants or _is_of(word, variant)), None)


def _is_of(word: Word, variant: str | None) -> bool:
    return variant is not None and selects(word.variants, variant)


def _of_facts(rule: Rule, facts: Facts, tried: set[str]) -> list[Word]:
    found = []
    for one in rule.foretells:
        features = one.features or rule.features
        is_new = not any(selects(features, feature) for feature in tried)
        if is_new and conditions.holds(one.when, View(facts)) is Truth.YES:
            found.append(Word(rule.id, one.verdict, features, one.variants))
    return found


def _was_tried(outcome: Outcome) -> bool:
    """Whether a probe came so far that its own cells say what its kernels do."""
    if outcome.ending is Ending.NOT_RUN:
        return False
    return outcome.ending is not Ending.RETURNED or outcome.stage in (Stage.RAN, Stage.VERIFIED)
