from __future__ import annotations

import pytest
from rule_examples import EXAMPLES, HEALTHY

from fi_doctor import conditions, knowledge
from fi_doctor.conditions import Truth, View
from fi_doctor.diagnosis import findings

KB = knowledge.load()
RULES = {rule.id: rule for rule in KB.rules}


def test_every_rule_has_its_examples():
    assert set(EXAMPLES) == set(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_rule_fires_on_its_example(name):
    example = EXAMPLES[name]
    [finding] = [found for found in findings.find(KB, example.fires, example.fires_outcomes) if found.id == name]
    assert "(not known" not in finding.title
    assert finding.fix, "at least one way to mend can be said where the rule fires"


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_rule_is_silent_on_its_near_miss(name):
    example = EXAMPLES[name]
    assert conditions.holds(RULES[name].when, View(example.silent, example.silent_outcomes)) is not Truth.YES


def test_no_rule_fires_on_a_healthy_machine():
    assert findings.find(KB, HEALTHY, ()) == ()
