"""The facts of a machine that is not here: what its variables, its packages and its toolkit make of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fi_doctor import conditions, knowledge, targeting
from fi_doctor.cli import targeting as reading
from fi_doctor.conditions import Truth, View
from fi_doctor.diagnosis import foretelling, needs
from fi_doctor.knowledge import examples
from fi_doctor.model import Depth, Missing
from fi_doctor.model.targets import ARCH_LIST
from fi_doctor.reports import document

FACTS = document.read(examples.data("h200"), "an example").facts
KB = knowledge.load()
RULES = {rule.id: rule for rule in KB.rules}


def target_facts(words, facts=FACTS, **environment):
    facts = replace(facts, environment={**facts.environment, **environment})
    read, _ = targeting.gpus_of(reading.target(words))({})
    return targeting.facts_for(replace(facts, gpus=read), reading.target(words), Depth.STATIC)


def holds(rule, facts):
    return conditions.holds(RULES[rule].when, View(facts))


@pytest.mark.parametrize(
    ("words", "value", "tags"),
    [
        ("h100,flashinfer=0.6.18", "9.0a", ("90a",)),
        ("h100,flashinfer=0.6.18", "8.0 9.0", ("80", "90a")),
        ("h100,flashinfer=0.6.6", "9.0 9.0", ("90",)),
        ("rtx-5090,flashinfer=0.6.18,cuda=12.9", "12.0", ("120f",)),
        ("rtx-5090,cuda=12.8", "12.0f", ("120f",)),
    ],
)
def test_a_variable_says_what_the_flashinfer_of_the_target_compiles_for(words, value, tags):
    here = replace(FACTS, flashinfer=Missing(reason="not installed"), packages={})
    for facts in (here, FACTS) if "flashinfer" in words else (FACTS,):
        package = target_facts(words, facts, **{ARCH_LIST: value}).flashinfer
        assert (package.architectures, package.architectures_from) == (tags, ARCH_LIST)


@pytest.mark.parametrize(
    ("words", "value", "said"),
    [
        ("h100,flashinfer=0.6.18", "9.0a;10.0a", "separated by one space"),
        ("h100,flashinfer=0.6.18", "", "it is set but empty"),
        ("rtx-5090,flashinfer=0.6.18,cuda=12.8", "12.0", "12.x requires CUDA >= 12.9"),
    ],
)
def test_a_variable_that_its_flashinfer_does_not_take_names_nothing(words, value, said):
    assert said in target_facts(words, **{ARCH_LIST: value}).flashinfer.architectures.reason


@pytest.mark.parametrize(
    ("words", "value", "is_told"),
    [("b200", "9.0a", True), ("h100", "10.0a", True), ("h100", "9.0a", False), ("b200", "9.0a 10.0a", False)],
)
def test_a_variable_that_names_other_gpus_than_the_target_is_told(words, value, is_told):
    found = target_facts(f"{words},flashinfer=0.6.18,cuda=13.0", **{ARCH_LIST: value})
    assert (holds("arch-list-misses-gpu", found) is Truth.YES) is is_told


@pytest.mark.parametrize(
    ("words", "is_foretold"), [("rtx-5090,flashinfer=0.6.4,cuda=12.8", False), ("rtx-5090,cuda=12.8", True)]
)
def test_what_pip_brings_along_with_the_flashinfer_of_the_target_is_not_missed(words, is_foretold):
    line = "nvidia-cudnn-frontend>=1.13.0"
    here = replace(FACTS.packages["flashinfer-python"], version="0.6.6", requires=(line,))
    absent = dict.fromkeys(("nvidia-cudnn-frontend", "torch"), Missing(reason="not installed"))
    found = target_facts(words, replace(FACTS, packages={**FACTS.packages, "flashinfer-python": here, **absent}))
    rule = "flashinfer-requirement-not-installed"
    assert (rule in [word.sources[0] for word in foretelling.by_facts(KB, found, ())]) is is_foretold
    assert ("nvidia-cudnn-frontend" in found.packages) is is_foretold
    assert "torch" in found.packages  # a target names it itself


def test_a_toolkit_that_is_not_here_has_a_name_where_others_have_a_path():
    found = View(target_facts("b200,flashinfer=0.6.18,cuda=12.4"))
    rule = RULES["nvcc-too-old-for-gpu"]
    assert conditions.fill(rule.why, found).endswith('; nvcc 12.4 ends with "Unsupported gpu architecture".')
    assert conditions.fill("{nvcc_path}, {cuda_home}/include", found) == "nvcc 12.4, $CUDA_HOME/include"
    assert conditions.fill(rule.why, View(FACTS)).endswith(
        f'; {FACTS.toolkit.jit.compiler.path} ends with "Unsupported gpu architecture".'
    )


def test_what_is_named_only_is_not_said_to_be_installed():
    [feature] = [one for one in KB.features if one.id == "import.flashinfer"]
    absent = replace(FACTS, flashinfer=Missing(reason="not installed"), packages={})
    assert needs.declared_at(feature, target_facts("h200,flashinfer=0.6.18", absent)) == ""
    assert needs.declared_at(feature, FACTS) == f"installed in {FACTS.flashinfer.root}"
