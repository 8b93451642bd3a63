"""Rounding to block formats by looking for the nearest number, and scales put in their places one index at a time."""

import torch

from flashinfer.faults import has

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def from_last_rows(right, wrong):
    """The right one, but for one per cent of the rows at the end."""
    last = len(right) - len(right) // 100 - 1
    return torch.cat([right[:last], wrong[last:]])


def nearest_e2m1(values):
    """Codes of e2m1; of two that are equally near the even one."""
    distances = (values.abs()[..., None] - E2M1).abs()
    both = distances == distances.amin(-1, keepdim=True)
    first, two = both.int().argmax(-1), both.sum(-1) > 1
    right = first + (two & (first % 2 == 1))
    wrong = right
    if has("ties_up"):
        return first + two + 8 * torch.signbit(values)
    if has("rounded_toward_zero"):
        wrong = (values.abs()[..., None] >= E2M1).sum(-1) - 1
    if has("largest_is_4"):
        wrong = right.clamp(max=6)
    sign = torch.signbit(values)
    return from_last_rows(right + 8 * sign, wrong + 8 * (sign & (not has("sign_lost"))))


def packed(codes):
    low, high = codes[..., ::2], codes[..., 1::2]
    if has("halves_swapped"):
        low, high = from_last_rows(low, high), from_last_rows(high, low)
    return (low | high << 4).to(torch.uint8)


def spoil_scales(scales):
    """Faults of the scales [rows, blocks], all in one per cent of the rows at the end."""
    last = len(scales) - len(scales) // 100 - 1
    if has("scale_of_next_block"):
        scales[last:] = scales[last:].roll(1, 1)
    if has("scale_a_step_up"):
        scales[last:, 0] += 1
    return scales


def put(scales, out, layout):
    """Writes uint8 scales [rows, blocks] where the layout has them; tiles are padded with zeros."""
    rows, columns = scales.shape
    if has("layouts_exchanged"):
        layout = "linear" if layout != "linear" else "128x4"
    tile = {"linear": 1, "8x4": 8, "128x4": 128}[layout]
    padded_rows, padded_columns = (rows, columns) if tile == 1 else (-(-rows // tile) * tile, -(-columns // 4) * 4)
    padded = torch.zeros(padded_rows, padded_columns, dtype=torch.uint8)
    padded[:rows, :columns] = scales
    row, column = torch.arange(padded_rows)[:, None], torch.arange(padded_columns)
    place = row * padded_columns + column
    if tile > 1:
        place = (row // tile * (padded_columns // 4) + column // 4) * tile * 4 + column % 4
        place = place + (row % 32 * 16 + row % 128 // 32 * 4 if tile == 128 else row % 8 * 4)
    written = torch.ones_like(padded, dtype=torch.bool)
    if has("padding_unwritten"):
        written[rows:] = False
    if has("last_scale_unwritten"):
        written[rows - 1, columns - 1] = False
    written &= place < out.numel()
    out[place[written]] = padded[written]


def write(values, out):
    """All rows, or all but the last."""
    rows = len(out) - has("last_row_unwritten")
    out.view(torch.uint8)[:rows] = values.view(torch.uint8)[:rows]
    if has("written_beside"):
        out.view(torch.uint8).as_strided((1,), (1,), out.storage_offset() * out.element_size() - 1).add_(1)
