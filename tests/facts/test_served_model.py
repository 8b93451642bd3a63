"""A model's configuration is taken where it makes sense, and named where it does not; nothing ends the reader."""

import json

import pytest

from fi_doctor.errors import DataError
from fi_doctor.facts import model_cache, served_model
from fi_doctor.knowledge import models

PLAIN = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
DEEPSEEK = {"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64}


def model_of(**fields):
    config = {name: value for name, value in {**PLAIN, **fields}.items() if value is not ...}
    return served_model.model_of(config, "a model", "config.json")


def kinds(model):
    return [(layers.kind, layers.count) for layers in model.attention]


def test_a_plain_model():
    [layers] = model_of().attention
    assert (layers.kind, layers.count, layers.heads, layers.kv_heads, layers.head_size) == ("full", 32, 32, 8, 128)
    assert (layers.window, layers.sinks, layers.soft_cap) == (0, False, 0.0)
    found = model_of()
    assert (found.architecture, found.dtype, found.experts, found.quantized) == (
        "LlamaForCausalLM",
        "bfloat16",
        None,
        None,
    )
    assert found.unread == {}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"sliding_window": 1024, "sliding_window_pattern": 6, "num_hidden_layers": 62},
            [("window", 52), ("full", 10)],
        ),
        ({"sliding_window": 4096}, [("window", 32)]),
        ({"sliding_window": 4096, "use_sliding_window": False}, [("full", 32)]),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28}, [("full", 28), ("window", 4)]),
        ({"sliding_window": 4096, "model_type": "gemma2"}, [("window", 16), ("full", 16)]),
        (
            {"layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 128},
            [("window", 16), ("full", 16)],
        ),
        ({"layer_types": ["chunked_attention"] * 24 + ["full_attention"] * 8}, [("chunked", 24), ("full", 8)]),
        ({"model_type": "qwen3_next", "full_attention_interval": 4}, [("gdn", 24), ("full", 8)]),
        (
            {"layer_types": ["linear_attention", "full_attention"] * 16, "linear_num_key_heads": 16},
            [("gdn", 16), ("full", 16)],
        ),
        ({"hybrid_override_pattern": "M-M*-M-"}, [("mamba", 3), ("full", 1)]),
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, [("mamba", 28), ("full", 4)]),
        ({"model_type": "mamba2", "num_attention_heads": ...}, [("mamba", 32)]),
        (DEEPSEEK, [("mla", 32)]),
        ({**DEEPSEEK, "index_topk": 2048}, [("sparse_mla", 32)]),
        (
            {**DEEPSEEK, "linear_attn_config": {"kda_layers": [1, 2, 3], "num_heads": 32}},
            [("kda", 3), ("mla", 29)],
        ),
    ],
)
def test_layers_by_the_fields_that_tell_of_their_kinds(fields, expected):
    assert kinds(model_of(**fields)) == expected


def test_sizes_by_their_other_names():
    old = dict.fromkeys(("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size"), ...)
    [layers] = model_of(**old, n_layer=12, n_head=16, n_embd=2048, multi_query=True).attention
    assert (layers.count, layers.heads, layers.kv_heads, layers.head_size) == (12, 16, 1, 128)
    [latent] = model_of(**DEEPSEEK, num_attention_heads=128).attention
    assert (latent.heads, latent.kv_heads, latent.head_size, latent.value_size) == (128, 1, 576, 512)
    assert model_of(model_type="gpt_oss").attention[0].sinks
    assert model_of(attn_logit_softcapping=50.0).attention[0].soft_cap == 50.0


def test_what_a_part_of_it_says_is_the_language_model():
    text = {**PLAIN, "num_hidden_layers": 8}
    whole = {"architectures": ["Qwen3OmniMoe"], "model_type": "qwen3_omni", "thinker_config": {"text_config": text}}
    found = served_model.model_of(whole, "a model", "config.json")
    assert (kinds(found), found.architecture, found.model_type) == ([("full", 8)], "Qwen3OmniMoe", "llama")


def test_experts():
    found = model_of(
        n_routed_experts=256,
        num_experts_per_tok=8,
        first_k_dense_replace=3,
        n_shared_experts=1,
        moe_intermediate_size=2048,
    )
    assert (found.experts.count, found.experts.active, found.experts.layers) == (256, 8, 29)
    assert (found.experts.shared, found.experts.width) == (1, 2048)
    assert model_of(num_local_experts=1).experts is None
    assert model_of(num_experts=128, decoder_sparse_step=2, mlp_only_layers=[0]).experts.layers == 15


