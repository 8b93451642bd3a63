# ruff: noqa: PLR0917 - these are the signatures of FlashInfer
import torch

from flashinfer._page_mla import append_paged_mla_kv_cache
from flashinfer.faults import has
from flashinfer.graphs import live, stand_in_for_a_graph

__all__ = ["append_paged_kv_cache", "append_paged_mla_kv_cache", "get_page_module", "stand_in_for_a_graph"]


def get_page_module():
    return None


def append_paged_kv_cache(
    append_key,
    append_value,
    batch_indices,
    positions,
    paged_kv_cache,
    kv_indices,
    kv_indptr,
    kv_last_page_len,
    kv_layout="NHD",
):
    caches = paged_kv_cache if isinstance(paged_kv_cache, tuple) else (paged_kv_cache[:, 0], paged_kv_cache[:, 1])
    append_key, append_value = live(key=append_key, value=append_value)
    positions, kv_indices, kv_indptr = live(positions=positions, pages=kv_indices, lengths=kv_indptr)
    if has("key_and_value_swapped"):
        append_key, append_value = append_value, append_key
    if has("layout_ignored"):
        kv_layout = "NHD"
    count = len(positions) - has("last_token_lost")
    for cache, new in zip(caches, (append_key, append_value), strict=True):
        if has("value_lost") and new is append_value:
            continue
        placed = _as_if_alone(cache) if has("strides_ignored") else cache
        _append(
            placed if kv_layout == "NHD" else placed.transpose(1, 2),
            new[:count],
            batch_indices,
            positions,
            (kv_indices, kv_indptr),
        )
    if has("returns_cache"):
        return paged_kv_cache
    return None


def _as_if_alone(cache):
    """The view of one layer of several, as if there were no others."""
    step = cache[0].numel()
    if cache.stride(0) <= 2 * step:
        return cache
    return cache.as_strided(cache.shape, (2 * step, *torch.empty(cache.shape[1:]).stride()))


def _append(cache, new, batch_indices, positions, table):
    """The cache as [pages, page size, heads, head size]."""
    kv_indices, kv_indptr = table
    size = cache.shape[1]
    if has("rounded"):
        new = (new.float() * (1 + 2**-7)).to(new.dtype)
    if has("heads_reversed"):
        new = new.flip(1)
    for token, row in enumerate(new):
        request, position = int(batch_indices[token]), int(positions[token])
        if has("position_off_by_one"):
            position = max(position - 1, 0)
        place = int(kv_indptr[request]) + position // size
        if has("wrong_page"):
            place = (place + 1) % len(kv_indices)
        page = place if has("page_table_ignored") else int(kv_indices[place])
        if has("first_request_for_all"):
            page = int(kv_indices[position // size])
        cache[page, position % size] = row
        if has("neighbour_overwritten"):
            cache[page, (position + 1) % size] = row
    if has("nan_element"):
        cache[int(kv_indices[0]), 0, 0, 0] = float("nan")
