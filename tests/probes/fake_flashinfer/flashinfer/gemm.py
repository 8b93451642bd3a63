# ruff: noqa: PLR0917, N803 - these are the signatures of FlashInfer
"""FP8 GEMMs with the precision of a tensor core."""

import torch

from flashinfer._gemm_bf16 import bmm_bf16, mm_bf16
from flashinfer._gemm_block import fp8_blockscale_gemm_sm90
from flashinfer._gemm_parts import accumulate, stand_in_for_a_graph
from flashinfer.faults import has, spoil
from flashinfer.graphs import live

__all__ = ["bmm_bf16", "bmm_fp8", "fp8_blockscale_gemm_sm90", "mm_bf16", "stand_in_for_a_graph"]


def bmm_fp8(A, B, A_scale, B_scale, dtype, out=None, backend="cublas"):
    if has("backend_ignores_out") or out is None:
        out = torch.empty((A.shape[0], A.shape[1], B.shape[2]), dtype=dtype)
    a, b, a_scale, b_scale = live(a=A, b=B, a_scale=A_scale, b_scale=B_scale)
    last = out.shape[1] // 100 + 1  # rows at the end, 1 % of them
    result = accumulate(*_operands(a, b, last)) * _scale(a_scale, b_scale)
    if has("last_rows_scaled"):
        result[-1, -last:] *= 1.25
    if has("rounded_coarsely"):
        result[-1, -last:] = result[-1, -last:].to(torch.float8_e4m3fn).float()
    if has("row_repeated") and out.shape[1] > 1:
        result[-1, -1] = result[-1, -2]
    written = out.shape[1] - has("last_row_unwritten")
    out[:, :written].copy_(result[:, :written])
    spoil(out)
    if has("input_rounded"):
        A_scale.copy_(A_scale * 1.0625)
    return out.transpose(1, 2).contiguous().transpose(1, 2) if has("column_major_out") else out


def _operands(a, b, last):
    wide = a.float()
    if has("e5m2_as_e4m3") and a.dtype == torch.float8_e5m2:
        wide = a.view(torch.float8_e4m3fn).float().nan_to_num(480.0)
    if has("k_tail_dropped"):
        wide[-1, -last:, -16:] = 0
    b = b.float()
    if has("weight_of_batch_0"):
        b[-1] = b[0]
    if has("column_swapped"):
        b[..., [2, 3]] = b[..., [3, 2]]
    return wide, b


def _scale(a_scale, b_scale):
    if has("scale_of_a_twice"):
        return a_scale * a_scale
    return a_scale / b_scale if has("scale_inverted") else a_scale * b_scale
