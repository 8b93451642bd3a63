# ruff: noqa: FBT002, PLR0917 - these are the signatures of FlashInfer
"""Ragged prefill with unlike head sizes; where a fault is on, one head of one row goes wrong, or one element."""

import math

import torch

from flashinfer.faults import has, write_behind

HEAD = 1
LOG2 = math.log(2)


def get_batch_prefill_module(backend, q, kv, o, index, head_dim_qk, head_dim_vo, *flags):
    assert backend in {"fa2", "fa3"}
    assert (q, kv, o, index) == (torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.int32)
    assert (head_dim_qk, head_dim_vo, *flags) == (192, 128, 0, False, False, False)


class BatchPrefillWithRaggedKVCacheWrapper:
    def __init__(self, float_workspace_buffer, kv_layout="NHD", backend="auto"):
        assert kv_layout == "NHD"

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
        assert (head_dim_qk, head_dim_vo, window_left, logits_soft_cap) == (192, 128, -1, None)
        assert (num_qo_heads, q_data_type) == (num_kv_heads, torch.bfloat16)
        self.indptr, self.causal, self.scale = (qo_indptr.tolist(), kv_indptr.tolist()), causal, sm_scale

    def run(self, q, k, v, out=None, lse=None, return_lse=False):
        result, sums = torch.empty(out.shape), torch.empty(out.shape[:2])
        requests = list(zip(*self.indptr, *(side[1:] for side in self.indptr), strict=False))
        for first, begin, last, end in requests:
            mine = slice(first, last)
            result[mine], sums[mine] = self._attend(q[mine], k[begin:end], v[begin:end], last - first)
        first, begin, last, end = max(requests, key=lambda request: request[3] - request[1])
        wrong = self._attend(*self._damage(q[first:last], k[begin:end], v[begin:end]), last - first, faulty=True)
        row = last - 2
        result[row, HEAD], sums[row, HEAD] = wrong[0][-2, HEAD], wrong[1][-2, HEAD]
        self._spoil(result, sums, row, out)
        out.copy_(result)
        if has("written_behind"):
            write_behind(out)
        if has("input_written"):
            v[-1, -1, -1] += 1
        returned = out.clone() if has("out_ignored") else out
        return (returned, sums) if return_lse else returned

    def _damage(self, q, k, v):
        if has("key_before_first"):
            k, v = torch.cat((k[1:2], k[1:])), torch.cat((v[1:2], v[1:]))
        if has("last_keys_dropped"):
            k, v = torch.cat((k[:-2], k[:2])), torch.cat((v[:-2], v[:2]))
        if has("rotary_ignored"):
            q = torch.cat((q[..., :128], torch.zeros_like(q[..., 128:])), dim=-1)
        if has("value_from_keys_half"):
            v = v.roll(1, dims=-1)
        return q, k, v

    def _spoil(self, result, sums, row, out):
        if has("heads_swapped"):
            result[row, [HEAD, HEAD + 1]] = result[row, [HEAD + 1, HEAD]]
        if has("head_unwritten"):
            result[row, HEAD] = out[row, HEAD]
        if has("head_zero"):
            result[row, HEAD] = 0
        if has("rounded_coarsely"):
            result[row, HEAD] = result[row, HEAD].to(torch.float8_e4m3fn).float()
        if has("nan_element"):
            result[-1, -1, 3] = math.nan
        if has("lse_natural"):
            sums[row, HEAD] *= LOG2
        if has("lse_unwritten"):
            sums[row, HEAD] = math.nan

    def _attend(self, q, k, v, queries, *, faulty=False):
        scale = 1 / math.sqrt(192) if faulty and has("scale_ignored") else self.scale
        scores = torch.einsum("qhd,nhd->hqn", q.float(), k.float()) * scale
        if self.causal:
            place = torch.arange(len(k))
            first = place[len(k) - queries :, None] + (faulty and has("mask_shifted"))
            scores = scores.masked_fill(place > first, -math.inf)
        p = (scores - scores.amax(-1, keepdim=True)).exp().bfloat16().float()
        total = p.sum(-1)
        out = torch.einsum("hqn,nhd->qhd", p, v.float()) / total.T[..., None]
        return out, (scores.amax(-1) + total.log()).T / LOG2
