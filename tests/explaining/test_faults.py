"""Every fault fires on its own logs, is silent on their neighbours, and recommends what is read."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter

import pytest
from fault_cases import FAULTS, cases, of

from fi_doctor import knowledge
from fi_doctor.conditions.subjects import KEYED, SUBJECTS
from fi_doctor.explaining import patterns
from fi_doctor.knowledge import faults
from fi_doctor.model import Strength

KB = knowledge.load()


@pytest.mark.parametrize(("fault", "sample"), cases("fires"))
def test_a_fault_is_the_first_diagnosis_of_its_own_logs(fault, sample):
    first = of(sample).diagnoses[0]
    assert (first.cause, first.family) == (fault.cause, fault.family)
    assert first.remedies


@pytest.mark.parametrize(("fault", "sample"), cases("silent"))
def test_a_fault_is_not_seen_in_a_close_neighbour(fault, sample):
    assert fault.id not in [one.rule for one in of(sample).diagnoses]


def test_the_literals_that_are_searched_for_are_those_of_the_faults():
    signs = {text.encode() for fault in FAULTS for sign in fault.signs for text in (sign.text, sign.near) if text}
    assert signs == faults.literals().keys()


def test_ids_are_given_once_and_are_no_ids_of_rules():
    ids = Counter(fault.id for fault in FAULTS) + Counter(rule.id for rule in KB.rules)
    assert not [name for name, times in ids.items() if times > 1]


def test_a_cause_is_of_one_family():
    families = {(fault.cause, fault.family) for fault in FAULTS}
    assert len(families) == len({cause for cause, _ in families})


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_what_a_fault_names_is_there(fault):
    settings = {one.name for one in KB.settings if one.read_by}
    assert {mend.setting for mend in fault.fix if mend.setting} <= settings
    assert not fault.rule or fault.rule in {rule.id for rule in KB.rules}
    globs = [glob for command in fault.confirm for glob in re.findall(r"--feature '?([\w.*]+)", command)]
    assert [glob for glob in globs if not fnmatch.filter((row.id for row in KB.features), glob)] == []
    assert set(fault.beats) <= {one.id for one in FAULTS} - {fault.id}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_patterns_of_a_fault_are_of_re2(fault):
    written = [one for sign in fault.signs for one in (sign.pattern, sign.without, sign.frame)]
    assert not [wrong for wrong in map(patterns.wrong, written) if wrong]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_has_a_sign_of_its_own(fault):
    assert any(sign.strength is not Strength.FOLLOWS_ON for sign in fault.signs)


def test_no_fault_shows_what_only_a_machine_can_fill_in_and_each_check_that_it_names_is_one():
    """Texts that come from a rule are those of a machine: where they say <shm mib>, the fault needs one of its own."""
    subjects = {name.replace("_", " ") for name in (*SUBJECTS, *KEYED)}
    told = {}
    for fault in faults.load_all():
        lines = (fault.title, fault.why, *(mend.line for mend in fault.fix))
        told[fault.id] = [word for line in lines for word in re.findall(r"<([a-z][a-z ]*)>", line) if word in subjects]
        depths = [depth for line in fault.confirm for depth in re.findall(r"--depth (\w+)", line)]
        assert set(depths) <= {"static", "build", "run"}
    assert {name: words for name, words in told.items() if words} == {"cuda-home-has-a-blank": ["cuda home"]}
