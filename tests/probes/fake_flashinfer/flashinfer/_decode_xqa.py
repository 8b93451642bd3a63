# ruff: noqa: PLR0917 - these are the signatures of FlashInfer
import torch

from flashinfer.attention import attend, gather, requests_of, seen_window
from flashinfer.faults import has, spoil
from flashinfer.graphs import live

__all__ = ["xqa_batch_decode_with_kv_cache"]


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
):
    assert not workspace_buffer[: 8 * 2**20].any(), "semaphores"
    query, sinks, block_tables, seq_lens = live(query=query, sinks=sinks, table=block_tables, lengths=seq_lens)
    caches = kv_cache.unbind(1) if isinstance(kv_cache, torch.Tensor) else kv_cache
    page_size = caches[0].shape[1 if kv_layout == "NHD" else 2]
    counts = -(-seq_lens // page_size)
    indptr = [0, *counts.cumsum(0).tolist()]
    indices = torch.cat([row[:count] for row, count in zip(block_tables, counts.tolist(), strict=True)])
    last_page_len = (seq_lens - 1) % page_size + 1
    requests = requests_of(range(len(seq_lens) + 1), indptr, indices, last_page_len, page_size)
    for row, (_, keys, pages) in enumerate(requests):
        key, value = (gather(cache, kv_layout, pages, keys) for cache in caches)
        got, _ = attend(query[row : row + 1], key, value, sinks, bmm1_scale, seen_window(window_left))
        if not has("not_written") or row + 1 < len(seq_lens):
            out[row] = got[0] * bmm2_scale
    spoil(out)
    return out.clone() if has("out_ignored") else out
