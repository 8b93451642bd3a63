# ruff: noqa: PLR0917, FBT002 - these are the signatures of FlashInfer
"""XQA without sinks, rounding to bf16 wherever csrc/xqa/mha.cu does; not re-exported: its test puts it in place."""

import torch

from flashinfer.faults import has, spoil

BUILT = []
BLOCKS = 7  # thread blocks that share a request, where the table has room for more than one tile
TILE, PART = 256, 64  # tokens of a block in one turn, and of one of its warps
KEPT = {}  # by the address of the output: what a graph may wrongly have kept from its capture


def get_xqa_module(
    input_dtype,
    kv_cache_dtype,
    page_size,
    head_dim,
    head_group_ratio,
    use_sliding_window,
    output_dtype,
    q_seq_len,
    use_ragged_q=False,
):
    BUILT.append((page_size, head_dim, head_group_ratio, use_sliding_window))


def trtllm_batch_decode_with_kv_cache(
    query,
    kv_cache,
    workspace_buffer,
    block_tables,
    seq_lens,
    max_seq_len,
    bmm1_scale=1.0,
    bmm2_scale=1.0,
    window_left=-1,
    out=None,
    out_dtype=None,
    o_sf_scale=None,
    o_sf_vec_size=None,
    sinks=None,
    kv_layout="HND",
    enable_pdl=None,
    backend="auto",
    q_len_per_req=1,
):
    assert backend == "xqa"
    return xqa_batch_decode_with_kv_cache(
        query, kv_cache, workspace_buffer, block_tables, seq_lens, max_seq_len, bmm1_scale, bmm2_scale,
        window_left, out, sinks, kv_layout, enable_pdl, q_len_per_req,
    )  # fmt: skip


def xqa_batch_decode_with_kv_cache(
    query,
    kv_cache,
    workspace_buffer,
    block_tables,
    seq_lens,
    max_seq_len,
    bmm1_scale=1.0,
    bmm2_scale=1.0,
    window_left=-1,
    out=None,
    sinks=None,
    kv_layout="NHD",
    enable_pdl=None,
    q_len_per_req=1,
):
    assert not workspace_buffer.any()
    assert (sinks, bmm2_scale, q_len_per_req) == (None, 1.0, 1)
    assert query.is_contiguous()
    first = KEPT.get(out.data_ptr())
    KEPT.setdefault(out.data_ptr(), (query.clone(), seq_lens.clone(), block_tables.clone()))
    if first is not None:
        if has("graph_does_nothing"):
            return out
        query = first[0] if has("graph_keeps_query") else query
        seq_lens = first[1] if has("graph_keeps_lengths") else seq_lens
        block_tables = first[2] if has("graph_keeps_table") else block_tables
    key, value = _by_token(kv_cache, kv_layout)
    scale = query.shape[-1] ** -0.5 if has("scale_ignored") else bmm1_scale
    split = block_tables.shape[1] * key.shape[1] > TILE
    result = torch.stack([
        _attend(query[row], *_tokens(row, (key, value), block_tables, seq_lens), scale, window_left, split)
        for row in range(len(query))
    ])  # fmt: skip
    if has("last_request_unwritten"):
        result[-1] = float("nan")
    if has("rounded_coarsely"):
        result = result.to(torch.float8_e4m3fn).float()
    spoil(result)
    out.copy_(result)
    if has("written_behind_last"):
        out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(1.0)
    return out.clone() if has("out_ignored") else out


def _by_token(cache, layout):
    """[pages, page size, KV heads, head size] each."""
    key, value = cache if isinstance(cache, tuple) else cache.unbind(1)
    if has("key_and_value_swapped"):
        key, value = value, key
    if has("strides_ignored") and isinstance(cache, tuple):  # as if keys lay one after the other
        key = key.as_strided(key.shape, key.contiguous().stride())
    if layout == "NHD":
        return key, value
    if has("hnd_as_nhd"):
        return tuple(side.reshape(side.shape[0], side.shape[2], side.shape[1], -1) for side in (key, value))
    return key.transpose(1, 2), value.transpose(1, 2)


def _tokens(row, caches, tables, lengths):
    """The keys and values of one request."""
    size, length = caches[0].shape[1], int(lengths[row])
    pages = tables[row - 1 if has("table_of_request_before") else row, : -(-length // size)].long()
    if has("wrong_page"):
        pages = pages.roll(1)
    if has("table_ignored"):
        pages = torch.arange(len(pages))
    read = len(pages) * size if has("rest_of_page_read") else length - (has("last_key_dropped") and length > 1)
    return [side[pages].flatten(0, 1)[:read] for side in caches]


def _attend(query, key, value, scale, window_left, split):
    """One request: [heads, head size]."""
    heads, kv_heads = len(query), key.shape[1]
    of_head = torch.arange(heads) // (heads // kv_heads)
    if has("heads_interleaved"):
        of_head = torch.arange(heads) % kv_heads
    scores = torch.einsum("hd,nhd->hn", query.float(), key[:, of_head].float()) * scale
    value = value[:, of_head].float()
    seen = window_left + 1 - has("window_too_short") + has("window_too_long")
    first = max(len(key) - seen, 0) if window_left >= 0 and not has("window_ignored") else 0
    scores[:, :first] = -1e5
    blocks = range(first // TILE, first // TILE + (BLOCKS if split else 1))
    parts = [_block(scores, value, block, BLOCKS if split else 10**6) for block in blocks]
    if not split:
        return parts[0][0]
    results, tops, sums = (torch.stack(side) for side in zip(*parts, strict=True))
    weights = (tops - tops.amax(0)).exp() * sums
    if has("parts_weighted_alike"):
        weights = (sums > 0).float()
    if has("part_lost"):
        weights[1:2] = 0
    groups = TILE // query.shape[-1]
    merged = [
        (results[g::groups] * weights[g::groups, :, None]).sum(0) / weights.sum(0)[:, None] for g in range(groups)
    ]
    return _added(merged)


def _block(scores, value, block, stride):
    """Result, maximum and sum of what one thread block does, which is nothing where there are no tokens for it."""
    heads, size = len(scores), value.shape[-1]
    groups = TILE // size
    tops, sums = torch.full((groups, heads), -1e5), torch.zeros(groups, heads)
    results = torch.zeros(groups, heads, size)
    starts = (tile + at for tile in range(block * TILE, scores.shape[1], stride * TILE) for at in range(0, TILE, PART))
    for start in starts:
        part, group = scores[:, start : start + PART], start // PART % groups
        if not part.shape[1]:
            continue
        top = part.amax(1)
        weights = (part - top[:, None]).exp().bfloat16().float()
        common = torch.maximum(tops[group], top)
        old, new = (tops[group] - common).exp(), (top - common).exp()
        sums[group] = sums[group] * old + weights.sum(1) * new
        scaled = (weights * new.bfloat16().float()[:, None]).bfloat16().float()
        results[group] = results[group] * old[:, None] + torch.einsum("hn,nhd->hd", scaled, value[start : start + PART])
        tops[group] = common
    top = tops.amax(0)
    factors = (tops - top).exp()
    total = (sums * factors).sum(0)
    divisor = torch.where(total > 0, total, 1.0)
    return (
        _added([result * (factor / divisor)[:, None] for result, factor in zip(results, factors, strict=True)]),
        top,
        total,
    )


def _added(results):
    """Rounded, and added up in bf16."""
    added = results[0].bfloat16()
    for result in results[1:]:
        added = added + result.bfloat16()
    return added.float()
