"""Tiny models that take the kernels of the one that is to be served, and what starting them tells of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from fi_doctor.model import Missing
from fi_doctor.model.choices import Choice, Served
from fi_doctor.model.deployed import Wanted

# Keys of config.json. Periods: of so many layers one is of another kind, so that fewer would leave a kind out.
_PERIODS = ("full_attention_interval", "sliding_window_pattern", "decoder_sparse_step", "moe_layer_freq")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_ACTIVE = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k")
_WIDTHS = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")
_EXPERTS_KEPT = 64  # and what their number is more than a multiple of it: the gate is a linear layer of that width
_LAYERS = 2
_QUANTIZED: tuple[Served, ...] = ("moe", "linear")  # operators that depend on how weights are stored


class Tiny(NamedTuple):
    """A model to start, and the operators of which it tells."""

    operators: tuple[Served, ...]
    config: dict[str, Any]
    words: str  # how it differs from the one that is to be served


def models(wanted: Wanted) -> tuple[Tiny, ...] | Missing:
    """One for attention, without quantised weights, and one for experts and linear layers with them.

    Sizes that selectors look at stay: those of heads, of the hidden state, and of one rank's share of the experts.
    Where weights are not quantised one model tells of all. A kernel that ends one leaves the other.
    """
    if not isinstance(wanted.config.get("num_hidden_layers"), int):
        return Missing(reason="its configuration has several parts, and no tiny model is made of those")
    whole, words = _small(wanted.config, wanted.deployment.tensor_parallel)
    operators: tuple[Served, ...] = ("attention", "mixer", "sampling")
    moe: tuple[Served, ...] = ("moe",) if wanted.model.experts is not None and not _is_spread(wanted) else ()
    if "quantization_config" not in whole:
        return (Tiny((*operators, *moe, "linear"), whole, words),)
    plain = {key: value for key, value in whole.items() if key != "quantization_config"}
    return Tiny(operators, plain, f"{words}, weights not quantised"), Tiny((*moe, "linear"), whole, words)


def engine_of(options: Mapping[str, object]) -> dict[str, object]:
    """The options of the deployment with which a tiny model is started, on one GPU."""
    left_out = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel")
    return {name: value for name, value in options.items() if name not in (*left_out, "variables")}


def limits(wanted: Wanted) -> tuple[str, ...]:
    """What starting a tiny model on one GPU does not tell, each in a sentence."""
    served = wanted.deployment
    found = []
    if served.world_size * served.data_parallel > 1:
        found.append(
            "all-reduce and all-to-all were not measured: a tiny model is one rank's share, started on one GPU, since "
            "several would use multicast objects, which fi-doctor does not touch"
        )
    if _is_spread(wanted) and wanted.model.experts is not None:
        found.append("experts were not measured: spread over ranks they choose by the number of these")
    return tuple(found)


def with_measured(
    predicted: tuple[Choice, ...], measured: Iterable[Choice], operators: Iterable[Served]
) -> tuple[Choice, ...]:
    """The choices, those of these operators as they were measured; what had been predicted otherwise is told."""
    found = [one for one in measured if one.operator in set(operators)]
    names: dict[str, list[str]] = {}
    for one in predicted:
        names.setdefault(one.operator, []).append(one.chosen)
    seen = {one.operator: {each.chosen for each in found if each.operator == one.operator} for one in found}
    told = tuple(
        replace(one, predicted=", ".join(filter(None, dict.fromkeys(names.get(one.operator, ())))))
        if set(names.get(one.operator, ())) != seen[one.operator]
        else one
        for one in found
    )
    order = list(dict.fromkeys(one.operator for one in (*predicted, *told)))
    kept = [one for one in predicted if one.operator not in seen]
    return tuple(sorted((*told, *kept), key=lambda one: order.index(one.operator)))


def _is_spread(wanted: Wanted) -> bool:
    served = wanted.deployment
    return served.expert_parallel and served.tensor_parallel * served.data_parallel > 1


def _small(config: Mapping[str, Any], ranks: int) -> tuple[dict[str, Any], str]:
    """The configuration with few layers and experts and one rank's share of their widths, and that in words."""
    small = dict(config)
    count = int(config["num_hidden_layers"])
    layers = min(count, _layers(config))
    for key, value in config.items():
        if isinstance(value, list) and len(value) == count:
            small[key] = value[:layers]  # a word for each layer
    small["num_hidden_layers"] = layers
    said = [f"{layers} of {count} layers"]
    dense = config.get("first_k_dense_replace")
    if isinstance(dense, int) and dense > 1:
        small["first_k_dense_replace"] = 1
    for key in _EXPERTS:
        experts = _number(config, key)
        kept = _EXPERTS_KEPT + experts % _EXPERTS_KEPT
        if experts > kept >= max(_number(config, name) for name in _ACTIVE):
            small[key] = kept
            said.append(f"{kept} of {experts} experts")
    for key in _WIDTHS:
        width = config.get(key)
        if isinstance(width, int) and ranks > 1 and width % ranks == 0:
            small[key] = width // ranks
    said += [f"one rank of {ranks}"] if ranks > 1 else []
    return small, ", ".join(said)


def _layers(config: Mapping[str, Any]) -> int:
    """So many from the first on that each kind of layer is among them."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        return max(_LAYERS, max(kinds.index(kind) for kind in kinds) + 1)
    periods = [_number(config, key) for key in _PERIODS]
    return max(_LAYERS, *periods)


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) else 0
