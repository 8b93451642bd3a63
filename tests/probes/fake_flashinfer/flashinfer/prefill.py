# ruff: noqa: FBT002, PLR0917 - these are the signatures of FlashInfer
import math
from itertools import pairwise

import torch

from flashinfer.faults import has, write_behind

PAIRS = (64, 128, 256)
BUILDS = []  # the arguments of every module that was asked for


def get_batch_prefill_module(backend, *args):
    BUILDS.append((backend, *args))
    if has("header_missing"):
        raise RuntimeError("Ninja build failed. Ninja output:\nfatal error: cublas_v2.h: No such file or directory")
    if has("foreign_assertion"):
        raise RuntimeError("/usr/include/cuda/std/optional(9): error: static assertion failed")
    if backend == "fa3" and args[4] not in PAIRS:
        raise RuntimeError(
            "Ninja build failed. Ninja output:\n"
            "/p/flashinfer/data/include/flashinfer/attention/hopper/prefill_sm90.cuh(568): error: static assertion "
            "failed\n    static_assert(HEAD_DIM_VO == 64 || HEAD_DIM_VO == 128 || HEAD_DIM_VO == 256);\n    ^\n"
        )


class _Wrapper:
    def __init__(self, float_workspace_buffer, kv_layout="NHD", backend="auto"):
        self.layout, self.backend = kv_layout, backend

    def _planned(self, qo_indptr, heads, head_dim, causal, sm_scale, dtypes, idtype, window_left, logits_soft_cap):
        assert all(dtype == torch.bfloat16 for dtype in dtypes)
        self.rows, self.heads, self.causal = qo_indptr.tolist(), heads, causal
        self.scale = 1 / math.sqrt(head_dim) if has("scale_ignored") else 1.0 if has("scale_missing") else sm_scale
        flags = (0, window_left >= 0, (logits_soft_cap or 0) > 0, False)
        get_batch_prefill_module(
            self.backend, torch.bfloat16, torch.bfloat16, torch.bfloat16, idtype, head_dim, head_dim, *flags
        )
        self.refuses = head_dim < 64 or (head_dim == 192 and self.rows[-1] > 100)

    def _attend(self, q, requests, out, lse):
        if self.refuses and not has("garbage_for_45"):
            raise RuntimeError(
                "Error in function 'Dispatched' at x.cuh:2615: Internal Error: Invalid configuration : Q=2"
            )
        if self.refuses:
            out.zero_()
            return
        if has("cuda_error"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        for r, (start, stop) in enumerate(pairwise(self.rows)):
            rows = slice(start, stop)
            key, value = requests[r - (has("empty_request_shifts") and start > 0)]
            if start == stop or len(key) < stop - start:
                continue
            if has("request_not_written") and rows.stop == self.rows[-1]:
                continue
            one, its_lse = _attention(q[rows], key, value, self.scale, self.causal, self.heads)
            out[rows] = one
            if lse is not None:
                lse[rows] = its_lse
        _spoil(out, lse)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    def plan(
        self,
        qo_indptr,
        paged_kv_indptr,
        paged_kv_indices,
        paged_kv_last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim_qk,
        page_size,
        head_dim_vo=None,
        causal=False,
        sm_scale=None,
        window_left=-1,
        logits_soft_cap=None,
        q_data_type="float16",
        kv_data_type=None,
        fixed_split_size=None,
        disable_split_kv=False,
    ):
        self.page_size = page_size
        self.table = paged_kv_indptr.tolist(), paged_kv_indices.long(), paged_kv_last_page_len.tolist()
        self._planned(
            qo_indptr,
            (num_qo_heads, num_kv_heads),
            head_dim_qk,
            causal,
            sm_scale,
            (q_data_type, kv_data_type),
            paged_kv_indptr.dtype,
            window_left,
            logits_soft_cap,
        )

    def run(self, q, paged_kv_cache, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False):
        caches = paged_kv_cache if isinstance(paged_kv_cache, tuple) else paged_kv_cache.unbind(1)
        if has("key_and_value_swapped"):
            caches = caches[::-1]
        if has("packing_ignored") and isinstance(paged_kv_cache, tuple):
            caches = [cache.contiguous() if i else cache for i, cache in enumerate(caches)]
            caches[1] = caches[1].roll(1, -1)
        shape = (caches[0].shape[0], self.page_size, self.heads[1], q.shape[-1])
        if self.layout == "NHD" or has("layout_ignored"):
            by_token = [cache.reshape(shape) for cache in caches]
        else:
            by_token = [cache.transpose(1, 2) for cache in caches]
        requests = [self._request(by_token, r) for r in range(len(self.rows) - 1)]
        given = out.clone() if has("returns_copy") else out
        self._attend(q, requests, given, lse if return_lse else None)
        return (given, lse) if return_lse else given

    def _request(self, by_token, r):
        indptr, indices, last = self.table
        pages = indices[indptr[r] : indptr[r + 1]]
        if has("page_table_ignored"):
            pages = torch.arange(indptr[r], indptr[r + 1])
        if has("wrong_page") and len(pages) > 1:
            pages = torch.cat([pages[:1], pages[:-1]])
        length = max(len(pages) - 1, 0) * self.page_size + last[r]
        if has("whole_last_page"):
            length = len(pages) * self.page_size
        return [cache[pages].flatten(0, 1)[:length] for cache in by_token]


class BatchPrefillWithRaggedKVCacheWrapper(_Wrapper):
    def plan(
        self,
        qo_indptr,
        kv_indptr,
        num_qo_heads,
        num_kv_heads,
        head_dim_qk,
        head_dim_vo=None,
        causal=False,
        window_left=-1,
        logits_soft_cap=None,
        sm_scale=None,
        q_data_type="float16",
    ):
        self.kv_indptr = kv_indptr.tolist()
        self._planned(
            qo_indptr,
            (num_qo_heads, num_kv_heads),
            head_dim_qk,
            causal,
            sm_scale,
            (q_data_type,),
            kv_indptr.dtype,
            window_left,
            logits_soft_cap,
        )

    def run(self, q, k, v, out=None, lse=None, return_lse=False):
        shift = has("ragged_shifted")
        slices = [slice(a - (shift and a > 0), b - (shift and a > 0)) for a, b in pairwise(self.kv_indptr)]
        self._attend(q, [(k[one], v[one]) for one in slices], out, lse if return_lse else None)
        return (out, lse) if return_lse else out


def _attention(q, k, v, scale, causal, heads):
    """One request in float32, with p and the output rounded to bf16 as the kernels do: output and LSE in base 2."""
    k, v = k[has("first_key_dropped") :], v[has("first_key_dropped") :]
    k, v = (tensor[: len(tensor) - has("last_key_dropped")] for tensor in (k, v))
    group = heads[0] // heads[1]
    of = torch.arange(heads[0]) % heads[1] if has("heads_interleaved") else torch.arange(heads[0]) // group
    k, v = k.float()[:, of], v.float()[:, of]
    if has("value_coarse"):  # as e4m3 keeps it
        v = v.to(torch.float8_e4m3fn).float()
    scores = torch.einsum("qhd,khd->hqk", q.float(), k) * scale
    if causal and not has("no_causal_mask"):
        scores.masked_fill_(_hidden(len(q), len(k)), -math.inf)
    top = scores.amax(-1, keepdim=True)
    p = (scores - top).exp().bfloat16().float()
    total = p.sum(-1, keepdim=True)
    lse = (total.log() + top)[..., 0].T / (1 if has("natural_log") else math.log(2))
    power = 2 if has("normalised_twice") else 0 if has("not_normalised") else 1
    out = torch.einsum("hqk,khd->qhd", p, v) / total[..., 0].T[..., None] ** power
    return (out * (1.02 if has("value_scaled") else 1)).bfloat16(), lse


def _hidden(queries, keys):
    diagonal = 1 if has("mask_at_top_left") else keys - queries + 1
    diagonal += has("one_key_too_many") - has("diagonal_hidden")
    return torch.ones((queries, keys), dtype=torch.bool).triu(diagonal)


def _spoil(out, lse):
    if has("nan_element"):
        out[-1, -1, 3] = math.nan
    if has("last_columns_lost"):
        out[..., -16:] = math.nan
    if has("written_behind"):
        write_behind(out)
    if lse is not None and has("lse_not_written"):
        lse.fill_(math.nan)
    if lse is not None and has("lse_written_behind"):
        write_behind(lse)