GROUP = {
    "targets": ["Linear"],
    "weights": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"},
}


@pytest.mark.parametrize(
    ("written", "weights", "activations", "rest"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", "fp8", {"block": (128, 128)}),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8_per_tensor", "fp8", {}),
        ({"quant_method": "fbgemm_fp8"}, "fp8_per_channel", "fp8", {}),
        (
            {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
            "mxfp4",
            "",
            {"linear": False},
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
            "nvfp4",
            "nvfp4",
            {"kv_cache": "fp8"},
        ),
        ({"quant_algo": "FP8"}, "fp8_per_tensor", "fp8", {"method": "modelopt"}),
        ({"quant_algo": "of tomorrow"}, "unknown", "", {}),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}}, "nvfp4", "", {}),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
                        "input_activations": {"num_bits": 8, "type": "float"},
                    }
                },
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            },
            "fp8_block",
            "fp8",
            {"kv_cache": "fp8", "block": (128, 128)},
        ),
        ({"quant_method": "awq", "bits": 4}, "int4", "", {}),
        ({"quant_method": "gptq", "bits": 8}, "int8", "", {}),
        ({"quant_method": "something"}, "unknown", "", {"method": "something"}),
    ],
)
def test_quantised_checkpoints(written, weights, activations, rest):
    found = model_of(quantization_config=written).quantized
    assert (found.weights, found.activations) == (weights, activations)
    assert {name: getattr(found, name) for name in rest} == rest


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("num_key_value_heads", "eight", "'eight' is not a whole number"),
        ("num_key_value_heads", True, "True is not a whole number"),
        ("num_key_value_heads", -8, "-8 is not a number from 1 to 65536"),
        ("head_dim", 10**30, "is not a number from 1 to 16384"),
        ("sliding_window", [1], "[1] is not a whole number"),
        ("layer_types", "full", "'full' is not a list of texts"),
        (
            "layer_types",
            ["full_attention"] * 31 + ["of tomorrow"],
            "'of tomorrow' is a kind of layer that is not known",
        ),
        ("layer_types", ["full_attention"] * 31 + ["sliding_attention"] * 2, "33 kinds for 32 layers"),
        ("kv_lora_rank", "512", "MLA is not known of a model_type 'llama'"),
        ("quantization_config", "fp8", "'fp8' is not an object"),
        ("num_experts", 1 << 40, "is not a number from 1 to 65536"),
        ("torch_dtype", {"a": 1}, "{'a': 1} is not a short text"),
        ("model_type", "x" * 300, "is not a short text"),
        ("attn_logit_softcapping", float("inf"), "inf is not a positive number"),
        ("head_dim", 128.0, "128.0 is not a whole number"),  # vLLM would divide by it
        ("model_type", "\x1b[31mllama", "is not a short text"),
        ("layer_types", ["full\ud800"], "is not a list of texts"),
    ],
)
def test_what_makes_no_sense_is_named_and_the_rest_is_taken(field, value, why):
    found = model_of(**{field: value})
    assert why in found.unread[field]
    assert sum(layers.count for layers in found.attention) == 32


@pytest.mark.parametrize(("size", "is_known"), [(128, True), (192, True), (96, False), (None, True)])
def test_heads_of_mla_that_no_kernel_is_known_to_have(size, is_known):
    found = served_model.model_of({**models.config_of("deepseek-v3"), "qk_nope_head_dim": size}, "a", "b")
    assert ("qk_nope_head_dim" not in found.unread) is is_known


def test_a_part_that_makes_no_sense_has_its_whole_name():
    written = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": "four"}}}}
    found = model_of(quantization_config=written)
    assert found.unread == {
        "quantization_config.config_groups.group_0.weights.num_bits": "'four' is not a whole number"
    }
    assert found.quantized.weights == "unknown"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[1]", "holds no object, but list"),
        ("[" * 100_000, "is n"),
        ('{"a": ' * 100_000, "is n"),
        ("{}", "neither num_hidden_layers nor num_attention_heads"),
        ('{"num_hidden_layers": "many"}', "num_hidden_layers: 'many' is not a whole number"),
        (json.dumps({**PLAIN, "num_attention_heads": None}), "it says neither"),
        ('{"num_hidden_layers": 1' + "0" * 5000 + "}", ""),
    ],
    ids=["empty", "cut", "list", "deep-list", "deep-object", "nothing", "words", "no-heads", "long-number"],
)
def test_files_that_describe_no_model(tmp_path, text, why):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DataError) as caught:
        served_model.read_model(tmp_path)
    assert why in str(caught.value)
    assert caught.value.todo


