"""How a checkpoint is quantised, by quantization_config as the tools that write it have it.

Methods and their words: vllm/model_executor/layers/quantization (0.33.0): fp8.py, modelopt.py, mxfp4.py,
compressed_tensors/, awq.py, gptq.py.
"""

from __future__ import annotations

from fi_doctor.facts.config_fields import Fields
from fi_doctor.model import Quantized

_LINEAR = ("linear", "self_attn", "q_proj", "qkv", "o_proj", "gate_proj", "down_proj", "attn")
_DENSE = ("linear", "gate_proj", "down_proj", "shared_expert", "mlp.*")
_EXPERTS = ("expert", "moe", "block_sparse")
# ModelOpt's quant_algo -> weights, activations.
_MODELOPT = {
    "FP8": ("fp8_per_tensor", "fp8"),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8_per_channel", "fp8"),
    "FP8_PB_WO": ("fp8_block", "fp8"),
    "NVFP4": ("nvfp4", "nvfp4"),
    "NVFP4_AWQ": ("nvfp4", "nvfp4"),
    "W4A16_NVFP4": ("nvfp4", ""),
    "MXFP8": ("mxfp8", "mxfp8"),
    "W4A16_MXFP4": ("mxfp4", ""),
}
_SHORT = {"awq": 4, "gptq": 4, "awq_marlin": 4, "gptq_marlin": 4, "auto-round": 4}


def read_quantized(whole: Fields, text: Fields) -> Quantized | None:
    """None of a model that is not quantised."""
    found = whole.below("quantization_config", "compression_config")
    if found is None:
        found = text.below("quantization_config", "compression_config")
    if found is None or not found.names():
        return None
    method = found.word("quant_method").lower()
    if "quant_algo" in found or method.startswith("modelopt"):
        return _modelopt(found, text)
    if method == "compressed-tensors" or "config_groups" in found:
        return _compressed(found, text, method or "compressed-tensors")
    if method in ("fp8", "fbgemm_fp8"):
        block = found.numbers("weight_block_size")
        weights = "fp8_block" if block else "fp8_per_channel" if method == "fbgemm_fp8" else "fp8_per_tensor"
        dynamic = (found.word("activation_scheme") or "dynamic") == "dynamic"
        return Quantized(method=method, weights=weights, activations="fp8", block=block, dynamic=dynamic)
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        left_out = " ".join(found.words("modules_to_not_convert"))
        return Quantized(method="mxfp4", weights="mxfp4", linear=not any(word in left_out for word in _LINEAR))
    if method in _SHORT:
        bits = found.number("bits", "w_bit", most=16) or _SHORT[method]
        return Quantized(method=method, weights=f"int{bits}")
    return Quantized(method=method or "unknown", weights="unknown")


def _modelopt(found: Fields, text: Fields) -> Quantized:
    algorithm = found.word("quant_algo").upper()
    weights, activations = _MODELOPT.get(algorithm, ("unknown", ""))
    scheme = found.below("kv_cache_scheme")
    cache = found.word("kv_cache_quant_algo").lower() if scheme is None else _cache(scheme)
    left_out = " ".join((*found.words("exclude_modules", "ignore"),))
    return Quantized(
        method="modelopt",
        weights=weights,
        activations=activations,
        kv_cache=cache,
        linear=_has_linear(left_out, text),
        experts=not _leaves_out(left_out, _EXPERTS),
    )


def _compressed(found: Fields, text: Fields, method: str) -> Quantized:
    groups = found.below("config_groups")
    named = [group for name in groups.names() if (group := groups.below(name))] if groups else []
    kinds = {_of_group(group) for group in named}
    scheme = found.below("kv_cache_scheme")
    left_out = " ".join(found.words("ignore"))
    targets = " ".join(target for group in named for target in group.words("targets"))
    # The group of the experts, or the first: a model of several formats is the exception.
    weights, activations, block = next(iter(sorted(kinds)), ("unknown", "", ()))
    if len(kinds) > 1:
        found.unread["config_groups"] = f"{len(kinds)} formats in one checkpoint: {weights} is taken for all"
    return Quantized(
        method=method,
        weights=weights,
        activations=activations,
        dynamic=any(inputs.flag("dynamic") for group in named if (inputs := group.below("input_activations"))),
        block=block,
        kv_cache=_cache(scheme) if scheme else "",
        linear=_has_linear(left_out, text) and not (targets and _only_experts(targets)),
        experts=not _leaves_out(left_out, _EXPERTS),
    )


def _of_group(group: Fields) -> tuple[str, str, tuple[int, ...]]:
    """Weights, activations and block of one group."""
    weights, inputs = group.below("weights"), group.below("input_activations")
    if weights is None:
        return "unknown", "", ()
    bits, kind = weights.number("num_bits", most=64) or 0, weights.word("type")
    strategy, size = weights.word("strategy"), weights.number("group_size", least=-1, most=1 << 16) or 0
    block = weights.numbers("block_structure")
    if kind == "float" and bits == 8:
        word = {"block": "fp8_block", "tensor": "fp8_per_tensor", "channel": "fp8_per_channel"}.get(strategy, "unknown")
        word = "mxfp8" if strategy == "group" and size == 32 else word
    elif kind == "float" and bits == 4:
        word = "mxfp4" if size == 32 else "nvfp4"
    else:
        word = f"int{bits}" if bits else "unknown"
    return word, _activations(inputs, word), block


def _activations(inputs: Fields | None, weights: str) -> str:
    if inputs is None:
        return ""
    bits, kind = inputs.number("num_bits", most=64) or 0, inputs.word("type")
    if kind == "float":
        return {8: "mxfp8" if weights == "mxfp8" else "fp8", 4: "nvfp4" if weights == "nvfp4" else "mxfp4"}.get(
            bits, ""
        )
    return f"int{bits}" if bits else ""


def _cache(scheme: Fields) -> str:
    bits, kind = scheme.number("num_bits", most=64), scheme.word("type")
    return {(8, "float"): "fp8", (4, "float"): "nvfp4"}.get((bits or 0, kind), "")


def _leaves_out(names: str, kinds: tuple[str, ...]) -> bool:
    """Whether patterns of modules that stay as they are name all layers of a kind: "re:.*self_attn.*"."""
    return any(word in names and ("*" in names) for word in kinds)


def _has_linear(left_out: str, text: Fields) -> bool:
    """Whether layers beside the experts are quantised: all, or, where attention is left out, those of dense MLPs."""
    if not _leaves_out(left_out, _LINEAR):
        return True
    dense = text.number("first_k_dense_replace", least=0) or text.number("n_shared_experts", least=0)
    return bool(dense) and not _leaves_out(left_out, _DENSE)


def _only_experts(targets: str) -> bool:
    return any(word in targets for word in _EXPERTS) and "Linear" not in targets
