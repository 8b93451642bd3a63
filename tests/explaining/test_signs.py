"""How signs are matched and faults ranked, with faults that are written for each question."""

from __future__ import annotations

import io
import textwrap

import pytest

from fi_doctor.errors import DataError
from fi_doctor.explaining.diagnose import Source, diagnose
from fi_doctor.knowledge import faults

FAULT = """\
id: {id}
cause: {cause}
family: driver
flashinfer_at_fault: {at_fault}
title: "it is {id}"
why: "because"
signs:
{signs}
{more}
fix: [{{kind: note, line: "do that"}}]
fires: [{{log: "x"}}]
silent: [{{log: "y"}}]
"""


class Folder:
    """A folder of faults."""

    def __init__(self, path) -> None:
        self.path = path / "faults"

    def add(self, name, *signs, more="", at_fault="true", cause=""):
        lines = "\n".join(textwrap.indent(sign, "    ").replace("    ", "  - ", 1) for sign in signs)
        text = FAULT.format(id=name, cause=cause or f"{name}-cause", signs=lines, more=more, at_fault=at_fault)
        (self.path / "driver").mkdir(parents=True, exist_ok=True)
        (self.path / "driver" / f"{name}.yaml").write_text(text)

    def told(self, log):
        return diagnose([Source("log", io.BytesIO(log.encode()))], folder=self.path)

    def rules(self, log):
        return [one.rule for one in self.told(log).diagnoses]


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def sign(text, strength="decides", **more):
    return "\n".join(
        [f'text: "{text}"', f"strength: {strength}", 'source: "a"', *(f"{k}: '{v}'" for k, v in more.items())]
    )


def test_a_pattern_and_what_must_not_stand_there_narrow_a_literal(folder):
    folder.add(
        "a-fault",
        sign("it broke", pattern="code (?P<code>[0-9]+)", without="twice"),
        more="when: {captured_number: {code: '>6'}}",
    )
    assert folder.rules("it broke with code 7") == ["a-fault"]
    assert folder.rules("it broke with code 5") == []
    assert folder.rules("it broke with code 7 twice") == []
    assert folder.rules("it broke") == []


@pytest.mark.parametrize(
    ("log", "rules"),
    [
        ("loading kernels.so\n" + "\n" * 150 + "it broke", ["a-fault"]),
        ("loading kernels.so\n" + "\n" * 250 + "it broke", []),
        ("(Worker pid=1) loading kernels.so\n(Worker pid=2) it broke", []),
        ("(Worker pid=1) loading kernels.so\n(Worker pid=1) it broke", ["a-fault"]),
        ("it broke", []),
    ],
    ids=["near", "far", "another rank", "the same rank", "nowhere"],
)
def test_what_must_stand_near_does(folder, log, rules):
    folder.add("a-fault", sign("it broke", near="kernels.so"))
    assert folder.rules(log) == rules


def test_a_fault_can_ask_which_of_its_signs_were_seen(folder):
    folder.add(
        "a-fault", sign("it broke"), sign("and burnt", "supports", name="fire"), more="when: {seen: {fire: true}}"
    )
    assert folder.rules("it broke") == []
    assert folder.rules("it broke\nand burnt") == ["a-fault"]


def test_the_special_beats_the_general(folder):
    folder.add("a-general-fault", sign("it broke"))
    folder.add("a-special-fault", sign("it broke in the kernel"), more="beats: [a-general-fault]")
    assert folder.rules("it broke in the kernel") == ["a-special-fault"]
    assert folder.rules("it broke in the engine") == ["a-general-fault"]


def test_a_surer_fault_comes_before_an_earlier_one(folder):
    folder.add("a-vague-fault", sign("warming up", "supports"))
    folder.add("a-sure-fault", sign("it broke"))
    assert folder.rules("warming up\nit broke") == ["a-sure-fault", "a-vague-fault"]


def test_an_error_comes_before_an_earlier_warning(folder):
    folder.add("a-warned-fault", sign("is not available"))
    folder.add("an-error-fault", sign("it broke"))
    log = "WARNING 05-26 07:50:26 [a.py:69] it is not available\nERROR 05-26 07:50:27 [a.py:70] it broke"
    assert folder.rules(log) == ["an-error-fault", "a-warned-fault"]


def test_a_cause_that_two_faults_show_is_told_once(folder):
    folder.add("a-fault", sign("it broke"), cause="one-cause")
    folder.add("another-fault", sign("it burnt"), cause="one-cause")
    assert folder.rules("it burnt\nit broke") == ["another-fault"]


