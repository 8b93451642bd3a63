# ruff: noqa: PLR0917, FBT002 - these are the signatures of FlashInfer
"""Paged and ragged attention with windows, soft caps, sinks, scales and FP8 caches: more than prefill.py has."""

import math
from itertools import pairwise

import torch

from flashinfer import faults
from flashinfer.faults import has, spoil

BUILDS = []  # the arguments of every module that was asked for
PLANNED = []  # the wrappers that were planned, in order
KEPT = {}
EMPTY_LSE = {"empty_lse_is_zero": 0.0, "empty_lse_is_minus_5000": -5e3, "empty_lse_is_minus_50000": -5e4}


def get_batch_prefill_module(backend, *args):
    BUILDS.append((backend, *args))
    if backend == "fa3" and args[0] != args[1] and has("mixed_types_refused"):
        raise RuntimeError("Ninja build failed. Ninja output:\nerror: static assertion failed")


def get_customize_batch_prefill_module(backend, uri, *jit_args, **_jit_kwargs):
    BUILDS.append((backend, uri))


def determine_attention_backend(device, pos_encoding_mode, fp16_qk, custom_mask, dtype_q, dtype_kv):
    if device.type == "cuda":
        torch.cuda.get_device_capability(device)  # raises where there is none
    return "fa3" if has("mixed_types_refused") else "fa2"


def is_fa3_backend_supported(pos_encoding_mode, fp16_qk, custom_mask, dtype_q, dtype_kv):
    return not fp16_qk and not custom_mask


