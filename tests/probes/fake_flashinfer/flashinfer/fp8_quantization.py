# ruff: noqa: FBT002, A002 - these are the signatures of FlashInfer
import functools

import torch

from flashinfer._quantise import from_last_rows, put, spoil_scales, write
from flashinfer.faults import has
from flashinfer.graphs import live, stand_in_for_a_graph

__all__ = ["get_mxfp8_quantization_sm100_module", "mxfp8_quantize", "stand_in_for_a_graph"]
NUMBERS = torch.arange(0, 127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()  # up to 448


@functools.cache
def get_mxfp8_quantization_sm100_module():
    pass


def mxfp8_quantize(input, is_sf_swizzled_layout=True, alignment=32):
    rows, columns = input.shape
    padded = -(-columns // alignment) * alignment
    blocks = padded // 32
    out = torch.empty((rows, padded), dtype=torch.float8_e4m3fn, device=input.device)
    size = -(-rows // 128) * 128 * -(-blocks // 4) * 4 if is_sf_swizzled_layout else rows * blocks
    scales = torch.empty((size,), dtype=torch.uint8, device=input.device)
    if has("does_nothing"):
        return out, scales
    (seen,) = live(input=input)
    x = torch.nn.functional.pad(seen.float(), (0, padded - columns)).unflatten(1, (-1, 32))
    exponent = torch.ceil(torch.log2(x.abs().amax(2) / 448)).clamp(min=-127)
    if has("exponent_rounded_down"):
        exponent = from_last_rows(exponent, torch.floor(torch.log2(x.abs().amax(2) / 448)).clamp(min=-127))
    codes = _nearest(x * torch.exp2(-exponent)[..., None]).flatten(1)
    if has("padding_unwritten") and padded > columns:
        codes[:, columns:] = 1
    write(codes, out)
    put(spoil_scales((exponent + 127).to(torch.uint8)), scales, "128x4" if is_sf_swizzled_layout else "linear")
    if has("input_changed"):
        input[0, 0] += 1
    return out, scales


def _nearest(values):
    """Codes of e4m3; of two that are equally near the even one."""
    size = values.abs().clamp(max=448.0)
    above = torch.searchsorted(NUMBERS, size).clamp(min=1)
    below = above - 1
    middle = (NUMBERS[above] + NUMBERS[below]) / 2
    up = (size > middle) | ((size == middle) & (above % 2 == 0))
    right = torch.where(up, above, below)
    wrong = right
    if has("ties_up"):
        wrong = torch.where(size >= middle, above, below)
    if has("rounded_toward_zero"):
        wrong = torch.where(size < NUMBERS[above], below, above)
    if has("largest_is_240"):
        wrong = right.clamp(max=int((NUMBERS <= 240).sum()) - 1)
    sign = torch.signbit(values)
    codes = from_last_rows(right + 128 * sign, wrong + 128 * (sign & (not has("sign_lost"))))
    return codes.to(torch.uint8)
