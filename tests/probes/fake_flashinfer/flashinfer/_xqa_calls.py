# ruff: noqa: PLR0917, FBT002 - these are the signatures of FlashInfer
"""XQA for FP8 caches and drafts; where a fault is on, one head of one row goes wrong, or one element."""

import torch

from flashinfer.faults import has, spoil

HEAD = 3
BUILT = []
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
    BUILT.append((kv_cache_dtype, page_size, head_dim, head_group_ratio, use_sliding_window, q_seq_len, use_ragged_q))


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
    o_scale=1.0,
    mask=None,
    kv_cache_sf=None,
    q_cu_seq_lens=None,
):
    assert max_seq_len == block_tables.shape[1] * 16
    key, value = kv_cache if isinstance(kv_cache, tuple) else kv_cache.unbind(1)
    starts = torch.arange(len(seq_lens) + 1) * q_len_per_req if q_cu_seq_lens is None else q_cu_seq_lens
    rows = mask.flatten(0, -2) if mask is not None else None
    scales = (bmm1_scale, bmm2_scale)
    _attend((query, starts, rows), (key, value), (block_tables, seq_lens), scales, window_left, out, kv_layout)
    return out.clone() if has("out_ignored") else out


def xqa(
    q,
    k_cache,
    v_cache,
    page_table,
    seq_lens,
    output,
    workspace_buffer,
    semaphores,
    num_kv_heads,
    page_size,
    q_scale=1.0,
    kv_scale=1.0,
    sliding_win_size=0,
    kv_layout="NHD",
):
    assert (num_kv_heads, page_size) == (2, 16)
    query, out, lengths = q[:, 0], output[:, 0], seq_lens[:, 0]
    scales = (q_scale * kv_scale / q.shape[-1] ** 0.5, kv_scale)
    starts, caches = torch.arange(len(query) + 1), (k_cache, v_cache)
    window = sliding_win_size - 1
    _attend((query, starts, None), caches, (page_table, lengths), scales, window, out, kv_layout)


def _attend(queries, caches, tables, scales, window_left, out, layout):
    first = KEPT.setdefault(out.data_ptr(), [queries[0].clone(), *(side.clone() for side in tables)])
    if has("graph_does_nothing") and first[0].data_ptr() != queries[0].data_ptr() and KEPT.get("captured"):
        return
    query, starts, mask = queries
    query = first[0] if has("graph_keeps_query") else query
    tables = (
        first[1] if has("graph_keeps_table") else tables[0],
        first[2] if has("graph_keeps_lengths") else tables[1],
    )
    result = torch.zeros(query.shape)
    keys = [_tokens(request, caches, tables, layout) for request in range(len(tables[1]))]
    longest = max(range(len(keys)), key=lambda request: len(keys[request][0]))
    for request, (key, value) in enumerate(keys):
        begin, end = starts[request : request + 2].tolist()
        for row in range(begin, end):
            bits = int(mask[row].view(torch.int32)) if mask is not None else 1
            seen = _seen(len(key), end - begin, bits, row - begin, window_left)
            result[row] = _one(query[row], key, value, seen, scales)
            if request == longest and row == max(begin, end - 2):
                seen = _seen(len(key), end - begin, bits, row - begin, window_left, faulty=True)
                changed = _damage(key, value)
                result[row, HEAD] = _one(query[row], *changed, seen, _scales(scales))[HEAD]
                _spoil(result, row, out)
    spoil(result)
    out.copy_(result)
    if has("written_behind_last"):
        out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(1.0)


def _tokens(request, caches, tables, layout):
    """The keys and values of one request: [tokens, KV heads, head size]."""
    found = []
    for cache in caches:
        raw = cache.contiguous().view(torch.uint8) if cache.dtype == torch.float8_e4m3fn else cache
        raw = raw.transpose(1, 2) if layout == "HND" else raw
        length = int(tables[1][request])
        pages = tables[0][request, : -(-length // 16)].long()
        side = raw[pages].flatten(0, 1)[:length]
        found.append(side.view(cache.dtype).float() if len(side) else side.float())
    return found


def _seen(length, queries, bits, row, window_left, *, faulty=False):
    """Which tokens a query sees: all before the drafts, of the drafts those of its mask, of all those in the window."""
    place = torch.arange(length)
    draft = place - (length - queries)
    if faulty and has("mask_shifted"):
        bits = bits << 1 | 1
    if faulty and has("mask_ignored"):
        bits = -1
    visible = (draft < 0) | ((bits >> draft.clamp(min=0)) & 1).bool()
    if window_left >= 0 and not (faulty and has("window_ignored")):
        longer = faulty and has("window_too_long")
        visible &= place >= length - queries + row - window_left - longer
    if faulty and has("last_key_dropped"):
        visible[visible.nonzero()[-1]] = False
    return visible


def _damage(key, value):
    if has("wrong_page") and len(key) > 16:
        key, value = (torch.cat((side[16:32], side[16:]))[: len(side)] for side in (key, value))
    if has("heads_interleaved"):
        key, value = key.flip(1), value.flip(1)
    if has("key_and_value_swapped"):
        key, value = value, key
    return key, value


def _scales(scales):
    first, second = scales
    return (first / 1.25 if has("scale_ignored") else first, second / 2 if has("value_scale_wrong") else second)


def _spoil(result, row, out):
    if has("head_unwritten"):
        result[row, HEAD] = out[row, HEAD]
    if has("head_zero"):
        result[row, HEAD] = 0
    if has("head_permuted"):
        result[row, [HEAD, HEAD + 1]] = result[row, [HEAD + 1, HEAD]]
    if has("rounded_coarsely"):
        result[row, HEAD] = result[row, HEAD].to(torch.float8_e5m2).float()
    if has("four_tolerances"):
        result[row, HEAD, 7] += 4 * 0.09 * result[row, HEAD].abs().max()


def _one(query, key, value, seen, scales):
    """One query: [heads, head size]; NaN without keys, as 0/0 is."""
    groups = len(query) // key.shape[1]
    of_head = torch.arange(len(query)) // groups
    scores = torch.einsum("hd,nhd->hn", query.float(), key[:, of_head]) * scales[0]
    scores = scores.masked_fill(~seen, -torch.inf)
    if not len(key):
        return torch.full(query.shape, torch.nan)
    p = (scores - scores.amax(-1, keepdim=True)).exp()
    fp8 = scales[1] != 1.0
    rounded = (p * 448).to(torch.float8_e4m3fn).float() / 448 if fp8 else p.bfloat16().float()
    return torch.einsum("hn,nhd->hd", rounded, value[:, of_head]) / p.sum(-1, keepdim=True) * scales[1]