def test_a_number_without_end_is_read_as_transformers_reads_it(tmp_path):
    written = json.dumps({**PLAIN, "time_step_limit": [0.0, float("inf")], "head_dim": float("nan")})
    assert "Infinity" in written
    (tmp_path / "config.json").write_text(written)
    assert served_model.read_model(tmp_path).unread == {"head_dim": "nan is not a whole number"}


def test_files_that_cannot_be_read(tmp_path):
    for path, why in ((tmp_path, f"there is no {tmp_path / 'config.json'}"), (tmp_path / "absent", "there is no ")):
        with pytest.raises(DataError) as caught:
            served_model.read_model(path)
        assert why in caught.value.why
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(DataError):
        served_model.read_model(tmp_path)


@pytest.mark.parametrize(
    ("encoding", "why"),
    [("utf-8", None), ("utf-8-sig", "byte order mark"), ("utf-16", "it is UTF-16"), ("utf-32-le", "it is UTF-32-LE")],
)
def test_a_file_that_is_plainly_meant_is_read_and_what_transformers_refuses_is_told(tmp_path, encoding, why):
    (tmp_path / "config.json").write_text(json.dumps(PLAIN), encoding=encoding)
    found = served_model.read_model(tmp_path)
    assert found.attention == model_of().attention
    assert list(found.unread) == (["config.json"] if why else [])
    assert (why or "") in found.unread.get("config.json", "")


def test_model_optimizer_writes_a_file_of_its_own(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    found = served_model.read_model(tmp_path / "config.json", "org/name")
    assert (found.quantized.weights, found.name, found.source) == (
        "fp8_per_tensor",
        "org/name",
        str(tmp_path / "config.json"),
    )


@pytest.mark.parametrize("name", models.presets())
def test_what_is_known_of_models_is_read_whole(name):
    found = served_model.model_of(models.config_of(name), name, "preset")
    assert found.unread == {}
    assert found.architecture
    assert found.dtype
    assert found.quantized is None or found.quantized.weights != "unknown"


def test_a_repository_is_known_in_any_case_and_others_are_not():
    assert models.config_of("OpenAI/GPT-OSS-20B") == models.config_of("gpt-oss-20b")
    assert models.config_of("org/name") is None
    config = models.config_of("gpt-oss-20b")
    for word in (
        "gpt_oss_20b",
        "gpt-oss-20b/",
        "https://huggingface.co/openai/gpt-oss-20b",
        "hf.co/OpenAI/gpt-oss-20b/",
    ):
        assert models.config_of(word) == config
    assert models.config_of("https://huggingface.co/openai/gpt-oss-20b/tree/main?x=1") == config
    assert models.config_of("https://huggingface.co/openai") is None
    assert models.config_of("https://example.org/openai/gpt-oss-20b") is None


def test_the_cache_of_hugging_face(tmp_path):
    folder = tmp_path / "hub" / "models--org--name"
    for revision in ("aaaa1111", "bbbb2222"):
        (folder / "snapshots" / revision).mkdir(parents=True)
        (folder / "snapshots" / revision / "config.json").write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("aaaa1111")
    for environ in ({"HF_HOME": str(tmp_path)}, {"HF_HUB_CACHE": str(tmp_path / "hub")}):
        for word in ("org/name", "org/name/", "https://huggingface.co/org/name"):
            assert model_cache.cached_config(word, environ) == folder / "snapshots" / "aaaa1111" / "config.json"
    (folder / "refs" / "main").write_text("../../../../etc")
    found = model_cache.cached_config("org/name", {"HF_HOME": str(tmp_path)})
    assert found.parent.parent == folder / "snapshots"
    assert model_cache.cached_config("org/other", {"HF_HOME": str(tmp_path)}) is None
    assert model_cache.cached_config("org/other", {"HOME": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("word", "is_one"),
    [
        ("org/name", True),
        ("org/name/", True),
        ("https://huggingface.co/org/name", True),
        ("https://huggingface.co/../name", False),
        ("https://example.org/org/name", False),
        ("/org/name", False),
        ("a/b/c", False),
        ("../b", False),
        ("name", False),
        ("a/b\n", False),
    ],
)
def test_words_that_name_repositories(word, is_one):
    assert model_cache.is_repository(word) is is_one
