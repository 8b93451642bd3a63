"""What a server calls by default, from what is known of vLLM's releases."""

import factory as make
import pytest

from fi_doctor import knowledge
from fi_doctor.diagnosis import serving
from fi_doctor.model import Depth, Request
from fi_doctor.probing import catalog, plan

KB = knowledge.load()
SPECS = catalog.discover()


def planned(facts, *features):
    return plan.plan(SPECS, facts, Request(depth=Depth.BUILD, features=features))


def served(facts):
    rows = serving.only_served(KB, facts, planned(facts))
    return {probe.spec.id: probe.variants for probe in rows if probe.spec.module}


def facts(vllm, **environment):
    return make.facts(packages={"vllm": vllm} if vllm else None, environment=environment)


def test_what_vllm_does_not_call_by_default_is_not_compiled():
    found = served(facts("0.33.0"))
    assert found["moe.fp8_per_tensor"] == ("tactic_0", "graph", "many_tokens")
    assert found["sampling.top_k_top_p"] == ("top_k_top_p", "top_p", "top_k", "successive_calls")
    assert not {"norm.rmsnorm", "attention.prefill", "moe.bf16", "moe.mxfp4_bf16"} & found.keys()


def test_without_vllm_the_newest_known_one_counts():
    assert served(facts(None)) == served(facts("0.33.0"))


@pytest.mark.parametrize(("value", "is_there"), [(None, False), ("1", True), ("0", False)])
def test_a_variable_that_turns_a_row_on_counts(value, is_there):
    variables = {} if value is None else {"VLLM_USE_FLASHINFER_MOE_FP16": value}
    assert ("moe.bf16" in served(facts("0.14.1", **variables))) is is_there


def test_of_rows_that_are_asked_for_what_decides_is_taken_whether_or_not_it_is_the_default():
    here = facts("0.33.0")
    rows = serving.only_deciding(KB, here, planned(here, "moe.bf16", "norm.rmsnorm"))
    bf16, norm = rows
    assert bf16.variants == ("tactic_0", "graph", "many_tokens")
    assert norm.variants == tuple(norm.spec.variants)


@pytest.mark.parametrize(
    ("vllm", "words"),
    [
        ("0.14.1", "vLLM 0.14.1, which is installed"),
        ("0.9.0", "vLLM 0.9.0, which is installed and of which nothing is known"),
        (None, "no vLLM is installed: as vLLM 0.33 would call them"),
    ],
)
def test_which_vllm_is_assumed_is_said_of_every_probe(vllm, words):
    here = facts(vllm)
    assert {probe.caller for probe in serving.with_served(KB, here, planned(here, "moe.*"))} == {words}
