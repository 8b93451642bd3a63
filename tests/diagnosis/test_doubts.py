"""What cannot be read of a model, and sizes that do not go together, never end in a verdict that it runs."""

import pytest
from msgspec.structs import replace
from test_deployment import KB, REPORT, choice, judge, wanted

from fi_doctor.diagnosis import deployment, doubts
from fi_doctor.facts.served_model import model_of
from fi_doctor.knowledge import choosing, models
from fi_doctor.model import Deployment, Evidence, Missing
from fi_doctor.model.deployed import Effect, Wanted

SERVED = (choice(), choice("moe", "TRITON", ()), choice("linear", "cutlass", ()), choice("sampling", "PYTORCH", ()))


def odd(name="llama-3.1-8b", **fields):
    config = {**models.config_of(name), **fields}
    return Wanted(model=model_of(config, name, "config.json"), deployment=Deployment(), config=config)


@pytest.mark.parametrize(
    ("fields", "operators"),
    [
        ({"num_key_value_heads": "8"}, ["attention"]),
        ({"head_dim": -1}, ["attention"]),
        ({"sliding_window": "32"}, ["attention"]),
        ({"kv_lora_rank": "32"}, ["attention"]),
        ({"kv_lora_rank": 32}, ["attention"]),
        ({"kv_lora_rank": "32", "model_type": "deepseek_v3"}, ["attention"]),
        ({"layer_types": ["full_attention"]}, ["attention"]),
        ({"num_local_experts": "8"}, ["moe"]),
        ({"quantization_config": "fp8"}, ["attention", "moe", "linear"]),
        ({"torch_dtype": 16}, ["attention", "moe", "linear"]),
        ({"rope_scaling": "yarn", "num_nextn_predict_layers": "1", "moe_layer_freq": [0, 1]}, []),
        ({}, []),
    ],
    ids=repr,
)
def test_what_depends_on_a_field_that_makes_no_sense_is_not_known(fields, operators):
    found = judge(*SERVED, of=odd(**fields))
    assert [part.choice.operator for part in found.parts if part.effect is Effect.UNKNOWN] == operators
    assert (found.effect is Effect.UNKNOWN) is bool(operators)


def test_what_vllm_itself_answered_stands_but_for_heads_that_are_not_known():
    asked = {"evidence": Evidence.PREDICTED}
    quantised = odd(quantization_config={"quant_method": "compressed-tensors", "config_groups": 1})
    assert judge(choice("linear", "cutlass", (), **asked), of=quantised).effect is Effect.OTHER
    assert judge(choice(**asked), of=odd(head_dim="64")).effect is Effect.UNKNOWN


@pytest.mark.parametrize(
    ("name", "deployed", "effect", "said"),
    [
        (
            "llama-3.1-8b",
            {"tensor_parallel": 3},
            Effect.FAILS,
            "it will fail: the 32 attention heads cannot be divided",
        ),
        ("deepseek-v3", {"tensor_parallel": 4096, "data_parallel": 4096}, Effect.FAILS, "the 128 attention heads"),
        (
            "llama-3.1-8b",
            {"tensor_parallel": 3, "flags": {"--hf-overrides": "{}"}},
            Effect.UNKNOWN,
            "it cannot be told whether it works: the 32 attention heads",
        ),
        ("gpt-oss-20b", {"pipeline_parallel": 99}, Effect.UNKNOWN, "99 stages of a pipeline for the 24 layers"),
        ("llama-3.1-8b", {"tensor_parallel": 16}, None, ""),
        ("deepseek-v3", {"tensor_parallel": 16}, None, ""),
        ("gpt-oss-20b", {"pipeline_parallel": 24}, None, ""),
    ],
)
def test_sizes_that_do_not_go_together(name, deployed, effect, said):
    found = judge(choice(chosen="FLASH_ATTN", features=()), of=wanted(name, **deployed))
    assert found.effect is (effect or Effect.OTHER)
    assert said in found.why


def test_a_file_that_transformers_refuses():
    of = wanted()
    marked = replace(of, model=replace(of.model, unread={"config.json": "it is UTF-16, which transformers ..."}))
    found = judge(choice(), of=marked)
    assert (found.effect, found.why) == (
        Effect.FAILS,
        "it will fail: config.json: it is UTF-16, which transformers ...",
    )
    elsewhere = replace(marked, deployment=Deployment(flags={"--hf-config-path": "x"}))
    assert judge(choice(), of=elsewhere).effect is Effect.UNKNOWN


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tp", "fails"),
    [(32, 5, 1, True), (32, 64, 1, True), (32, 8, 16, False), (48, 6, 2, False), (28, 4, 4, False)],
)
def test_heads_that_cannot_be_shared_among_those_of_keys(heads, kv_heads, tp, fails):
    of = odd(num_attention_heads=heads, num_key_value_heads=kv_heads).model
    found = doubts.refusals(of, Deployment(tensor_parallel=tp))
    assert [one.effect for one in found] == ([Effect.FAILS] if fails else [])
    of_file = doubts.refusals(of, Deployment(tensor_parallel=tp, flags={"--config": "a.yaml"}))
    assert [one.effect for one in of_file] == ([Effect.UNKNOWN] if fails else [])


