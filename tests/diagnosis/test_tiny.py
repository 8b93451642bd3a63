"""Tiny models keep what selectors look at, and what is measured on them wins over what was predicted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fi_doctor.diagnosis import tiny
from fi_doctor.facts.served_model import model_of
from fi_doctor.knowledge import models
from fi_doctor.model import Deployment, Evidence, Missing
from fi_doctor.model.choices import Choice
from fi_doctor.model.deployed import Wanted


def wanted(name, **deployed):
    config = models.config_of(name)
    return Wanted(model=model_of(config, name, f"preset {name}"), deployment=Deployment(**deployed), config=config)


def choice(operator, chosen, evidence=Evidence.PREDICTED):
    return Choice(operator=operator, layers="all", chosen=chosen, is_flashinfer=None, evidence=evidence)


def test_a_plain_model_is_one_that_tells_of_all():
    [small] = tiny.models(wanted("llama-3.1-8b"))
    assert small.operators == ("attention", "mixer", "sampling", "linear")
    assert small.config == {**wanted("llama-3.1-8b").config, "num_hidden_layers": 2}
    assert small.words == "2 of 32 layers"


def test_quantised_weights_are_a_model_of_their_own():
    plain, quantised = tiny.models(wanted("gpt-oss-20b"))
    assert (plain.operators, quantised.operators) == (("attention", "mixer", "sampling"), ("moe", "linear"))
    assert "quantization_config" not in plain.config
    assert quantised.config["quantization_config"]["quant_method"] == "mxfp4"


def test_widths_are_those_of_one_rank_and_sizes_of_heads_stay():
    before = wanted("deepseek-v3").config
    _, small = tiny.models(wanted("deepseek-v3", tensor_parallel=8))
    assert small.config["moe_intermediate_size"] == before["moe_intermediate_size"] // 8
    assert small.config["hidden_size"] == before["hidden_size"]
    assert small.config["n_routed_experts"] == 64
    assert small.config["first_k_dense_replace"] == 1, "the second layer has experts"
    assert small.words == "2 of 61 layers, 64 of 256 experts, one rank of 8"


KINDS = ["sliding", "sliding", "full", "sliding"] * 8


@pytest.mark.parametrize(("key", "layers"), [({"full_attention_interval": 4}, 4), ({"layer_types": KINDS}, 3), ({}, 2)])
def test_each_kind_of_layer_is_among_the_few(key, layers):
    model = wanted("llama-3.1-8b")
    [small] = tiny.models(replace(model, config={**model.config, **key}))
    assert small.config["num_hidden_layers"] == layers
    assert small.config.get("layer_types", KINDS[:layers]) == KINDS[:layers]


@pytest.mark.parametrize(("experts", "kept"), [(128, 64), (160, 96), (72, 72), (8, 8)])
def test_the_width_of_the_gate_stays_as_even_as_it_was(experts, kept):
    model = wanted("qwen3-30b-a3b")
    [small] = tiny.models(replace(model, config={**model.config, "num_experts": experts}))
    assert small.config["num_experts"] == kept


def test_of_a_configuration_with_parts_no_tiny_model_is_made():
    model = wanted("llama-3.1-8b")
    assert isinstance(tiny.models(replace(model, config={"text_config": model.config})), Missing)


def test_one_gpu_tells_nothing_of_what_several_do():
    assert tiny.limits(wanted("llama-3.1-8b")) == ()
    [said] = tiny.limits(wanted("llama-3.1-8b", tensor_parallel=2))
    assert said.startswith("all-reduce and all-to-all were not measured")
    spread = wanted("gpt-oss-20b", tensor_parallel=2, expert_parallel=True)
    assert len(tiny.limits(spread)) == 2
    assert all("moe" not in small.operators for small in tiny.models(spread))


def test_options_of_ranks_are_not_those_of_one_gpu():
    options = {"tensor_parallel_size": 8, "enforce_eager": True, "kv_cache_dtype": "fp8", "variables": {"A": "1"}}
    assert tiny.engine_of(options) == {"enforce_eager": True, "kv_cache_dtype": "fp8"}


def test_what_was_measured_wins_and_names_what_was_predicted_otherwise():
    predicted = (choice("attention", "FLASH_ATTN"), choice("moe", "TRITON"), choice("sampling", "PYTORCH"))
    measured = [choice("attention", "FLASHINFER", Evidence.RAN), choice("moe", "TRITON", Evidence.RAN)]
    found = tiny.with_measured(predicted, measured, ("attention", "moe"))
    assert [(one.operator, one.chosen, one.predicted, one.evidence) for one in found] == [
        ("attention", "FLASHINFER", "FLASH_ATTN", Evidence.RAN),
        ("moe", "TRITON", "", Evidence.RAN),
        ("sampling", "PYTORCH", "", Evidence.PREDICTED),
    ]


def test_a_model_tells_only_of_the_operators_that_it_is_for():
    predicted = (choice("linear", "cutlass"),)
    assert tiny.with_measured(predicted, [choice("linear", "UnquantizedLinearMethod")], ("attention",)) == predicted