def test_signs_that_fit_several_causes_are_less_sure(folder):
    folder.add("a-fault", sign("it broke", "supports"), sign("it burnt", "supports"))
    sure = [folder.told(log).diagnoses[0].confidence.value for log in ("it broke", "it broke\nit burnt")]
    assert sure == ["low", "medium"]


def test_what_follows_from_others_is_a_cause_only_where_nothing_else_stands(folder):
    folder.add("a-hang", sign("No available shared memory broadcast block", "supports"))
    folder.add("a-fault", sign("it broke", "supports"))
    hang = "No available shared memory broadcast block found in 60 seconds"
    assert folder.rules(hang) == ["a-hang"]
    assert folder.rules(f"{hang}\nit broke") == ["a-fault"]


def test_a_sign_that_only_follows_is_no_diagnosis(folder):
    folder.add("a-fault", sign("it burnt", "follows-on"), sign("it broke"))
    assert folder.rules("it burnt") == []


def test_a_bystander_is_named_as_one(folder):
    folder.add("a-bystander", sign("it broke"), at_fault="false")
    found = folder.told("it broke")
    assert not found.diagnoses[0].flashinfer_at_fault
    assert "not FlashInfer's fault" in found.answer


def test_faults_that_are_put_aside_are_not_looked_for(folder):
    folder.add("a-fault", sign("it broke"))
    source = Source("log", io.BytesIO(b"it broke"))
    assert diagnose([source], folder=folder.path, left_out=frozenset({"a-fault"})).diagnoses == ()


@pytest.mark.parametrize(
    ("signs", "more", "said"),
    [
        ([sign("no")], "", "signs[0].text: expected a part of one line"),
        ([sign("it broke")], "when: {smm: '>1'}", "when.smm: no such subject; the nearest is 'sm'"),
        ([sign("it broke")], "whem: 1", "whem: no such key"),
        ([sign("it broke")], "rule: no-such-rule", "there is no rule 'no-such-rule'"),
        ([sign("it broke", "decide")], "", "expected one of follows-on, supports, decides, got 'decide'"),
    ],
    ids=["short literal", "subject", "key", "rule", "strength"],
)
def test_what_is_wrong_with_a_fault_is_told_with_its_place(folder, signs, more, said):
    folder.add("a-fault", *signs, more=more)
    with pytest.raises(DataError) as caught:
        faults.load_all(folder.path)
    assert f"driver/a-fault.yaml: {said}" in caught.value.why or said in caught.value.why


def test_of_the_logs_of_several_ranks_the_earlier_error_is_first(folder):
    folder.add("a-fault", sign("it broke"))
    folder.add("another-fault", sign("it burnt"))
    logs = (b"ERROR 05-26 07:50:29 [a.py:1] it burnt", b"ERROR 05-26 07:50:27 [a.py:1] it broke")
    sources = [Source(str(at), io.BytesIO(log)) for at, log in enumerate(logs)]
    assert [one.rule for one in diagnose(sources, folder=folder.path).diagnoses] == ["a-fault", "another-fault"]


def test_a_line_that_may_be_of_another_cause_makes_less_sure(folder):
    folder.add("a-fault", sign("it broke"))
    folder.add("another-fault", sign("it broke"), more="when: {sm: '>=120'}")
    sure = {
        told: [(one.rule, one.confidence.value) for one in folder.told(f"{told}\nit broke").diagnoses]
        for told in ("compute capability: 90", "compute capability: 121", "")
    }
    assert sure["compute capability: 90"] == [("a-fault", "high")]
    assert sure["compute capability: 121"] == [("another-fault", "high"), ("a-fault", "high")]
    assert sure[""] == [("a-fault", "medium"), ("another-fault", "medium")]


def test_a_general_fault_is_none_where_another_one_is_seen_in_an_error(folder):
    folder.add("a-general-fault", sign("Error: ", "supports"), more="general: true\nwhen: {not: {engine: sglang}}")
    folder.add("a-special-fault", sign("it broke"))
    assert folder.rules("Error: it burnt") == ["a-general-fault"]
    told = folder.told("Error: it burnt\nError: it broke").diagnoses
    assert [(one.rule, one.confidence.value) for one in told] == [("a-special-fault", "high")]
    log = "WARNING 05-26 07:50:26 [a.py:69] it broke\nError: it burnt"
    assert folder.rules(log) == ["a-general-fault", "a-special-fault"]
