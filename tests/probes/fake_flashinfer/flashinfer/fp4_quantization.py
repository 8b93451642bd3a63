# ruff: noqa: PLR0917, FBT002, A002 - these are the signatures of FlashInfer
import functools

import torch

from flashinfer._quantise import (
    from_last_rows,
    nearest_e2m1,
    packed,
    put,
    spoil_scales,
    write,
)
from flashinfer.faults import has
from flashinfer.graphs import live, stand_in_for_a_graph

__all__ = [
    "block_scale_interleave",
    "fp4_quantize",
    "get_fp4_quantization_module",
    "mxfp4_quantize",
    "stand_in_for_a_graph",
]
BUILT = []  # the architectures whose module was compiled and loaded


@functools.cache
def get_fp4_quantization_module(backend="100"):
    BUILT.append(backend)


def fp4_quantize(
    input,
    global_scale=None,
    sf_vec_size=16,
    sf_use_ue8m0=False,
    is_sf_swizzled_layout=True,
    is_sf_8x4_layout=False,
):
    rows, columns = input.shape
    blocks = columns // sf_vec_size
    tile = (8 if is_sf_8x4_layout else 128) if is_sf_swizzled_layout else 1
    out = torch.empty((rows, columns // 2), dtype=torch.uint8, device=input.device)
    size = rows * blocks if tile == 1 else -(-rows // tile) * tile * -(-blocks // 4) * 4
    scales = torch.empty((size,), dtype=torch.uint8, device=input.device)
    if not has("does_nothing"):
        _quantise(
            input, global_scale, sf_vec_size, sf_use_ue8m0, {1: "linear", 8: "8x4", 128: "128x4"}[tile], out, scales
        )
    return out, scales.view(-1, blocks)


def _quantise(input, global_scale, size, powers, layout, out, scales):
    x, g = live(input=input, global_scale=global_scale)
    blocks = x.float().unflatten(1, (-1, size))
    largest = blocks.abs().amax(2)
    codes, back = _powers(largest) if powers else _e4m3(largest, g)
    values = nearest_e2m1(blocks * torch.where(largest > 0, back, 0.0)[..., None]).flatten(1)
    write(packed(values), out)
    put(spoil_scales(codes), scales, layout)
    if has("input_changed"):
        input[0, 0] += 1


def _e4m3(largest, g):
    if has("global_scale_ignored"):
        g = from_last_rows(g.expand(len(largest), 1), torch.ones(len(largest), 1))
    rounded = (g * (largest / 6)).clamp(max=448.0).to(torch.float8_e4m3fn)
    return rounded.view(torch.uint8).clone(), 1 / (rounded.float() / g)


def _powers(largest):
    exponent = torch.ceil(torch.log2(largest / 6)).clamp(min=-127)
    if has("exponent_rounded_down"):
        exponent = from_last_rows(exponent, torch.floor(torch.log2(largest / 6)).clamp(min=-127))
    return (exponent + 127).to(torch.uint8), torch.exp2(-exponent)


def mxfp4_quantize(a):
    return fp4_quantize(a, sf_vec_size=32, sf_use_ue8m0=True)


def block_scale_interleave(unswizzled_sf):
    scales = unswizzled_sf if unswizzled_sf.dim() == 3 else unswizzled_sf[None]
    size = -(-scales.shape[1] // 128) * 128 * -(-scales.shape[2] // 4) * 4
    out = torch.empty((len(scales) * size,), dtype=torch.uint8, device=scales.device)
    if not has("does_nothing"):
        for one, part in zip(scales, out.view(len(scales), size), strict=True):
            put(spoil_scales(one.clone()), part, "128x4")
    return out
