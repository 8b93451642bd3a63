"""Reads what the constructed layers hold, beside what the selectors were heard to answer while they were constructed.

Loaded by selecting.py, beside which it lies. Every choice says how it is known; what is not known is said with why.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Callable
from typing import Any


def read(model: Any, watch: Any, result: dict[str, Any]) -> None:
    """Fill result["choices"] and result["unknown"] from a model that may be None."""
    modules = [(name, module) for name, module in model.named_modules()] if model is not None else []
    asked: tuple[tuple[str, Callable[[], list[dict[str, Any]]]], ...] = (
        ("attention", lambda: _attention(modules, watch)),
        ("moe", lambda: _experts(modules, watch)),
        ("linear", lambda: _linear(modules, watch)),
        ("mixer", lambda: _mixers(modules, watch)),
    )
    ask_all(asked, result)


def ask_all(asked: tuple[tuple[str, Callable[[], list[dict[str, Any]]]], ...], result: dict[str, Any]) -> None:
    """Each answer under its operator; what fails is said in its place."""
    for operator, ask in asked:
        try:
            result["choices"].extend(dict(found, operator=operator) for found in ask())
        except Exception as error:  # noqa: PERF203 - one selector's fault hides no other
            result["unknown"].append({"operator": operator, "why": f"{type(error).__name__}: {error}"[:500]})


def _attention(modules: list[Any], watch: Any) -> list[dict[str, Any]]:
    """One choice for each backend that layers hold; without layers, what the selector was heard to answer."""
    held: dict[tuple[str, str], list[str]] = {}
    for name, module in modules:
        backend = getattr(module, "attn_backend", None)
        if inspect.isclass(backend) and hasattr(module, "impl") and hasattr(backend, "get_name"):
            kind = _attention_kind(module)
            held.setdefault((backend.get_name(), kind), []).append(name)
    found = []
    for (backend, kind), names in held.items():
        records = _of_kind(kind, [heard for heard in watch.attention if _name_of(heard.get("path", "")) == backend])
        found.append(
            {
                "chosen": backend,
                "layers": kind,
                "count": len(names),
                "rejected": _union([part for heard in records for part in _passed_over(backend, heard)]),
                "valid": records[0].get("valid", []) if records else [],
                "asked": [heard["asked"] for heard in records],
                "how": "read from the constructed layers; asked vLLM's selector: "
                + (records[0]["where"] if records else "?"),
            }
        )
    if not held:
        for heard in watch.attention:
            name = _name_of(heard.get("path", "")) or "none"
            found.append(
                {
                    "chosen": name,
                    "layers": "asked before the model failed",
                    "rejected": _passed_over(name, heard),
                    "valid": heard.get("valid", []),
                    "asked": [heard["asked"]],
                    "error": heard.get("error", ""),
                    "how": "asked vLLM's selector: " + heard["where"],
                }
            )
    return found


def _of_kind(kind: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls for layers of this kind, where calls for windows can be told from the others."""
    windowed = [heard for heard in records if "has_sliding_window" in heard["asked"]]
    rest = [heard for heard in records if heard not in windowed]
    return (windowed if kind == "window layers" else rest) or records


def _passed_over(chosen: str, heard: dict[str, Any]) -> list[dict[str, str]]:
    """Who could not serve, with vLLM's reasons, and who could and stands behind the chosen one in vLLM's order."""
    behind = [name for name in heard.get("valid", ()) if name != chosen]
    return [
        *heard.get("rejected", ()),
        *({"name": name, "why": f"could serve; vLLM's order has {chosen} before it"} for name in behind),
    ]


def _attention_kind(module: Any) -> str:
    if getattr(module, "use_mla", False) or "MLA" in type(module).__name__:
        return "MLA"
    window = getattr(module, "sliding_window", None)
    return "window layers" if window else "full attention layers"


def _name_of(path: str) -> str:
    """The name that a backend class gives itself; the selector answers with the class's dotted path."""
    if not path:
        return ""
    module, _, name = path.rpartition(".")
    try:
        return str(getattr(importlib.import_module(module), name).get_name())
    except Exception:
        return name


def _experts(modules: list[Any], watch: Any) -> list[dict[str, Any]]:
    held: dict[tuple[str, str, str], list[str]] = {}
    for name, module in modules:
        method = getattr(module, "quant_method", None)
        if method is None or "MoE" not in "".join(kind.__name__ for kind in type(method).__mro__):
            continue
        chosen = _backend_of(method)
        experts = getattr(method, "experts_cls", None)
        held.setdefault((chosen, type(method).__name__, getattr(experts, "__name__", "")), []).append(name)
    chosen_names = {experts for _, _, experts in held}
    rejected = _union([heard for heard in watch.experts if heard["why"] and heard["name"] not in chosen_names])
    places = sorted({heard["where"] for heard in watch.experts})
    return [
        {
            "chosen": chosen,
            "layers": "experts",
            "count": len(names),
            "class": experts,
            "method": method,
            "held": {},
            "rejected": rejected,
            "how": f"read from the constructed layers: {method}" + (f"; reasons: {places[0]}" if places else ""),
        }
        for (chosen, method, experts), names in held.items()
    ]


def _backend_of(method: Any) -> str:
    """The name of the backend that a quantisation method holds, as vLLM's enum has it."""
    for name in sorted(vars(method)):
        value = vars(method)[name]
        if isinstance(value, enum.Enum) and "backend" in name.lower() and "Backend" in type(value).__name__:
            return value.name
    for name in sorted(vars(method)):
        if "backend" in name.lower() and isinstance(vars(method)[name], str):
            return str(vars(method)[name])
    # 0.14: no enum for experts that are not quantised (unquantized_fused_moe_method.py:68).
    if hasattr(method, "flashinfer_cutlass_moe_enabled"):
        return "FLASHINFER_CUTLASS" if method.flashinfer_cutlass_moe_enabled else "TRITON"
    return ""


