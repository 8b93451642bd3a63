"""What is foretold of rows that nobody tried: by rules that hold, and by what rules say of releases and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fi_doctor import conditions
from fi_doctor.conditions import Truth, View
from fi_doctor.model import Ending, Facts, Finding, KnowledgeBase, Outcome, Rule, Stage, Verdict, selects


class Word(NamedTuple):
    """What a rule foretells, or what was seen elsewhere."""

    verdict: Verdict
    why: str  # the reason that a cell gives
    features: tuple[str, ...]  # globs
    variants: tuple[str, ...] = ()  # globs of the cells; none: all of them
    sources: tuple[str, ...] = ()  # the rule, or the machines


class Foreseen(NamedTuple):
    """What is said of a machine that is not here, beside the rules that are found: rules come before what was seen.

    What cannot be compiled gives no wrong numbers: that it is vain comes before all that would come of running it.
    """

    words: tuple[Word, ...] = ()
    seen: Mapping[tuple[str, str], Word] = {}  # row and variant -> what machines of that kind showed
    vain: Mapping[tuple[str, str], Word] = {}  # row and variant -> why compiling it there comes to nothing


NOTHING = Foreseen()


def by_findings(kb: KnowledgeBase, findings: tuple[Finding, ...]) -> tuple[Word, ...]:
    """What the rules foretell that were found here."""
    held = {finding.id for finding in findings}
    rules = (rule for rule in kb.rules if rule.id in held)
    return tuple(Word(one.predicts, said_by(one), one.features, (), (one.id,)) for one in rules if one.predicts)


def by_facts(kb: KnowledgeBase, facts: Facts, outcomes: tuple[Outcome, ...]) -> tuple[Word, ...]:
    """What the rules foretell by release and GPU alone, of rows that nobody tried."""
    tried = {outcome.feature for outcome in outcomes if _was_tried(outcome)}
    return tuple(word for rule in kb.rules for word in _of_facts(rule, facts, tried))


def about(foreseen: Foreseen, feature: str, variant: str | None) -> Word | None:
    """The word about a variant of a row that comes first. None as variant: about the whole row."""
    ours = (word for word in foreseen.words if word.features and selects(word.features, feature))
    said = next((word for word in ours if not word.variants or _is_of(word, variant)), None)
    if variant is None or (said is not None and said.verdict is Verdict.BROKEN):
        return said
    return foreseen.vain.get((feature, variant)) or said or foreseen.seen.get((feature, variant))


def said_by(rule: Rule) -> str:
    """The reason that names a rule."""
    return f"predicted by {rule.id}"


def _is_of(word: Word, variant: str | None) -> bool:
    return variant is not None and selects(word.variants, variant)


def _of_facts(rule: Rule, facts: Facts, tried: set[str]) -> list[Word]:
    found = []
    for one in rule.foretells:
        features = one.features or rule.features
        is_new = not any(selects(features, feature) for feature in tried)
        if is_new and conditions.holds(one.when, View(facts)) is Truth.YES:
            found.append(Word(one.verdict, said_by(rule), features, one.variants, (rule.id,)))
    return found


def _was_tried(outcome: Outcome) -> bool:
    """Whether a probe came so far that its own cells say what its kernels do."""
    if outcome.ending is Ending.NOT_RUN:
        return False
    return outcome.ending is not Ending.RETURNED or outcome.stage in (Stage.RAN, Stage.VERIFIED)