def test_an_operator_that_only_a_field_without_sense_tells_of_is_not_left_out():
    found = judge(choice(), of=odd(num_local_experts=-8))
    assert found.effect is Effect.UNKNOWN
    assert "num_local_experts of the model's configuration makes no sense, and there may be moe" in found.why


def test_heads_of_keys_that_cannot_be_shared_out():
    [refusal] = doubts.refusals(odd(num_attention_heads=24).model, Deployment(tensor_parallel=3))
    assert (refusal.effect, refusal.why[:33]) == (Effect.UNKNOWN, "8 heads of keys and values neithe")
    assert doubts.refusals(odd(num_attention_heads=24).model, Deployment(tensor_parallel=4)) == ()


def test_a_refusal_counts_where_no_choice_is_known():
    found = deployment.judge(wanted(tensor_parallel=3), Missing(reason="it was not read"), KB, REPORT, 90)
    assert (found.effect, "32 attention heads" in found.why) == (Effect.FAILS, True)


@pytest.mark.parametrize(
    ("flag", "may"), [("--block-size", True), ("--prefill-context-parallel-size", True), ("--port", False)]
)
def test_options_that_vllm_weighs_for_attention(flag, may):
    found = judge(choice(), of=wanted(flags={flag: "7"}))
    assert (found.effect is Effect.UNKNOWN, f"{flag} may change it" in found.why) == (may, may)


def built(altered=(), **package):
    facts = REPORT.facts
    packages = {**facts.packages, "vllm": replace(facts.packages["vllm"], **package)}
    return replace(facts, packages=packages, vllm=replace(facts.vllm, altered=dict(altered)))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            built({"platforms/cuda.py": "gone", "tasks.py": "x"}),
            "platforms/cuda.py is not as it was installed (gone), and",
        ),
        (built(version="0.33.1.dev5+gabc"), "0.33.1.dev5+gabc is no version of a release"),
        (built(version="0.33.0rc1"), "0.33.0rc1 is no version of a release"),
        (built(version="0.33.0+9c2b8d.nv25"), "0.33.0+9c2b8d.nv25 is no version of a release"),
        (built(editable=True, location="/src"), "it is installed from /src, where it can be edited"),
        (built(claims="0.32.0"), "its metadata say 0.32.0 and its files 0.33.0"),
        (built(version="0.33.0+cu129"), ""),
        (built(version="0.33.0"), ""),
    ],
)
def test_a_modified_build_is_named_and_the_table_not_believed(facts, said):
    assert doubts.of_build(facts).startswith(said)
    assert bool(doubts.of_build(facts)) is bool(said)
    found = judge(choice(), report=replace(REPORT, facts=facts))
    assert (found.effect is Effect.UNKNOWN) is bool(said)
    assert any("a modified build: " in note for note in found.notes) is bool(said)
    asked = judge(choice(evidence=Evidence.PREDICTED), report=replace(REPORT, facts=facts))
    assert asked.effect is Effect.FLASHINFER


@pytest.mark.parametrize(("version", "says"), [("0.33.1", True), ("0.33.0", False), ("0.33.0+cu130", False)])
def test_a_release_that_was_not_read_is_told(version, says):
    options = deployment.options_of(Deployment(), {})
    choices = choosing.choose(deployment.traits(wanted(), 90, REPORT.facts), options, version)
    assert choices
    assert all((f"read in vLLM 0.33.0 and not in {version}" in one.how) is says for one in choices)


SIXTEEN = "whether there are 16 GPUs of this kind for it, of which 1 is seen here"


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({}, []),
        ({"data_parallel": 16}, [SIXTEEN]),
        (
            {"tensor_parallel": 8, "data_parallel": 2},
            [f"{SIXTEEN}; with fewer than 8 vLLM starts only over Ray or several nodes"],
        ),
    ],
    ids=repr,
)
def test_gpus_that_are_not_here_are_told(sizes, said):
    assert list(judge(choice(), of=wanted(**sizes)).notes) == said
    gpus = replace(REPORT.facts.gpus, gpus=Missing(reason="no driver"))
    assert not judge(choice(), of=wanted(**sizes), report=replace(REPORT, facts=replace(REPORT.facts, gpus=gpus))).notes


def test_flashinfer_for_sinks_hangs_on_the_network_where_no_cubins_are_installed():
    of = wanted("gpt-oss-20b")
    asks = judge(choice(features=()), of=of).parts[0]
    assert (asks.effect, asks.why[:24]) == (Effect.UNKNOWN, "without flashinfer-cubin")
    environment = {**REPORT.facts.environment, "VLLM_HAS_FLASHINFER_CUBIN": "1"}
    told = judge(choice(), of=of, report=replace(REPORT, facts=replace(REPORT.facts, environment=environment)))
    assert told.parts[0].effect is Effect.FLASHINFER
    assert judge(choice()).parts[0].effect is Effect.FLASHINFER  # llama has none
    assert judge(choice(chosen="FLASH_ATTN", features=()), of=of).parts[0].effect is Effect.OTHER
