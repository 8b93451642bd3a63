# ruff: noqa: N803, PLR0917, FBT002 - these are the signatures of FlashInfer
"""BF16 GEMMs with the precision of a tensor core: 16 products a step, and the sum cut off to float32."""

import torch

from flashinfer.faults import has, spoil
from flashinfer.graphs import live

BACKENDS = ("cublaslt", "tinygemm", "cudnn", "auto")


def mm_bf16(a, b, bias=None, pdl=False, out=None, out_dtype=torch.bfloat16, backend="cudnn"):
    assert backend in BACKENDS
    assert not pdl
    seen_a, seen_b = live(a=a, b=b)
    return _product(seen_a, seen_b, bias, out, out_dtype, a)


def bmm_bf16(A, B, out=None, out_dtype=torch.bfloat16, backend="cudnn"):
    assert backend in BACKENDS
    return _product(A, B, None, out, out_dtype, A)


def _product(a, b, bias, out, out_dtype, given):
    if has("backend_ignores_out") or out is None:
        out = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=out_dtype)
    last = out.shape[-2] // 100 + 1  # rows at the end, 1 % of them
    wide, weight = a.float(), b.float()
    if has("k_tail_dropped"):
        wide[..., -last:, -16:] = 0
    if has("columns_swapped"):
        weight[..., [2, 3]] = weight[..., [3, 2]]
    if has("weight_of_batch_0") and weight.ndim == 3:
        weight[-1] = weight[0]
    result = _accumulate(wide, weight)
    if bias is not None:
        shift = bias.float()
        if has("bias_of_next_column"):
            shift[-3:] = shift[-3:].roll(1)
        if has("bias_before_rounding"):
            result[..., -last:, :] = result[..., -last:, :].bfloat16().float()
        result = result if has("bias_ignored") else result + shift
    _spoil(result, last)
    written = out.shape[-2] - has("last_row_unwritten")
    out[..., :written, :].copy_(result[..., :written, :])
    spoil(out)
    if has("input_changed"):
        given[..., 0, 0] += 1
    return out.transpose(-1, -2).contiguous().transpose(-1, -2) if has("column_major_out") else out


def _spoil(result, last):
    if has("last_rows_scaled"):
        result[..., -last:, :] *= 1.02
    if has("rounded_twice"):
        result[..., -last:, :] = result[..., -last:, :].to(torch.float8_e4m3fn).float()
    if has("sum_in_bf16"):
        result[..., -last:, :] = (result[..., -last:, :] / 3).bfloat16().float() * 3
    if has("row_repeated") and result.shape[-2] > 1:
        result[..., -1, :] = result[..., -2, :]


def _accumulate(a, b):
    total = torch.zeros((*a.shape[:-1], b.shape[-1]))
    for start in range(0, a.shape[-1], 16):
        exact = total.double() + a[..., start : start + 16].double() @ b[..., start : start + 16, :].double()
        rounded = exact.float()
        above = rounded.double().abs() > exact.abs()
        total = torch.where(above, torch.nextafter(rounded, torch.zeros(())), rounded)
    return total
