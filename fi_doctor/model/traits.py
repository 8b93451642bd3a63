"""What a selector of vLLM looks at in a model, a deployment and a GPU, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

Trait = bool | int | str


class Traits(TypedDict):
    """What the conditions of the table of choices may ask."""

    sm: int
    major: int
    mla: bool
    sinks: bool
    window: bool
    head_size: int
    kv_cache_dtype: str  # auto, fp8, ...
    linear: str  # none, fp8_block, fp8_channel, fp8_tensor, nvfp4, other
    experts: str  # absent, none, fp8_block, fp8_tensor, nvfp4, mxfp4, other
    tp: int
    dp: int
    pp: int
    spread: bool  # experts over ranks: --enable-expert-parallel with more than one rank
    eager: bool
    lora: bool
    batch_invariant: bool
    linear_attention: bool  # gated delta rule in some layers


def traits_of(model: Mapping[str, Any], options: Mapping[str, Any], sm: int) -> Traits:
    """From config.json and the options of `vllm serve` by their Python names (tensor_parallel_size, kv_cache_dtype).

    options may have `variables`: the environment of the server.
    """
    text = model.get("text_config") or model
    linear, experts = _quantisation(model)
    count = next((text[key] for key in ("num_local_experts", "num_experts", "n_routed_experts") if text.get(key)), 0)
    heads = int(text.get("num_attention_heads") or 1)
    mla = bool(text.get("kv_lora_rank"))
    head = int(text.get("head_dim") or int(text.get("hidden_size") or 0) // heads)
    tp, dp = int(options.get("tensor_parallel_size") or 1), int(options.get("data_parallel_size") or 1)
    given = str(options.get("kv_cache_dtype") or "auto")
    return Traits(
        sm=sm,
        major=sm // 10,
        mla=mla,
        sinks=text.get("model_type") == "gpt_oss",
        window=bool(text.get("sliding_window")) and text.get("use_sliding_window") is not False,
        head_size=int(text["kv_lora_rank"]) + int(text.get("qk_rope_head_dim") or 0) if mla else head,
        kv_cache_dtype=_cache_dtype(model) if given == "auto" else given,
        linear=linear,
        experts=experts if count else "absent",
        tp=tp,
        dp=dp,
        pp=int(options.get("pipeline_parallel_size") or 1),
        spread=bool(options.get("enable_expert_parallel")) and tp * dp > 1,
        eager=bool(options.get("enforce_eager")),
        lora=bool(options.get("enable_lora")),
        batch_invariant=str((options.get("variables") or {}).get("VLLM_BATCH_INVARIANT", "0")) == "1",
        linear_attention=bool(text.get("linear_num_value_heads")),
    )


def _quantisation(model: Mapping[str, Any]) -> tuple[str, str]:
    """How linear layers and experts are quantised, in the words of Traits."""
    config = model.get("quantization_config") or {}
    method, algorithm = str(config.get("quant_method", "")), str(config.get("quant_algo", ""))
    if not config:
        return "none", "none"
    if method == "mxfp4":
        return "none", "mxfp4"
    if "NVFP4" in algorithm.upper():
        return "nvfp4", "nvfp4"
    if method == "fp8":
        word = "fp8_block" if config.get("weight_block_size") == [128, 128] else "fp8_tensor"
        return word, word
    if method == "compressed-tensors":
        groups = (config.get("config_groups") or {}).values()
        weights = next((group.get("weights") or {} for group in groups), {})
        if weights.get("num_bits") == 8 and weights.get("type") == "float" and weights.get("strategy") == "channel":
            return "fp8_channel", "fp8_channel"
    return "other", "other"


def _cache_dtype(model: Mapping[str, Any]) -> str:
    """What the checkpoint asks for; vLLM follows it when --kv-cache-dtype is auto."""
    scheme = (model.get("quantization_config") or {}).get("kv_cache_scheme") or {}
    return "fp8" if scheme.get("num_bits") == 8 and scheme.get("type") == "float" else "auto"