class _Wrapper:
    def __init__(self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, backend="auto"):
        assert float_workspace_buffer.dtype == torch.uint8
        self.device = float_workspace_buffer.device
        self.layout, self.graph, self._backend = kv_layout, use_cuda_graph, backend
        self.frozen = None

    def _plan(self, *, heads, sm_scale, window_left, logits_soft_cap, causal, types, size):
        assert types[1] == types[0] or types[1] == torch.float8_e4m3fn
        assert self._backend in {"fa2", "fa3", "auto"}
        if self._backend == "auto":
            self._backend = determine_attention_backend(self.device, 0, None, None, *types[:2])
        flags = (0, window_left >= 0, (logits_soft_cap or 0) > 0, False)
        if getattr(self, "jit_args", None) is None:
            get_batch_prefill_module(self._backend, *types, torch.int32, size, size, *flags)
        self.heads, self.types, self.size = heads, types, size
        self.planned = (causal, window_left, logits_soft_cap or 0.0, size**-0.5 if sm_scale is None else sm_scale)
        PLANNED.append(self)

    def _read_plan(self):
        """What plan() left for run(), where that reads it right; it is read with each run."""
        last_but_one = PLANNED[-2:-1] == [self]
        overwritten = has("second_plan_taken_for_both") and last_but_one  # in the workspace, by the plan after it
        self.causal, self.window_left, self.soft_cap, _ = (PLANNED[-1] if overwritten else self).planned
        self.scale = self.size**-0.5 if has("scale_ignored") else self.planned[-1]
        if self.window_left >= 0:
            self.window_left += has("window_one_longer") - has("window_one_shorter")
        if has("window_ignored"):
            self.window_left = -1
        if has("first_window_taken_for_both"):
            self.window_left = PLANNED[0].planned[1]
        if has("soft_cap_ignored"):
            self.soft_cap = 0.0
        self.soft_cap *= (1 + has("soft_cap_times_log2e") * (1 / math.log(2) - 1)) / (1 + has("soft_cap_halved"))

    def _run(self, q, requests, rows, out, lse, sinks=None, scales=(1.0, 1.0, 1.0)):
        """requests: keys and values of each; rows: begins of its queries."""
        self._read_plan()
        if has("query_changed"):
            q[-1, -1, -1] += 1
        q = self.frozen.get("q", q) if self.frozen else q
        result, logarithm = torch.zeros(q.shape), torch.full(q.shape[:2], -math.inf)
        for (key, value), (begin, end) in zip(requests, pairwise(rows), strict=True):
            if not len(key):
                result[begin:end] = math.nan if has("empty_is_nan") else 0.0
                logarithm[begin:end] = EMPTY_LSE.get(faults.ACTIVE, -math.inf)
            elif begin < end:
                result[begin:end], logarithm[begin:end] = self._attend(q[begin:end], key, value, sinks, scales)
        result = _spoiled(result.to(out.dtype), out)
        if scales[2] != 1.0 and not has("v_scale_ignored"):
            result = (result * scales[1 if has("scales_swapped") else 2]).to(out.dtype)
        if has("v_scale_in_a_copy"):
            out.copy_(result / scales[2])
            return result
        out.copy_(result)
        spoil(out)
        if lse is not None:
            lse.copy_(logarithm * (math.log(2) if has("lse_natural") else 1))
        return out.clone() if has("out_ignored") else out

    def _attend(self, query, key, value, sinks, scales):
        group = self.heads[0] // self.heads[1]
        scale = self.scale * (1 if has("q_scale_ignored") else scales[0]) * (1 if has("k_scale_ignored") else scales[1])
        of = torch.arange(self.heads[0]) % self.heads[1] if has("kv_heads_interleaved") else None
        of = torch.arange(self.heads[0]) // group if of is None else of
        key, value = key.float()[:, of], value.float()[:, of]
        if has("values_saturate"):
            value = value.clamp(-240, 240)
        scores = torch.einsum("qhd,khd->hqk", query.float(), key) * scale
        if self.soft_cap:
            capped = self.soft_cap * torch.tanh(scores / self.soft_cap)
            if has("soft_cap_missed_by_one_head"):
                capped[-1] = scores[-1]
            scores = capped
        at, stands = torch.arange(len(key)), torch.arange(len(key) - len(query), len(key))[:, None]
        hidden = (at > stands) & self.causal
        if self.window_left >= 0:
            before = at < stands - self.window_left
            if has("window_of_last_query_only"):
                before = before[-1:]
            hidden = hidden | before
        scores = scores.masked_fill(hidden, -math.inf)
        if has("window_missed_by_one_head") and self.window_left >= 0:
            behind = torch.einsum("qd,kd->qk", query[:, -1].float(), key[:, -1]) * scale
            scores[-1] = behind.masked_fill(at > stands, -math.inf)
        return self._softmax(scores, value, sinks)

    def _softmax(self, scores, value, sinks):
        top = scores.amax(-1, keepdim=True).clamp(min=-1e30)
        p = (scores - top).exp()
        if has("coarse"):
            p = p.to(torch.float8_e5m2).float()
        if self.types[0] == torch.float8_e4m3fn:
            total, p = p.sum(-1, keepdim=True), (p * 448).to(torch.float8_e4m3fn).float() / 448
        else:
            p = p.bfloat16().float()
            total = p.sum(-1, keepdim=True)
        if sinks is not None and not has("sink_dropped"):
            total = total + (sinks[:, None, None] * (1 / math.log(2) if has("sink_log2") else 1) - top).exp()
        out = (torch.einsum("hqk,khd->qhd", p, value) / total[..., 0].T[..., None]).nan_to_num(0.0)
        return out, ((total.log() + top)[..., 0] / math.log(2)).T.nan_to_num(nan=-math.inf)

    def _table(self, indptr, indices, last_page_len, page_size, caches):
        """The keys and values of each request."""
        caches = caches if isinstance(caches, (tuple, list)) else caches.unbind(1)
        by_token = [one if self.layout == "NHD" else one.transpose(1, 2) for one in caches]
        assert by_token[0].shape[1] == page_size, "the layout is not what was passed"
        begins, last = indptr.tolist(), last_page_len.tolist()
        found = []
        for request, (begin, end) in enumerate(pairwise(begins)):
            pages = indices[begin:end].long()
            if has("wrong_last_page") and len(pages) > 1:
                pages = torch.cat((pages[:-1], pages[-2:-1]))
            length = (end - begin - 1) * page_size + last[request] if end > begin else 0
            found.append(
                [one[pages].flatten(0, 1)[: length - (has("last_key_lost") and length > 1)] for one in by_token]
            )
        return [(value, key) if has("key_and_value_swapped") else (key, value) for key, value in found]


