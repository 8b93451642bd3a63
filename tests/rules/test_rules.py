from __future__ import annotations

import re

import examples_binaries
import examples_machine
import examples_packages
import examples_server
import examples_toolkit
import factory as make
import pytest
import rule_examples
import serving
from rule_examples import HEALTHY, MISMATCHED

from fi_doctor import conditions, knowledge
from fi_doctor.conditions import Truth, View
from fi_doctor.diagnosis import findings
from fi_doctor.model import Ending, Stage, selects

KB = knowledge.load()
TABLES = (rule_examples, examples_binaries, examples_machine, examples_packages, examples_server, examples_toolkit)
EXAMPLES = {name: example for table in TABLES for name, example in table.EXAMPLES.items()}
RULES = {rule.id: rule for rule in KB.rules}
# They say that rows are broken, and of some rows not all is compiled by nvcc.
_NEED_NVCC = (
    *("host-compiler-not-found", "ninja-not-found", "nvcc-not-found", "nvcc-not-taken", "nvcc-too-old-for-sm12x"),
    "gpus-older-than-flashinfer-takes",
)
_WITHOUT_NVCC = {
    *("gemm.bf16", "gemm.bf16_fp4", "gemm.fp4", "gemm.fp8_groupwise", "gemm.mxfp8", "quant.fp8", "ssm.gdn", "ssm.kda"),
    *("norm.fused_add_rmsnorm", "norm.gemma_rmsnorm", "norm.layernorm", "norm.rmsnorm"),
    *("comm.peer_transfer", "lora.bgmv"),
}


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


@pytest.mark.parametrize("name", sorted(RULES))
def test_no_mend_has_to_be_filled_in_by_hand(name):
    """An index is that of the CUDA here, and pip is that of the interpreter, which in an environment of uv has none."""
    for action in RULES[name].fix:
        assert "XYZ" not in action.line
        assert not re.search(r"-m pip|(?<!uv )\bpip install", action.line)


def test_no_rule_fires_on_a_healthy_machine():
    assert findings.find(KB, HEALTHY, ()) == ()
    assert findings.find(KB, serving.served(), ()) == ()


def test_what_stands_against_all_that_is_compiled_names_every_family():
    """A row that is left out would be foretold to work beside it: families were added after most rules."""
    rows = {feature.id for feature in KB.features if feature.needs_gpu}
    wide = [rule for rule in KB.rules if rule.stops_builds or {"kv.*", "comm.*", "moe.*"} <= {*rule.features}]
    assert len(wide) > 40
    left_out = {rule.id: {name for name in rows if not selects(rule.features, name)} for rule in wide}
    assert {rule: names for rule, names in left_out.items() if names} == dict.fromkeys(_NEED_NVCC, _WITHOUT_NVCC)


@pytest.mark.parametrize(
    ("environment", "found"),
    [({}, "no-gpu-here"), ({"FLASHINFER_CUDA_ARCH_LIST": "9.0a"}, "no-gpu-of-the-named-architecture")],
    ids=["unset", "set"],
)
def test_without_a_gpu_an_architecture_is_advised_where_none_is_named(environment, found):
    facts = make.facts(environment=environment, gpus=make.no_gpus())
    [finding] = [one for one in findings.find(KB, facts, ()) if one.cause == "no-gpu"]
    assert finding.id == found
    assert any("export FLASHINFER_CUDA_ARCH_LIST" in line for line in finding.fix) is (not environment)


def test_a_driver_that_does_not_match_is_not_called_no_gpu():
    assert not [one for one in findings.find(KB, make.facts(gpus=MISMATCHED), ()) if one.cause == "no-gpu"]


def test_rows_that_lie_apart_are_not_laid_to_the_cute_dsl():
    """The kernel that nvcc builds ignores the stride as well, and cuda_bf16 passes dense rows only."""
    apart = make.cell(Ending.WRONG, Stage.RAN, "spread_bf16")
    outcomes = (make.outcome("norm.layernorm", cells=(apart, make.cell(variant="cuda_bf16"))),)
    assert "cute-dsl-norm-fails" not in [found.id for found in findings.find(KB, HEALTHY, outcomes)]
