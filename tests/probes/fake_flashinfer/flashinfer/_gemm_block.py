# ruff: noqa: A002, PLR0917 - these are the signatures of FlashInfer
"""The FP8 GEMM with block scales and the precision of a tensor core, one block after the other."""

import torch

from flashinfer._gemm_parts import accumulate
from flashinfer.faults import has, spoil
from flashinfer.graphs import live

BLOCK = 128


def fp8_blockscale_gemm_sm90(input, weight, input_scale=None, weight_scale=None, out=None, out_dtype=None):
    if has("backend_ignores_out") or out is None:
        out = torch.empty((len(input), len(weight)), dtype=out_dtype or torch.bfloat16)
    a, b, a_scale, b_scale = live(a=input, b=weight, a_scale=input_scale, b_scale=weight_scale)
    last = len(out) // 100 + 1  # rows at the end, 1 % of them
    result = torch.zeros(out.shape)
    a_scale = _strided(a_scale)
    if has("scale_row_of_block_before") and b_scale is not None:
        b_scale = torch.cat([b_scale[:-1], b_scale[-2:-1]])
    for k in range(input.shape[1] // BLOCK):
        block = slice(k * BLOCK, (k + 1) * BLOCK)
        x, x_scale = _rows(a[:, block], a_scale, k)
        if has("scale_of_next_block") and k == 0:
            x_scale[-last:] = _rows(a[:, BLOCK : 2 * BLOCK], a_scale, 1)[1][-last:]
        w, w_scale = _columns(b[:, block], b_scale, k)
        part = accumulate(x, w.T) * x_scale[:, None] * w_scale
        if has("last_block_of_first_rows_dropped") and k == input.shape[1] // BLOCK - 1:
            part[:last] = 0
        result += part
    if has("rounded_coarsely"):
        result[-last:] = result[-last:].to(torch.float8_e4m3fn).float()
    if has("row_repeated") and len(out) > 1:
        result[-1] = result[-2]
    written = len(out) - has("last_row_unwritten")
    out[:written].copy_(result[:written])
    spoil(out)
    if has("input_rounded") and weight_scale is not None:
        weight_scale.mul_(1.0625)
    return out


def _strided(scale):
    """The scales of the input, or what lies in memory when they are taken to lie column by column."""
    if scale is None or not has("scales_read_column_by_column"):
        return scale
    memory = scale if scale.is_contiguous() else scale.T
    return memory.reshape(scale.shape[1], scale.shape[0]).T


def _rows(x, scale, k):
    if scale is not None:
        return x.float(), scale[:, k].clone()
    largest = x.float().abs().amax(1)
    return _e4m3(x.float(), largest)


def _columns(w, scale, k):
    if scale is not None and len(scale) == len(w) and not has("row_scales_as_block_scales"):
        return w.float(), scale[:, k]
    if scale is not None:
        return w.float(), scale[:, k].repeat_interleave(BLOCK)[: len(w)]
    parts = [part.float() for part in w.split(BLOCK)]
    looked_at = 12 if has("largest_of_first_rows") else BLOCK
    both = [_e4m3(part, part[:looked_at].abs().max().expand(len(part))) for part in parts]
    return torch.cat([part for part, _ in both]), torch.cat([scale for _, scale in both])


def _e4m3(values, largest):
    up = torch.where(largest > 0, 448 / largest, 1.0)
    if has("saturates"):
        up *= 1.25
    scaled = (values * up[:, None]).clamp(-448, 448)
    rounded = scaled.to(torch.float8_e4m3fn).float()
    if has("rounded_toward_zero"):
        step = torch.exp2(scaled.abs().clamp(min=2.0**-6).log2().floor() - 3)
        rounded = (scaled / step).trunc() * step
    return rounded, 1 / up
