# ruff: noqa: PLR0917 - these are the signatures of FlashInfer
import torch

from flashinfer.faults import has, seen_first


def append_paged_mla_kv_cache(
    append_ckv,
    append_kpe,
    batch_indices,
    positions,
    ckv_cache,
    kpe_cache,
    kv_indices,
    kv_indptr,
    kv_last_page_len,
):
    positions = seen_first("graph_keeps_positions", positions)
    kv_indptr = seen_first("graph_keeps_indptr", kv_indptr)
    kv_indices = seen_first("graph_keeps_page_table", kv_indices)
    if seen_first.often("graph_does_nothing"):
        return None
    page, place = _places(batch_indices, positions, kv_indices, kv_indptr, ckv_cache.shape[1])
    count = len(positions) - has("last_token_lost")
    for cache, new in ((ckv_cache, append_ckv), (kpe_cache, append_kpe)):
        if not (has("key_lost") and new is append_kpe):
            _copy(_reached(cache), _read(new), page[:count], place[:count])
    if has("nan_element"):
        ckv_cache[page[0], place[0], 7] = float("nan")
    if has("neighbour_overwritten"):
        ckv_cache[page[-1], (place[-1] + 1) % ckv_cache.shape[1], 0] = 1.0
    if has("tokens_changed"):
        append_ckv[0, 0] = 9.0
    return ckv_cache if has("returns_cache") else None


def _reached(cache):
    if has("strides_ignored"):
        return cache.as_strided(cache.shape, torch.empty(cache.shape).stride(), cache.storage_offset())
    return cache


def _read(new):
    if has("rounded"):
        return (new.float() * (1 + torch.finfo(new.dtype).eps)).to(new.dtype)
    return seen_first("graph_keeps_tokens", new)


def _copy(cache, new, page, place):
    width = cache.shape[-1] - 2 * has("tail_dropped")
    _bytes(cache)[page, place, : width * cache.element_size()] = _bytes(new[: len(page), :width])


def _places(requests, positions, indices, indptr, size):
    if has("position_off_by_one"):
        positions = (positions - 1).clamp(min=0)
    if has("first_request_for_all"):
        requests = torch.zeros_like(requests)
    places = indptr[requests.long()] + positions // size
    if has("wrong_page"):
        places = torch.cat((places[:-1], (places[-1:] + 1) % len(indices)))
    pages = places if has("page_table_ignored") else indices[places.long() % len(indices)]
    return pages.long(), positions.long() % size


def _bytes(tensor):
    return tensor.view(torch.uint8)