def _linear(modules: list[Any], watch: Any) -> list[dict[str, Any]]:
    held: dict[tuple[str, str], list[str]] = {}
    state: dict[tuple[str, str], dict[str, str]] = {}
    for name, module in modules:
        method = getattr(module, "quant_method", None)
        bases = "".join(kind.__name__ for kind in type(method).__mro__)
        if method is None or "LinearMethod" not in bases or "Embedding" in type(method).__name__:
            continue
        holders = (method, getattr(module, "scheme", None))
        kernel = next(filter(None, map(_kernel_of, holders)), "") or next(filter(None, map(_operator_of, holders)), "")
        key = (kernel or _backend_of(method), type(getattr(module, "scheme", None) or method).__name__)
        held.setdefault(key, []).append(name)
        state.setdefault(key, _state(method))
    found = []
    for (kernel, method), names in held.items():
        rejected = _union([heard for heard in watch.linear if heard["why"] and heard["name"] != kernel])
        places = sorted({heard["where"] for heard in watch.linear if heard["name"] == kernel})
        found.append(
            {
                "chosen": kernel or method,
                "layers": _which(names),
                "count": len(names),
                "method": method,
                "held": state[(kernel, method)],
                "rejected": rejected if kernel else [],
                "how": f"read from the constructed layers: {method}" + (f"; {places[0]}" if places else ""),
            }
        )
    return found


def _kernel_of(holder: Any) -> str:
    for value in vars(holder).values() if holder is not None and hasattr(holder, "__dict__") else ():
        kind = type(value)
        if any(
            parent.__name__.endswith("LinearKernel") or parent.__name__.endswith("MMKernel") for parent in kind.__mro__
        ):
            return kind.__name__
    return ""


def _operator_of(holder: Any) -> str:
    """What releases before the kernel classes call instead, as W8A8BlockFp8LinearOp.apply and its like decide."""
    block = getattr(holder, "w8a8_block_fp8_linear", None)
    if block is not None:
        if block.is_deep_gemm_supported:
            return "_run_flashinfer" if block.is_flashinfer_supported else "_run_deepgemm"
        return str(getattr(block.w8a8_blockscale_op, "__name__", ""))
    plain = getattr(holder, "fp8_linear", None)
    if plain is None or not hasattr(plain, "preferred_backend"):
        return ""
    utils = importlib.import_module("vllm.model_executor.layers.quantization.utils.w8a8_utils")
    tensor = "tensor" in str(getattr(holder, "strategy", "tensor")).lower()
    whole = tuple(plain.act_quant_group_shape) == (-1, -1)  # GroupShape.PER_TENSOR
    chosen = utils.dispatch_w8a8_scaled_mm(plain.preferred_backend, tensor, whole)
    return str(getattr(chosen, "__name__", ""))


def _state(method: Any) -> dict[str, str]:
    """The plain values that a method holds, one level into its operators: older releases have no kernel classes."""
    found = {}
    for name, value in sorted(vars(method).items()):
        if isinstance(value, (bool, str, int)) or inspect.isfunction(value) or inspect.ismethod(value):
            found[name] = getattr(value, "__name__", str(value))
        elif type(value).__name__.endswith("LinearOp"):
            found.update({f"{name}.{key}": part for key, part in _state(value).items()})
    return found


def _which(names: list[str]) -> str:
    parts = sorted({name.rpartition(".")[2] for name in names})
    return ", ".join(parts[:6]) + (", ..." if len(parts) > 6 else "")


def _mixers(modules: list[Any], watch: Any) -> list[dict[str, Any]]:
    """Layers that are neither attention nor experts and choose a kernel: those of the gated delta rule, for prefill."""
    del watch
    found: dict[str, list[str]] = {}
    for _, module in modules:
        if "GatedDelta" in type(module).__name__ and hasattr(module, "A_log"):
            found.setdefault(_rule_of(module), []).append(type(module).__name__)
    return [
        {
            "chosen": chosen,
            "layers": "gated delta rule",
            "count": len(kinds),
            "class": kinds[0],
            "rejected": [],
            "how": f"read from the constructed layers: {kinds[0]}",
        }
        for chosen, kinds in found.items()
    ]


def _rule_of(module: Any) -> str:
    """flashinfer, cutedsl or triton, as later releases call them; before, two methods of which one is FlashInfer's."""
    rule = getattr(module, "chunk_gated_delta_rule", None)
    if rule is None:  # a release in which Triton's function, imported by the model's file, is all there is
        function: Any = vars(importlib.import_module(type(module).__module__)).get("chunk_gated_delta_rule")
        return "triton" if ".fla." in getattr(function, "__module__", "") else ""
    named = str(getattr(rule, "gdn_prefill_backend", ""))
    forward = getattr(getattr(rule, "_forward_method", None), "__name__", "")
    return named or {"forward_cuda": "flashinfer", "forward_native": "triton"}.get(forward, forward)


def _union(parts: list[dict[str, str]]) -> list[dict[str, str]]:
    """Each rejected candidate with each of its reasons once, in the order in which they were tried."""
    seen: dict[str, list[str]] = {}
    for part in parts:
        lines = seen.setdefault(part["name"], [])
        lines.extend(line for line in dict.fromkeys(part["why"].split("; ")) if line not in lines)
    return [{"name": name, "why": "; ".join(lines)} for name, lines in seen.items()]
