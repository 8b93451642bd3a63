"""The layers of a model by its configuration: kinds of attention with their sizes, and experts."""

from __future__ import annotations

from collections import Counter

from fi_doctor.facts.config_fields import Fields
from fi_doctor.model import AttentionLayers, Experts

MOST_LAYERS = 4096
_MOST_HEADS = 1 << 16
# What transformers calls layers in layer_types -> our word.
_TYPES = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "sliding_window_attention": "window",
    "local_attention": "window",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "conv": "linear",
}
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts")
_GDN = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4")
_MAMBA = ("mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "nemotron_h", "zamba2", "falcon_h1", "granitemoehybrid")
# Whose attention vLLM takes for MLA where they have a kv_lora_rank (model_arch_config_convertor.py, 0.14.1 to 0.33.0).
_MLA = (
    "axk1",
    "bailing_hybrid",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "dots3_note",
    "glm4_moe_lite",
    "glm5_next",
    "glm5_next_text",
    "glm_moe_dsa",
    "hy_v4",
    "kimi_k2",
    "kimi_linear",
    "longcat_flash",
    "pangu_ultra_moe",
)
_PLAIN = (64, 128, 192)  # elements of a head that are not rotated (flashinfer_mla.py, 0.20.2 to 0.33.0)
_ALWAYS_SINKS = ("gpt_oss",)  # whose sinks no field tells of: they are weights of every layer


def read_attention(text: Fields) -> tuple[AttentionLayers, ...]:
    """Kinds of layers, in the order in which they first come; nothing where sizes are not told."""
    layers = text.number(*_LAYERS, most=MOST_LAYERS)
    if layers is None:
        return ()
    if "kv_lora_rank" in text:
        kind = text.word("model_type")
        if kind in _MLA:
            return _mla(text, layers)
        text.unread["kv_lora_rank"] = f"MLA is not known of a model_type {kind[:60]!r}"
    sizes = _sizes(text)
    kinds = _kinds(text, layers)
    if sizes is None and any(kind in ("full", "window", "chunked") for kind in kinds):
        return ()
    return tuple(_layer(text, kind, count, sizes or {}) for kind, count in Counter(kinds).items())


def read_experts(text: Fields) -> Experts | None:
    """None of a model without experts."""
    count = text.number("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts", most=1 << 16)
    if count is None or count < 2:
        return None
    layers = text.number(*_LAYERS, most=MOST_LAYERS) or 0
    dense = text.number("first_k_dense_replace", "moe_layer_start_index", least=0, most=MOST_LAYERS) or 0
    step = text.number("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", most=MOST_LAYERS) or 1
    only_dense = len(text.numbers("mlp_only_layers"))
    return Experts(
        count=count,
        active=text.number(*_ACTIVE, most=count) or 1,
        layers=max((layers - dense) // step - only_dense, 0),
        width=text.number("moe_intermediate_size", "expert_intermediate_size", "intermediate_size", most=1 << 24) or 0,
        shared=text.number("n_shared_experts", "num_shared_experts", least=0, most=1 << 10) or 0,
    )


def _mla(text: Fields, layers: int) -> tuple[AttentionLayers, ...]:
    latent = text.number("kv_lora_rank", most=1 << 16) or 0
    rotary = text.number("qk_rope_head_dim", least=0, most=1 << 12) or 0
    kda = text.below("linear_attn_config")
    linear = len(kda.numbers("kda_layers")) if kda else 0
    heads = text.number("num_attention_heads", "n_head", most=_MOST_HEADS) or 0
    plain = text.number("qk_nope_head_dim", most=1 << 12)
    if plain is not None and plain not in _PLAIN:
        text.unread["qk_nope_head_dim"] = f"{plain} is none of the sizes that vLLM's kernels for MLA are known to have"
    kind = "sparse_mla" if "index_topk" in text else "mla"
    found = [
        AttentionLayers(kind="kda", count=min(linear, layers), heads=kda.number("num_heads", most=_MOST_HEADS) or 0)
        for kda in [kda]
        if kda and linear
    ]
    if layers > linear:
        found.append(
            AttentionLayers(
                kind=kind, count=layers - linear, heads=heads, kv_heads=1, head_size=latent + rotary, value_size=latent
            )
        )
    return tuple(found)


def _sizes(text: Fields) -> dict[str, int] | None:
    heads = text.number("num_attention_heads", "n_head", "num_heads", "n_heads", most=_MOST_HEADS)
    hidden = text.number("hidden_size", "d_model", "n_embd", "dim", most=1 << 20)
    head_size = text.number("head_dim", "attention_head_dim", most=1 << 14)
    if heads is None or (head_size is None and hidden is None):
        return None
    kv_heads = text.number("num_key_value_heads", "n_head_kv", "num_kv_heads", "n_kv_heads", most=_MOST_HEADS)
    if kv_heads is None:
        kv_heads = 1 if text.flag("multi_query") else heads
    head_size = head_size or (hidden or 0) // heads
    value_size = text.number("v_head_dim", "value_head_dim", most=1 << 14) or head_size
    return {"heads": heads, "kv_heads": kv_heads, "head_size": head_size, "value_size": value_size}


def _kinds(text: Fields, layers: int) -> list[str]:
    """The kind of each layer."""
    linear = "gdn" if text.word("model_type") in _GDN or "linear_num_key_heads" in text else "linear"
    if types := text.words("layer_types", "layers_block_type"):
        for name in sorted({name for name in types if name not in _TYPES}):
            text.unread["layer_types"] = f"{name[:60]!r} is a kind of layer that is not known"
        if len(types) != layers:
            text.unread["layer_types"] = f"{len(types)} kinds for {layers} layers"
        kinds = (_TYPES.get(name, "unknown") for name in types)
        return [linear if kind == "linear" else kind for kind in kinds][:layers]
    if pattern := text.word("hybrid_override_pattern"):  # Nemotron-H: M, * and - for Mamba, attention, MLP
        return [{"M": "mamba", "*": "full"}[sign] for sign in pattern if sign in "M*"]
    if interval := text.number("full_attention_interval", most=MOST_LAYERS):
        return _each(layers, interval, "full", linear)
    if period := text.number("attn_layer_period", most=MOST_LAYERS):  # Jamba
        offset = text.number("attn_layer_offset", least=0, most=MOST_LAYERS) or 0
        return ["full" if number % period == offset else "mamba" for number in range(layers)]
    if text.word("model_type") in _MAMBA and "num_attention_heads" not in text:
        return ["mamba"] * layers
    return _windows(text, layers) if _window(text) else ["full"] * layers


def _windows(text: Fields, layers: int) -> list[str]:
    if period := text.number("sliding_window_pattern", "_sliding_window_pattern", most=MOST_LAYERS):
        return _each(layers, period, "full", "window")  # Gemma 3
    if text.word("model_type") == "gemma2":
        return _each(layers, 2, "full", "window")
    whole = text.number("max_window_layers", least=0, most=MOST_LAYERS)  # Qwen2: the first so many see all
    if whole is not None and text.flag("use_sliding_window"):
        return ["full" if number < whole else "window" for number in range(layers)]
    return ["window"] * layers


def _each(layers: int, period: int, last: str, others: str) -> list[str]:
    """Of each so many layers the last is of another kind."""
    return [others if (number + 1) % period else last for number in range(layers)]


def _window(text: Fields) -> int:
    """Tokens that a token of such a layer attends to; 0 where it is switched off or not told."""
    if not text.flag("use_sliding_window", default=True):
        return 0
    return text.number("sliding_window", "sliding_window_size", "attention_window_size") or 0


def _layer(text: Fields, kind: str, count: int, sizes: dict[str, int]) -> AttentionLayers:
    if kind not in ("full", "window", "chunked"):
        heads = text.number("linear_num_value_heads", "mamba_n_heads", "mamba_num_heads", "num_heads", most=_MOST_HEADS)
        return AttentionLayers(kind=kind, count=count, heads=heads or 0)
    window = {"window": _window(text), "chunked": text.number("attention_chunk_size") or 0}.get(kind, 0)
    if kind == "full" and "global_head_dim" in text:
        head_size = text.number("global_head_dim", most=1 << 14) or sizes["head_size"]
        sizes = {**sizes, "head_size": head_size, "value_size": head_size}
    told = "add_swa_attention_sink_bias" if kind == "window" else "add_full_attention_sink_bias"
    return AttentionLayers(
        kind=kind,
        count=count,
        window=window,
        sinks=text.word("model_type") in _ALWAYS_SINKS or text.flag(told),
        soft_cap=text.real("attn_logit_softcapping", "attn_logit_soft_cap") or 0.0,
        **sizes,
    )
