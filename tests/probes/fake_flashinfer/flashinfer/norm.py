# ruff: noqa: A002 - these are the signatures of FlashInfer
import torch

from flashinfer._norm_gemma import gemma_fused_add_rmsnorm, gemma_rmsnorm  # noqa: F401 - it is here in FlashInfer
from flashinfer._norm_layer import layernorm  # noqa: F401 - it is here in FlashInfer
from flashinfer.faults import has, spoil
from flashinfer.graphs import live, stand_in_for_a_graph

__all__ = ["fused_add_rmsnorm", "rmsnorm", "stand_in_for_a_graph"]


def rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    given = out
    if out is None or has("out_ignored"):
        out = torch.full_like(input, float("nan"))
    module_rmsnorm(out, input, weight, eps, enable_pdl)
    if has("returns_copy") and given is not None:
        return out.clone()
    return out


def module_rmsnorm(out, input, weight, eps, enable_pdl):
    x, scale = live(input=input, weight=weight)
    if has("strides_ignored"):
        x = x.as_strided(x.shape, torch.empty(x.shape).stride(), x.storage_offset())
    result = _normalise(x.float(), scale, eps, out.dtype)
    if has("not_written"):
        return
    rows = out.shape[0] - 1 if has("last_row_dropped") else out.shape[0]
    columns = out.shape[-1] - out.shape[-1] % 8 if has("tail_dropped") else out.shape[-1]
    out[:rows, ..., :columns] = result[:rows, ..., :columns]
    spoil(out)
    if has("input_changed"):
        input[0] += 1
    if has("weight_changed"):
        weight[0] += 1


def fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    return module_fused_add_rmsnorm(input, residual, weight, eps, enable_pdl)


def module_fused_add_rmsnorm(input, residual, weight, eps, enable_pdl):
    x, addend, scale = live(input=input, residual=residual, weight=weight)
    total = x.float() + (0 if has("residual_not_added") else addend.float())
    if has("sum_rounded_first"):  # allowed
        total = total.to(input.dtype).float()
    result = _normalise(total, scale, eps, input.dtype)
    rows = input.shape[0] - 1 if has("last_row_dropped") else input.shape[0]
    if not has("residual_not_written"):
        residual[:rows] = total.to(residual.dtype)[:rows]
    if not has("input_not_written"):
        input[:rows] = result[:rows]
    spoil(residual if has("residual") else input)
    if has("residual_nan_element"):
        residual[-1, -1] = float("nan")
    if has("weight_changed"):
        weight[0] += 1
    return input if has("returns_tensor") else None


def _normalise(x, weight, eps, dtype):
    scale = (x.square().mean(-1, keepdim=True) + (0 if has("eps_ignored") else eps)).rsqrt()
    scaled = x * scale
    if has("rounded_twice"):
        scaled = scaled.to(dtype).float()
    if has("mean_over_too_many"):
        scaled = x * (x.square().sum(-1, keepdim=True) / (x.shape[-1] + 1) + eps).rsqrt()
    return (scaled if has("weight_ignored") else scaled * weight.float()).to(dtype)
