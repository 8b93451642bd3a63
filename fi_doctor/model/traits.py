"""What a selector of vLLM looks at in a model, a deployment and a GPU, as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict

from fi_doctor.model.deployments import AttentionLayers, Quantized, ServedModel

Trait = bool | int | str
SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
_FEW = 16  # platforms/cuda.py:110 (0.33.0)
# Architectures whose layers vLLM builds as EncoderOnlyAttention: models/bert.py, bert_with_rope.py, modernbert.py.
_ENCODERS = re.compile(r"(?:Modern|Nomic)?Bert(?=[A-Z])|(?:XLM)?Roberta(?=[A-Z])|Gte(?:New)?(?=[A-Z])")
# What pools, by the names in models/registry.py (0.33.0): LlamaModel, and not QWenLMHeadModel or InternVLChatModel.
_POOLS = re.compile(
    r".*(?<!Head|Chat|Omni)(?<!LM)(?<!Ultravox)(?<!MossAudio)(?<!Aquila)Model|(?:HF_)?Col[A-Z].*"
    r"|.*For(?:SequenceClassification|TokenClassification|MaskedLM|Retrieval|Ranking)"
)


class Traits(TypedDict):
    """What the conditions of the table of choices may ask."""

    sm: int
    major: int
    architecture: str  # of config.json, "DeepseekV32ForCausalLM"
    mla: bool
    sparse: bool  # MLA over the keys that an indexer picks
    sinks: bool
    window: bool
    head_size: int
    few_heads: bool  # at most 16 of queries on each rank
    encoder: bool  # its layers attend in both directions
    pools: bool  # it gives no text: embeddings, classes, scores
    kv_cache_dtype: str  # auto, as_model (the dtype that the model has), fp8, ...
    # none, fp8_block, fp8_channel, fp8_tensor (activations have one scale, which is stored), nvfp4, other
    linear: str
    experts: str  # those, mxfp4 and absent
    tp: int
    dp: int
    pp: int
    spread: bool  # experts over ranks: --enable-expert-parallel with more than one rank
    all2all: str  # what --all2all-backend names, where tokens go to experts of other data-parallel ranks; else auto
    eager: bool
    lora: bool
    batch_invariant: bool
    linear_attention: bool  # gated delta rule in some layers
    sampler: str  # VLLM_USE_FLASHINFER_SAMPLER: unset, enabled, disabled; other where vLLM cannot read it


def traits_of(model: ServedModel, options: Mapping[str, Any], sm: int) -> Traits:
    """Of a model with the options of `vllm serve` by their Python names (tensor_parallel_size, kv_cache_dtype).

    options may have `variables`: the environment of the server.
    """
    kinds = {layers.kind for layers in model.attention}
    attending = [layers for layers in model.attention if layers.head_size] or [AttentionLayers(kind="none", count=0)]
    tp, dp = int(options.get("tensor_parallel_size") or 1), int(options.get("data_parallel_size") or 1)
    given = str(options.get("kv_cache_dtype") or "auto")
    quantized = model.quantized
    spread = bool(options.get("enable_expert_parallel")) and tp * dp > 1
    # vLLM follows the checkpoint where --kv-cache-dtype is auto.
    cache = quantized.kv_cache or "auto" if given == "auto" and quantized else given
    return Traits(
        sm=sm,
        major=sm // 10,
        architecture=model.architecture,
        mla=bool(kinds & {"mla", "sparse_mla"}),
        sparse="sparse_mla" in kinds,
        sinks=any(layers.sinks for layers in attending),
        window="window" in kinds,
        head_size=attending[0].head_size,
        few_heads=attending[0].heads // tp <= _FEW,
        encoder=bool(_ENCODERS.match(model.architecture)),
        pools=pools(model.architecture),
        kv_cache_dtype="as_model" if cache and cache == model.dtype else cache,
        linear=_word(quantized) if quantized and quantized.linear else "none",
        experts=(_word(quantized) if quantized and quantized.experts else "none") if model.experts else "absent",
        tp=tp,
        dp=dp,
        pp=int(options.get("pipeline_parallel_size") or 1),
        spread=spread,
        all2all=str(options.get("all2all_backend") or "auto") if spread and dp > 1 else "auto",
        eager=bool(options.get("enforce_eager")),
        lora=bool(options.get("enable_lora")),
        batch_invariant=_switch((options.get("variables") or {}).get("VLLM_BATCH_INVARIANT")) == "enabled",
        linear_attention="gdn" in kinds,
        sampler=_switch((options.get("variables") or {}).get(SAMPLER)),
    )


def pools(architecture: str) -> bool:
    """Whether an architecture gives embeddings, classes or scores, and no text."""
    return bool(_POOLS.fullmatch(architecture))


def _switch(value: str | None) -> str:
    """A variable that vLLM reads as bool(int(value)), where it is set (envs.py of 0.14.1 to 0.33.0)."""
    if value is None:
        return "unset"
    try:
        return "enabled" if int(value) else "disabled"
    except ValueError:
        return "other"


def _word(quantized: Quantized) -> str:
    """How weights are quantised, in the words of Traits."""
    if quantized.weights == "fp8_block" and quantized.block not in ((), (128, 128)):
        return "other"
    if quantized.weights == "fp8_per_tensor" and quantized.dynamic:
        return "other"
    words = {"fp8_block": "fp8_block", "fp8_per_channel": "fp8_channel", "fp8_per_tensor": "fp8_tensor"}
    return words.get(quantized.weights, quantized.weights if quantized.weights in ("nvfp4", "mxfp4") else "other")