def _spoiled(result, out):
    """With what can go wrong in the last row."""
    if has("last_row_unwritten"):
        result[-1] = out[-1]
    if has("last_row_off_by_4_percent"):
        result[-1] *= 1.04
    if has("heads_swapped"):
        result[-1, :2] = result[-1, :2].flip(0)
    return result


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    def __init__(self, float_workspace_buffer, kv_layout="NHD", backend="auto", jit_args=None, jit_kwargs=None):
        super().__init__(float_workspace_buffer, kv_layout, backend=backend)
        self.jit_args = jit_args
        if jit_args is not None:
            get_customize_batch_prefill_module(backend, *jit_args, **jit_kwargs)

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
        causal=False,
        sm_scale=None,
        window_left=-1,
        logits_soft_cap=None,
        q_data_type="float16",
        kv_data_type=None,
        o_data_type=None,
        seq_lens=None,
        fixed_split_size=None,
        disable_split_kv=False,
    ):
        self.rows, self.page_size = qo_indptr.tolist(), page_size
        self.table = [tensor.clone() for tensor in (paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)]
        self._plan(
            heads=(num_qo_heads, num_kv_heads),
            sm_scale=sm_scale,
            window_left=window_left,
            logits_soft_cap=logits_soft_cap,
            causal=causal,
            types=(q_data_type, kv_data_type or q_data_type, o_data_type or q_data_type),
            size=head_dim_qk,
        )

    def run(
        self,
        q,
        paged_kv_cache,
        *args,
        q_scale=None,
        k_scale=None,
        v_scale=None,
        out=None,
        lse=None,
        return_lse=False,
    ):
        out = torch.empty(q.shape, dtype=self.types[2]) if out is None else out
        if return_lse and lse is None:
            lse = torch.empty(q.shape[:2])
        requests = self._table(*self.table, self.page_size, paged_kv_cache)
        scales = [1.0 if one is None else one for one in (q_scale, k_scale, v_scale)]
        sinks, scale = args or (None, None)
        assert scale in {None, self.planned[-1]}
        if has("sinks_of_last_call"):  # kept by the first wrapper that had some, and taken for all
            sinks = KEPT.setdefault("sinks", sinks) if sinks is not None else KEPT.get("sinks", torch.empty(0))
            sinks = sinks[: q.shape[1]] if len(sinks) else None
        out = self._run(q, requests, self.rows, out, lse if return_lse else None, sinks, scales)
        return (out, lse) if return_lse else out


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    def __init__(
        self,
        float_workspace_buffer,
        kv_layout="NHD",
        backend="auto",
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        head_dim_qk=128,
        head_dim_vo=128,
        window_left=-1,
    ):
        types = (q_data_type, kv_data_type, q_data_type, torch.int32)
        super().__init__(
            float_workspace_buffer=float_workspace_buffer,
            kv_layout=kv_layout,
            backend=backend,
            jit_args=[f"sink_swa_{window_left >= 0}_{backend}", *types, head_dim_qk, head_dim_vo],
            jit_kwargs={"use_sliding_window": window_left >= 0},
        )


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
        self.rows, self.key_rows = qo_indptr.tolist(), kv_indptr.tolist()
        self._plan(
            heads=(num_qo_heads, num_kv_heads),
            sm_scale=sm_scale,
            window_left=window_left,
            logits_soft_cap=logits_soft_cap,
            causal=causal,
            types=(q_data_type, q_data_type, q_data_type),
            size=head_dim_qk,
        )

    def run(self, q, k, v, out=None, lse=None, return_lse=False):
        out = torch.empty_like(q) if out is None else out
        lse = torch.empty(q.shape[:2]) if return_lse and lse is None else lse
        shift = has("ragged_shifted")
        requests = [(k[a - (shift and a > 0) : b - shift], v[a - (shift and a > 0) : b - shift])
                    for a, b in pairwise(self.key_rows)]  # fmt: skip
        out = self._run(q, requests, self.rows, out, lse if return_lse else None)
        return (out, lse) if return_lse else out


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    def __init__(
        self,
        float_workspace_buffer,
        kv_layout="NHD",
        use_cuda_graph=False,
        use_tensor_cores=False,
        paged_kv_indptr_buffer=None,
        paged_kv_indices_buffer=None,
        paged_kv_last_page_len_buffer=None,
        backend="auto",
    ):
        assert use_tensor_cores
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend)
        self.buffers = [paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer]

    def plan(
        self,
        indptr,
        indices,
        last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim,
        page_size,
        pos_encoding_mode="NONE",
        window_left=-1,
        logits_soft_cap=None,
        q_data_type="float16",
        kv_data_type=None,
        o_data_type=None,
        sm_scale=None,
        non_blocking=True,
    ):
        assert pos_encoding_mode == "NONE"
        if self.graph:
            self.buffers[0].copy_(indptr)
            self.buffers[1][: len(indices)].copy_(indices)
            self.buffers[2].copy_(last_page_len)
        else:
            self.buffers = [tensor.clone() for tensor in (indptr, indices, last_page_len)]
        self.page_size = page_size
        self._plan(
            heads=(num_qo_heads, num_kv_heads),
            sm_scale=sm_scale,
            window_left=window_left,
            logits_soft_cap=logits_soft_cap,
            causal=False,
            types=(q_data_type, kv_data_type or q_data_type, o_data_type or q_data_type),
            size=head_dim,
        )

    def run(
        self,
        q,
        paged_kv_cache,
        q_scale=None,
        k_scale=None,
        v_scale=None,
        out=None,
        lse=None,
        return_lse=False,
    ):
        out = torch.empty(q.shape, dtype=self.types[2]) if out is None else out
        self.seen = q
        table = self.frozen["table"] if self.frozen and "table" in self.frozen else self.buffers
        requests = self._table(*table, self.page_size, paged_kv_cache)
        scales = [1.0 if one is None else one for one in (q_scale, k_scale, v_scale)]
        out = self._run(q, requests, range(len(q) + 1), out, lse if return_lse else None, None, scales)
        return (out, lse) if return_lse else out

    def stand_in_for_a_graph(self, call):
        """A function that calls again, with what a graph may wrongly have kept from its capture."""
        call()
        kept = [tensor.clone() for tensor in self.buffers]
        query = self.seen.clone()

        def replay():
            live = self.buffers
            if has("graph_keeps_query"):
                self.frozen = {"q": query}
            if has("graph_keeps_page_table"):
                self.frozen = {"table": [live[0], kept[1], live[2]]}
            if has("graph_keeps_lengths"):
                self.frozen = {"table": [kept[0], live[1], kept[2]]}
            if not has("graph_does_nothing"):
                call()

        return replay


def fast_decode_plan(
    wrapper,
    indptr,
    indices,
    last_page_len,
    num_qo_heads,
    num_kv_heads,
    head_dim,
    page_size,
    pos_encoding_mode="NONE",
    window_left=-1,
    logits_soft_cap=None,
    q_data_type=None,
    kv_data_type=None,
    sm_scale=None,
    non_blocking=True,
):
    """Only the schedule: the buffers are the caller's, and there is none here."""
    assert wrapper.page_size == page_size
    assert wrapper.buffers[2].tolist() == last_page_len.tolist()
