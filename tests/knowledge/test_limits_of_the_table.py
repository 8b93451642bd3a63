"""What the table of choices does not tell is not known: no value counts as another one, and none as a refusal."""

import pytest

from fi_doctor.facts.served_model import model_of
from fi_doctor.knowledge import choosing, models
from fi_doctor.model.traits import pools, traits_of

BERT = {"architectures": ["BertModel"], "hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 12}


def told(model, sm=90, version="0.33.0", **options):
    config = models.config_of(model) if isinstance(model, str) else model
    found = choosing.choose(traits_of(model_of(config, "a", "b"), options, sm), options, version)
    return {choice.operator: choice for choice in found}


@pytest.mark.parametrize(
    ("dtype", "sm", "version", "chosen"),
    [
        ("nvfp4", 90, "0.33.0", "FLASHINFER"),
        ("nvfp4_4over6", 90, "0.33.0", "none"),
        ("int8_per_token_head", 100, "0.33.0", "TRITON_ATTN"),
        ("int8_per_token_head", 90, "0.28.0", "TRITON_ATTN"),
        ("int8_per_token_head", 90, "0.20.2", ""),
        ("fp8_e5m2", 90, "0.33.0", "FLASHINFER"),
        ("fp8_e5m2", 90, "0.20.2", ""),
        ("fp8_e5m2", 120, "0.20.2", "FLASHINFER"),
        ("fp8", 90, "0.33.0", "FLASH_ATTN"),
        ("bfloat16", 90, "0.33.0", "FLASH_ATTN"),
        ("bfloat16", 90, "0.14.1", ""),
        ("float16", 90, "0.33.0", ""),
        ("turboquant_k8v4", 90, "0.33.0", ""),
        ("of_tomorrow", 90, "0.33.0", ""),
    ],
)
def test_a_dtype_of_the_cache_is_itself_and_no_other(dtype, sm, version, chosen):
    choice = told("llama-3.1-8b", sm, version, kv_cache_dtype=dtype)["attention"]
    assert choice.chosen == chosen
    assert (choice.is_flashinfer is None) == (chosen == "")
    assert chosen or ("--kv-cache-dtype" in choice.how or "fp8_e5m2" in choice.how)


def test_a_kernel_has_no_rows_for_a_cache_with_which_none_was_tried():
    assert told("llama-3.1-8b", kv_cache_dtype="nvfp4")["attention"].features == ()
    assert told("llama-3.1-8b", kv_cache_dtype="fp8_e5m2")["attention"].features == ()  # the probe's are E4M3
    assert "attention.fp8_kv" in told("llama-3.1-8b", 120, kv_cache_dtype="fp8_e4m3")["attention"].features
    served = told("llama-3.1-8b", 100)["attention"]
    of_tomorrow = traits_of(model_of(models.config_of("llama-3.1-8b"), "a", "b"), {"kv_cache_dtype": "x"}, 100)
    assert served.features
    assert choosing.features_of(served, of_tomorrow, "0.33.0") == ()  # where vLLM itself named FLASHINFER


@pytest.mark.parametrize("dtype", ["fp8_e5m2", "int8_per_token_head", "nvfp4"])
def test_mla_knows_fewer_dtypes_of_the_cache(dtype):
    assert told("deepseek-v3", kv_cache_dtype=dtype)["attention"].chosen == ""
    assert told("deepseek-v3", kv_cache_dtype="fp8")["attention"].chosen == "FLASHMLA"


@pytest.mark.parametrize(
    ("model", "sm", "version", "chosen"),
    [
        ("gemma-3-27b", 90, "0.33.0", "TRITON_ATTN"),
        ("gemma-3-12b", 90, "0.33.0", "TRITON_FLASH_ATTN"),
        ("gemma-3-27b", 100, "0.33.0", "FLASH_ATTN"),
        ("gemma-3-12b", 100, "0.33.0", "TRITON_FLASHINFER"),
        ("gemma-3-12b", 120, "0.33.0", "TRITON_ATTN"),
        ("gemma-3-27b", 90, "0.28.0", "TRITON_ATTN"),
        ("gemma-3-27b", 100, "0.28.0", ""),
        ("gemma-3-27b", 100, "0.20.2", "TRITON_ATTN"),
        ("gemma-3-27b", 90, "0.14.1", "TRITON_ATTN"),
    ],
)
def test_tokens_of_an_image_attend_to_one_another(model, sm, version, chosen):
    assert told(model, sm, version)["attention"].chosen == chosen
    forced = told(model, sm, version, attention_backend="FLASHINFER")["attention"].chosen
    assert forced == ("none" if chosen else "")


@pytest.mark.parametrize(
    ("tp", "version", "chosen"),
    [
        (1, "0.33.0", "FLASHMLA_SPARSE"),
        (4, "0.33.0", "FLASHMLA_SPARSE"),
        (8, "0.33.0", "FLASH_ATTN_MLA_SPARSE_FA4"),
        (4, "0.28.0", "FLASHMLA_SPARSE"),
        (8, "0.28.0", "FLASHINFER_MLA_SPARSE"),
        (4, "0.20.2", "FLASHMLA_SPARSE"),
    ],
)
def test_sparse_attention_depends_on_the_heads_of_a_rank(tp, version, chosen):
    assert told("deepseek-v3.2", 100, version, tensor_parallel_size=tp)["attention"].chosen == chosen


@pytest.mark.parametrize(
    ("named", "chosen", "is_flashinfer", "moe"),
    [
        ("naive", "allgather_reducescatter", False, "TRITON"),
        ("flashinfer_all2allv", "flashinfer_nvlink_two_sided", True, ""),
        ("flashinfer_nvlink_one_sided", "flashinfer_nvlink_one_sided", True, ""),
        ("deepep_low_latency", "deepep_low_latency", None, ""),
    ],
)
def test_the_way_between_ranks_that_was_asked_for_is_told(named, chosen, is_flashinfer, moe):
    across = {"data_parallel_size": 2, "enable_expert_parallel": True, "all2all_backend": named}
    found = told("qwen3-30b-a3b", **across)
    assert (found["all2all"].chosen, found["all2all"].is_flashinfer, found["moe"].chosen) == (
        chosen,
        is_flashinfer,
        moe,
    )
    alone = told("qwen3-30b-a3b", all2all_backend=named)  # where no token leaves its rank
    assert (alone["all2all"].chosen, alone["moe"].chosen) == ("none", "TRITON")


@pytest.mark.parametrize(
    ("option", "named"), [("moe_backend", "triton_unfused"), ("attention_backend", "TRITON_FLASH_ATTN")]
)
def test_a_backend_without_a_row_is_neither_refused_nor_known_to_serve(option, named):
    choice = told("gpt-oss-20b", **{option: named})[option.removesuffix("_backend")]
    assert (choice.chosen, choice.is_flashinfer) == (named, None)
    assert choice.how.startswith(f"{option}={named} was asked for, of which the table does not know")


def test_a_backend_is_known_by_any_spelling_that_vllm_takes():
    assert told("qwen3-30b-a3b", moe_backend="FlashInfer-CUTLASS")["moe"].chosen == "FLASHINFER_CUTLASS"


@pytest.mark.parametrize(
    ("sm", "tp", "version", "found"),
    [
        (90, 8, "0.33.0", ("FLASHINFER", "FLASHINFER")),
        (90, 16, "0.33.0", ("PYNCCL", "none")),
        (90, 3, "0.33.0", ("PYNCCL", "none")),
        (90, 6, "0.33.0", ("CUSTOM", "none")),
        (100, 16, "0.33.0", ("", "")),
        (107, 4, "0.33.0", ("FLASHINFER", "FLASHINFER")),
        (120, 4, "0.33.0", ("CUSTOM", "none")),
        (90, 16, "0.28.0", ("PYNCCL", "none")),
        (90, 16, "0.20.2", ("PYNCCL", "none")),
    ],
)
def test_ranks_are_summed_by_flashinfer_where_vllm_has_a_limit_for_them(sm, tp, version, found):
    choices = told("deepseek-r1", sm, version, tensor_parallel_size=tp)
    assert (choices["allreduce"].chosen, choices["allreduce_fusion"].chosen) == found


@pytest.mark.parametrize("version", ["0.14.1", "0.20.2", "0.28.0", "0.33.0"])
def test_an_encoder_is_not_served_by_flashinfer(version):
    choice = told(BERT, 100, version)["attention"]
    assert choice.chosen == "FLASH_ATTN"
    why = {part.name: part.why for part in choice.rejected}["FLASHINFER"]
    assert why == "attention type ENCODER_ONLY not supported"


def test_whether_another_model_that_pools_attends_in_one_direction_is_not_known():
    assert told({**BERT, "architectures": ["LlamaModel"]}, 100)["attention"].chosen == ""
    assert told({**BERT, "architectures": ["LlamaForCausalLM"]}, 100)["attention"].chosen == "FLASHINFER"


def test_what_pools_and_what_gives_text():
    pooling = ("BertModel", "Qwen2ForRewardModel", "GteNewForSequenceClassification", "HF_ColBERT", "ColQwen3")
    assert [name for name in pooling if not pools(name)] == []
    text = (
        "LlamaForCausalLM",
        "QWenLMHeadModel",
        "ChatGLMModel",
        "InternVLChatModel",
        "UltravoxModel",
        "CohereForX",
        "",
    )
    assert [name for name in text if pools(name)] == []


def test_what_neither_release_tells_is_not_told_between_them():
    choice = told("llama-3.1-8b", version="0.24.0", kv_cache_dtype="turboquant_k8v4")["attention"]
    assert (choice.chosen, choice.how.endswith("0.24.0 was not read")) == ("", True)
    assert "choose alike" not in choice.how


@pytest.mark.parametrize(
    ("value", "version", "chosen"),
    [
        (None, "0.14.1", "PYTORCH"),
        ("1", "0.14.1", "FLASHINFER"),
        ("0", "0.14.1", "PYTORCH"),
        ("1", "0.20.2", "FLASHINFER"),
        ("1", "0.24.0", "FLASHINFER"),  # as the releases before and after it
        ("0", "0.24.0", "PYTORCH"),
        (None, "0.24.0", ""),
        ("0", "0.28.0", "PYTORCH"),
        (None, "0.33.0", "FLASHINFER"),
        ("0", "0.33.0", "PYTORCH"),
        ("true", "0.33.0", ""),  # vLLM cannot read it
    ],
)
def test_the_sampler_is_the_one_that_its_variable_names(value, version, chosen):
    variables = {} if value is None else {"VLLM_USE_FLASHINFER_SAMPLER": value}
    assert told("llama-3.1-8b", version=version, variables=variables)["sampling"].chosen == chosen


@pytest.mark.parametrize("version", ["0.14.1", "0.20.2", "0.28.0", "0.33.0"])
def test_what_was_not_read_for_a_gpu_is_not_told(version):
    assert {one.chosen for sm in (75, 110) for one in told("qwen3-30b-a3b", sm, version).values()} == {""}
    of_fp8 = [told("qwen3-30b-a3b-fp8", sm, version) for sm in (80, 89)]
    assert [(one["linear"].chosen, one["moe"].chosen) for one in of_fp8] == [("", "")] * 2
    assert {one["attention"].chosen for one in of_fp8} == {"FLASH_ATTN"}
    assert told("qwen3-30b-a3b", 89, version)["moe"].chosen == "TRITON"


@pytest.mark.parametrize(("value", "chosen"), [("0", "FLASHINFER"), ("1", "none"), ("2", "none"), ("x", "FLASHINFER")])
def test_a_batch_that_is_to_be_invariant_is_asked_for_by_a_number(value, chosen):
    variables = {"VLLM_BATCH_INVARIANT": value}  # bool(int(value)), and "x" is refused, which a finding says
    found = told("llama-3.1-8b", tensor_parallel_size=2, variables=variables)
    assert found["allreduce_fusion"].chosen == chosen
