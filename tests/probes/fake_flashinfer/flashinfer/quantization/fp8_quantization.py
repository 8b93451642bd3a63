# ruff: noqa: PLR0917, FBT002 - these are the signatures of FlashInfer
"""Rounding by groups; faults are in the last row, or in one element or group of it."""

import torch

from flashinfer.faults import has, write_behind
from flashinfer.graphs import live, stand_in_for_a_graph

__all__ = ["per_token_group_quant_8bit", "stand_in_for_a_graph"]


def per_token_group_quant_8bit(
    x,
    group_size,
    eps=1e-10,
    dst_dtype=None,
    column_major_scales=False,
    scale_tma_aligned=False,
    scale_ue8m0=False,
    backend="cutile",
):
    (seen,) = live(x=x)
    rows, count = len(x), x.shape[1] // group_size
    largest = 127.0 if dst_dtype == torch.int8 else 448.0
    groups = seen.float().unflatten(1, (-1, group_size))
    scales = _scales(groups, eps, largest, scale_ue8m0)
    out = torch.empty_like(x, dtype=dst_dtype)
    written = rows - has("last_row_unwritten")
    out[:written] = _rounded(groups, scales, dst_dtype)[:written]
    held = rows + (-rows % 4 if scale_tma_aligned and not has("columns_not_padded") else 0)
    if column_major_scales and not has("scales_row_by_row"):
        stored = torch.empty((count, held), dtype=torch.float32)[:, :rows].t()
    else:
        stored = torch.empty((rows, count), dtype=torch.float32)
    stored.copy_(_misplaced(scales))
    if has("written_behind"):
        write_behind(out)
    if has("input_changed"):
        x[0, 0] += 1
    return out, stored


def _scales(groups, eps, largest, is_power):
    size = groups.abs().amax(2).clamp(min=0.0 if has("eps_ignored") else eps)
    if has("half_a_group_looked_at"):
        size[-1] = groups[-1, :, ::2].abs().amax(1).clamp(min=eps)
    if has("largest_is_wrong"):
        largest = largest - 1
    scales = size / largest
    if is_power:
        exponent = scales.clamp(min=1e-10).log2()
        scales = torch.exp2(exponent.floor() if has("exponent_rounded_down") else exponent.ceil())
    return scales


def _rounded(groups, scales, dtype):
    quotient = groups / scales[..., None]
    if has("rounded_toward_zero"):
        quotient[-1] *= 1 - 2.0**-5
    if has("scale_of_next_group"):
        quotient[-1, 0] = groups[-1, 0] / scales[-1, 1]
    if has("ties_away_from_zero"):
        quotient[-1] *= 1 + 2.0**-20
    quotient = quotient.flatten(1)
    if has("sign_lost"):
        quotient[-1, -8:] = quotient[-1, -8:].abs()
    if has("neighbour_element"):
        quotient[-1, 0] = quotient[-1, 1]
    if dtype == torch.int8:
        cut = quotient if has("cut_off") else quotient + 0.5
        result = cut.floor().clamp(-128, 127)
    else:
        result = quotient.clamp(-448, 448)
    if has("nan_element") and dtype != torch.int8:
        result[-1, 3] = float("nan")
    return result.to(dtype)


def _misplaced(scales):
    if has("scales_swapped"):
        scales = scales.clone()
        scales[-1, [0, 1]] = scales[-1, [1, 0]]
    if has("scale_in_its_last_bits"):
        scales = scales.clone()
        scales[-1, 0] *= 1 + 2.0**-20
    if has("columns_taken_for_rows"):
        scales = scales.t().contiguous().view(scales.shape)
    if has("reciprocals"):
        scales = 1 / scales
    return scales
