# ruff: noqa: A002 - these are the signatures of FlashInfer
import torch

from flashinfer.faults import has, seen_first, spoil, spoil_lightly


def gemma_rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    given = out
    if out is None or has("out_ignored"):
        out = torch.full_like(input, float("nan"))
    module_gemma_rmsnorm(out, input, weight, eps, enable_pdl)
    return out.clone() if has("returns_copy") and given is not None else out


def module_gemma_rmsnorm(out, input, weight, eps, enable_pdl):
    x = seen_first("graph_keeps_input", input)
    weight_read = seen_first("graph_keeps_weight", weight)
    if has("strides_ignored"):
        x = input.as_strided(input.shape, (input.shape[-1], 1), input.storage_offset())
    result = _normalise(x.float(), weight_read, eps, out.dtype)
    if has("not_written") or seen_first.often("graph_does_nothing"):
        return
    rows = out.shape[0] - 1 if has("last_row_dropped") else out.shape[0]
    columns = out.shape[-1] - out.shape[-1] % 8 if has("tail_dropped") else out.shape[-1]
    out[:rows, :columns] = result[:rows, :columns]
    spoil(out)
    spoil_lightly(out)
    if has("input_changed"):
        input[0] += 1
    if has("weight_changed"):
        weight[0] += 1


def gemma_fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    return module_gemma_fused_add_rmsnorm(input, residual, weight, eps, enable_pdl)


def module_gemma_fused_add_rmsnorm(input, residual, weight, eps, enable_pdl):
    total = seen_first("graph_keeps_input", input).float()
    if not has("residual_not_added"):
        total = total + seen_first("graph_keeps_residual", residual).float()
    if has("sum_rounded_first"):  # allowed
        total = total.to(input.dtype).float()
    result = _normalise(total, weight, eps, input.dtype)
    if seen_first.often("graph_does_nothing"):
        return None
    rows = input.shape[0] - 1 if has("last_row_dropped") else input.shape[0]
    if not has("residual_not_written"):
        residual[:rows] = total.to(residual.dtype)[:rows]
    if not has("input_not_written"):
        input[:rows] = result[:rows]
    spoil(input)
    spoil_lightly(input)
    if has("residual_nan_element"):
        residual[-1, -1] = float("nan")
    if has("weight_changed"):
        weight[0] += 1
    return input if has("returns_tensor") else None


def _normalise(x, weight, eps, dtype):
    scale = (x.square().mean(-1, keepdim=True) + (0 if has("eps_ignored") else eps)).rsqrt()
    if has("eps_of_1e-6"):
        scale = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    if has("mean_over_too_many"):
        scale = (x.square().sum(-1, keepdim=True) / (x.shape[-1] + 1) + eps).rsqrt()
    factor = weight.float() + (0 if has("one_not_added") else 1)
    if has("one_added_in_dtype"):
        factor = (weight + 1).float()
    if has("rounded_twice"):
        return ((x * scale).to(dtype).float() * factor).to(dtype)
    return (x * scale * factor).to(dtype)
