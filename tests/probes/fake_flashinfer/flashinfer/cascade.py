# ruff: noqa: PLR0917, FBT002 - these are the signatures of FlashInfer
"""Merging of attention states, and the wrapper that does it level by level."""

import math

import torch

from flashinfer import _paged
from flashinfer.faults import has, spoil


def get_cascade_module():
    return None


def merge_state(v_a, s_a, v_b, s_b):
    return _merge(torch.stack((v_a, v_b), 1), torch.stack((s_a, s_b), 1))


def merge_state_in_place(v, s, v_other, s_other, mask=None):
    if has("in_place_does_nothing"):
        return
    merged, lse = _merge(torch.stack((v, v_other), 1), torch.stack((s, s_other), 1))
    rows = torch.ones(len(v), dtype=torch.bool) if mask is None or has("mask_ignored") else mask
    v[rows] = merged[rows]
    if has("mask_ignored_by_lse"):
        s.copy_(lse)
    elif not has("lse_not_updated"):
        s[rows] = lse[rows]
    if has("other_changed"):
        v_other[-1, -1, -1] += 1


def merge_states(v, s):
    in_parts = v.shape[1] >= len(v) or has("parts_rounded_always")
    return _merge(v, s, parts=_rows_of_threads(v.shape[-1]) if in_parts else 0)


def _rows_of_threads(size):
    """Of a block of 128 threads that each hold 16 bytes or a 32nd of a head (MergeStatesLargeNumIndexSetsKernel)."""
    return 128 * max(8, size // 32) // size


def _merge(v, s, parts=0):
    base = math.e if has("natural_base") else 2.0
    if has("last_state_lost"):
        v, s = v[:, :-1], s[:, :-1]
    top = s.amax(1, keepdim=True)
    weights = torch.pow(base, s - (top if has("both_empty_is_nan") else top.clamp(min=-1e30)))
    total = weights.sum(1)
    if has("weights_alike"):
        weights = torch.ones_like(weights) * (weights > 0)
    shares = (weights / weights.sum(1, keepdim=True)).nan_to_num(math.nan if has("both_empty_is_nan") else 0.0)
    if has("only_the_first_parts") and parts:
        shares[:, parts - 1 :: parts] = 0
    out = _summed(shares, v.float(), v.dtype, parts)
    if has("last_row_off_by_4_percent"):
        out[-1] *= 1.04
    if has("empty_is_one"):
        out[total == 0] = 1.0
    if has("large_lse_overflows"):
        out[s.amax(1) > 900] = math.nan
    out = out.to(v.dtype)
    spoil(out)
    lse = total.log2() + top[:, 0]
    if has("nothing_is_minus_50000"):
        lse = lse.clamp(min=-5e4)
    return out, lse.masked_fill(total == 0, 0.0) if has("lse_of_nothing_is_zero") else lse


def _summed(shares, v, dtype, parts):
    """Each row of threads rounds what its states come to, as the kernel for many states does."""
    if not parts:
        return (shares[..., None] * v).sum(1)
    of_parts = [shares[:, first::parts] for first in range(parts)]
    sums = [(of_part[..., None] * v[:, first::parts]).sum(1) for first, of_part in enumerate(of_parts)]
    weights = [of_part.sum(1)[..., None] for of_part in of_parts]
    return sum(
        weight * (one / weight).nan_to_num(0.0).to(dtype).float() for one, weight in zip(sums, weights, strict=True)
    )


class MultiLevelCascadeAttentionWrapper:
    def __init__(self, num_levels, float_workspace_buffer, kv_layout="NHD"):
        kind = _paged.BatchPrefillWithPagedKVCacheWrapper
        self.wrappers = [kind(float_workspace_buffer, kv_layout) for _ in range(num_levels)]

    def plan(
        self,
        qo_indptr_arr,
        paged_kv_indptr_arr,
        paged_kv_indices_arr,
        paged_kv_last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim,
        page_size,
        causal=False,
        sm_scale=None,
        window_left=-1,
        logits_soft_cap=None,
        q_data_type="float16",
        kv_data_type=None,
    ):
        arrays = (qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len)
        for level, (wrapper, *four) in enumerate(zip(self.wrappers, *arrays, strict=True)):
            wrapper.plan(
                *four,
                num_qo_heads,
                num_kv_heads,
                head_dim,
                page_size,
                causal=(causal and level == len(self.wrappers) - 1) or has("prefix_is_causal"),
                sm_scale=sm_scale,
                window_left=window_left,
                logits_soft_cap=logits_soft_cap,
                q_data_type=q_data_type,
                kv_data_type=kv_data_type,
            )

    def run(self, q, paged_kv_cache):
        out, lse = self.wrappers[-1].run(q, paged_kv_cache, return_lse=True)
        for wrapper in [] if has("prefix_lost") else self.wrappers[:-1]:
            other = wrapper.run(q, paged_kv_cache, return_lse=True)
            for _ in range(1 + has("prefix_counted_twice")):
                merge_state_in_place(out, lse, *other)
        return out
