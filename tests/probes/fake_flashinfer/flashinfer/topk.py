# ruff: noqa: FBT002, PLR0917, A002 - these are the signatures of FlashInfer
"""Selection by a stable sort; faults are in the last row, or in one element of it."""

import torch

from flashinfer.faults import has, write_behind
from flashinfer.graphs import live, stand_in_for_a_graph

__all__ = ["get_topk_module", "stand_in_for_a_graph", "top_k", "top_k_page_table_transform", "top_k_ragged_transform"]
CALLS = []  # of top_k; a kernel that is not repeatable gives another order the second time


def get_topk_module():
    return None


def top_k(input, k, sorted=False, deterministic=False, tie_break=0, dsa_graph_safe=False):
    (x,) = live(x=input)
    chosen = _largest(x.float(), k, tie_break)
    CALLS.append(k)
    if not sorted:
        chosen = chosen.flip(1)
    if has("not_repeatable") and deterministic and len(CALLS) % 2 == 0:
        chosen[-1] = chosen[-1].flip(0)
    values = torch.empty(len(x), k, dtype=x.dtype, device=x.device)
    indices = torch.empty(len(x), k, dtype=torch.int64, device=x.device)
    values.copy_(x.gather(1, chosen))
    _spoil_order(values, chosen)
    written = len(x) - has("last_row_unwritten")
    indices[:written] = chosen[:written]
    if has("index_behind_the_row"):
        indices[-1, 0] = x.shape[1]
    if has("written_behind"):
        write_behind(values)
    if has("input_changed"):
        input[0, 0] += 1
    if has("int32_indices"):
        indices = indices.int()
    return (values, indices.t().contiguous().t()) if has("column_major_out") else (values, indices)


def _spoil_order(values, chosen):
    """Faults that only the pair of values and indices shows."""
    last = values[-1]
    if has("value_of_neighbour"):
        last[0] = last[-1] - 1
    if has("value_in_its_last_bit"):
        last[0] *= 1 + torch.finfo(values.dtype).eps
    if has("pair_out_of_order"):
        pair = [int((values[0] != values[0, 0]).nonzero()[0]), 0]
        values[0, [0, pair[0]]], chosen[0, [0, pair[0]]] = values[0, pair], chosen[0, pair]
    if has("indices_not_sorted"):
        chosen[0] = chosen[0].flip(0)


def _largest(x, k, tie_break=0):
    """Indices of the k largest, the largest first."""
    rows, length = x.shape
    turned = x.flip(1) if (tie_break == 2) != has("ties_the_other_way") else x
    order = turned.sort(dim=1, descending=True, stable=True).indices
    order = length - 1 - order if turned is not x else order
    chosen = order[:, :k].clone()
    if has("next_after_the_last"):
        smaller = (x[0, order[0]] < x[0, chosen[0, -1]]).nonzero()
        chosen[0, -1] = order[0, smaller[0, 0]] if len(smaller) else chosen[0, -1]
    if has("largest_missed") and length > k:
        chosen[0, 0] = order[0, k]
    if has("index_twice") and k > 1:
        chosen[-1, -1] = chosen[-1, 0]
    if has("neighbour_index"):
        chosen[0, 0] = (chosen[0, 0] + 1) % length
    if has("end_of_row_never"):
        chosen[0] = x[0, : length - length // 100 - 1].sort(descending=True).indices[:k]
    if has("minus_infinity_never") and rows > 1:
        chosen[-2][x[-2, chosen[-2]] == -torch.inf] = chosen[-2, 0]
    return chosen


def _windows(x, lengths, k, starts=None):
    """Indices relative to each row's window, as many as there are; then -1."""
    found = torch.full((len(x), k), -1)
    for row in range(len(x)):
        length = int(lengths[row])
        if has("length_of_next_row") and row == len(x) - 1:
            length = int(lengths[row - 1])
        if has("one_behind_the_length") and row == 2:
            length = min(length + 1, x.shape[1])
        begin = 0 if starts is None or (has("row_start_ignored") and row == 3) else int(starts[row])
        part = x[row : row + 1, begin : begin + length].float()
        count = min(k, length)
        if count and not (has("short_row_unwritten") and length < k):
            found[row, :count] = _largest(part, count)[0]
        if has("padding_is_zero"):
            found[row, count:] = 0
    if has("last_index_dropped"):
        found[0, -1] = -1
    return found


def top_k_ragged_transform(
    input, offsets, lengths, k, deterministic=False, tie_break=0, dsa_graph_safe=False, row_starts=None
):
    if lengths.dtype != torch.int32 and not has("int64_lengths_misread") and not has("int64_lengths_read"):
        raise RuntimeError("lengths must be int32")
    if has("int64_lengths_misread"):
        lengths = lengths.view(torch.int32)[: len(input)]
    x, offsets, lengths = live(x=input, offsets=offsets, lengths=lengths)
    found = _windows(x, lengths, k)
    if has("offset_of_next_row"):
        offsets = torch.cat((offsets[:-1], offsets[:1]))
    moved = torch.where(found == -1, -1, found + offsets[:, None])
    if has("padding_moved"):
        moved[1] = found[1] + offsets[1]
    out = torch.empty(len(x), k, dtype=torch.int32, device=x.device)
    return out.copy_(moved)


def top_k_page_table_transform(
    input,
    src_page_table,
    lengths,
    k,
    row_to_batch=None,
    deterministic=False,
    tie_break=0,
    dsa_graph_safe=False,
    row_starts=None,
    page_table_row_starts=None,
    page_size=1,
    out=None,
    out_raw_indices=None,
):
    found = _windows(input, lengths, k, row_starts)
    if has("request_of_next_row"):
        row_to_batch = torch.cat((row_to_batch[:-1], row_to_batch[:1]))
    begin = 0 if page_table_row_starts is None else page_table_row_starts[:, None]
    if has("table_start_ignored"):
        begin = begin * (torch.arange(len(input)) < len(input) - 1)[:, None]
    column = found.clamp(min=0) // page_size + begin
    if has("neighbouring_page"):
        column[-1, 0] += 1
    pages = src_page_table[row_to_batch.long()].gather(1, column.clamp(max=src_page_table.shape[1] - 1))
    place = found % page_size
    if has("place_in_page_lost"):
        place[-1] = 0
    mapped = torch.where(found == -1, -1, pages * page_size + place)
    if has("not_mapped"):
        mapped[-1] = found[-1]
    if out is None or has("out_not_taken"):
        out = torch.empty(len(input), k, dtype=torch.int32)
    if out_raw_indices is not None:
        out_raw_indices.copy_(found)
        if has("raw_in_other_order"):
            out_raw_indices[0] = out_raw_indices[0].flip(0)
        if has("raw_written_behind"):
            write_behind(out_raw_indices)
    return out.copy_(mapped)
