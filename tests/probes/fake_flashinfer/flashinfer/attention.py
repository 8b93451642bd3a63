# ruff: noqa: PLR0917, FBT002 - these are the signatures of FlashInfer
import math

import torch

from flashinfer.faults import has, spoil
from flashinfer.graphs import live, stand_in_for_a_graph

BUILT = []  # the keys of the modules that were compiled and loaded
CHUNK = 256  # keys of one part of a split


def get_customize_batch_prefill_module(backend, uri, *jit_args, **_jit_kwargs):
    BUILT.append(uri)
    return Module(backend, jit_args)


__all__ = ["BatchAttentionWithAttentionSinkWrapper", "stand_in_for_a_graph"]


class Module:
    capped_for_all = None  # what the first plan() asked for

    def __init__(self, backend, jit_args):
        self.backend, self.head_size = backend, jit_args[4]


class BatchPrefillWithPagedKVCacheWrapper:
    def __init__(self, float_workspace_buffer, kv_layout="NHD", *, backend, jit_args, jit_kwargs, **buffers):
        self.buffers = buffers if buffers.pop("use_cuda_graph", False) else {}
        self.layout, self.workspace = kv_layout, float_workspace_buffer
        self.module = get_customize_batch_prefill_module(backend, *jit_args, **jit_kwargs)

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
    ):
        soft_cap = logits_soft_cap or 0.0
        if soft_cap and has("soft_cap_refused"):
            raise NotImplementedError("sinks with a soft cap")
        if has("soft_cap_sticks"):
            if Module.capped_for_all is None:
                Module.capped_for_all = soft_cap
            soft_cap = Module.capped_for_all
        self.soft_cap = 0.0 if has("soft_cap_ignored") else soft_cap / (1 + has("soft_cap_halved"))
        self.causal = causal and not has("causal_ignored")
        self.window_left = seen_window(window_left)
        pages = requests_of(qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        self.pages = list(pages)
        if self.buffers:
            assert len(paged_kv_last_page_len) == len(self.buffers["paged_kv_last_page_len_buf"])
            assert len(paged_kv_indices) <= len(self.buffers["paged_kv_indices_buf"])
            if has("graph_keeps_plan"):
                self.first = getattr(self, "first", self.pages)
                self.pages = self.first

    def run(self, q, paged_kv_cache, sinks, sm_scale, *, out=None, lse=None, return_lse=False):
        q, sinks = live(query=q, sinks=sinks)
        whole = isinstance(paged_kv_cache, torch.Tensor)
        caches = paged_kv_cache.unbind(1) if whole else paged_kv_cache
        at = 0
        for queries, keys, slots in self.pages:
            query = q[at : at + queries]
            key, value = (gather(cache, self.layout, slots, keys) for cache in caches)
            got, logarithm = attend(query, key, value, sinks, sm_scale, self.window_left, self.causal, self.soft_cap)
            if not has("not_written") or at + queries < len(q):
                out[at : at + queries] = got
                if return_lse:
                    lse[at : at + queries] = logarithm
            at += queries
        spoil(out)
        if has("lse_natural"):
            lse *= math.log(2)
        if has("out_ignored"):
            out = out.clone()
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
        **buffers,
    ):
        key = f"batch_prefill_attention_sink_bf16_swa_{window_left >= 0}_{backend}"
        types = (q_data_type, kv_data_type, q_data_type, torch.int32)
        super().__init__(
            float_workspace_buffer=float_workspace_buffer,
            kv_layout=kv_layout,
            backend=backend,
            jit_args=[key, *types, head_dim_qk, head_dim_vo, ["sink"], ["float"]],
            jit_kwargs={"use_sliding_window": window_left >= 0},
            **buffers,
        )


def seen_window(window_left):
    if has("window_ignored"):
        return -1
    return window_left - (has("window_too_short") and window_left >= 0) + (has("window_too_long") and window_left >= 0)


def requests_of(qo_indptr, kv_indptr, kv_indices, last_page_len, page_size):
    """For each request its number of queries and keys, and its pages."""
    for i in range(len(qo_indptr) - 1):
        begin, end = int(kv_indptr[i]), int(kv_indptr[i + 1])
        pages = torch.arange(begin, end) if has("page_table_ignored") else kv_indices[begin:end].long()
        keys = (end - begin - 1) * page_size + int(last_page_len[i])
        loaded = (end - begin) * page_size if has("page_ends_read") else keys
        yield int(qo_indptr[i + 1]) - int(qo_indptr[i]), loaded, pages


def gather(cache, layout, pages, keys):
    by_token = cache[pages] if layout == "NHD" or has("layout_ignored") else cache[pages].transpose(1, 2)
    return by_token.flatten(0, 1)[:keys]


def wrong_sinks(sinks, heads, scale):
    """The sinks as a kernel with the active fault takes them."""
    queries, keys = heads
    if has("sink_dropped"):
        return torch.full_like(sinks, -math.inf)
    if has("sink_scaled"):
        return sinks * scale
    if has("sink_times_log2e"):
        return sinks / math.log(2)
    if has("sink_over_log2e"):
        return sinks * math.log(2)
    if has("sinks_rotated"):
        return sinks.roll(1)
    if has("sinks_reversed"):
        return sinks.flip(0)
    if has("first_sink_for_all"):
        return sinks[:1].expand(queries)
    if has("sink_of_kv_head"):
        return sinks[torch.arange(queries) // (queries // keys)]
    return sinks


def attend(query, key, value, sinks, scale, window_left, causal=True, soft_cap=0.0):
    """One request; in float32 with weights as bfloat16, unlike the probe's reference."""
    (queries, heads, size), keys = query.shape, len(key)
    group = heads // key.shape[1]
    scale = size**-0.5 if has("scale_ignored") else scale
    sinks = wrong_sinks(sinks, (heads, key.shape[1]), scale)
    last = torch.arange(keys - queries, keys)[:, None]
    at = torch.arange(keys)[None]
    hidden = (at > last) & causal | (at < last - window_left) & (window_left >= 0)
    hidden |= (at == keys - 1) & (keys > 1) & has("last_token_lost")
    # Of each query head its own keys and values: heads x keys x size.
    own = [head % key.shape[1] if has("kv_heads_interleaved") else head // group for head in range(heads)]
    key, value = (one.float().transpose(0, 1)[own] for one in (key, value))
    logits = query.float().transpose(0, 1) @ key.transpose(1, 2) * scale
    if soft_cap:
        logits = soft_cap * torch.tanh(logits / soft_cap)
    logits = logits.masked_fill(hidden, -math.inf)
    times = -(-keys // CHUNK) if has("sink_in_each_part") else 1
    sink = sinks[:, None, None].expand(heads, queries, 1) + math.log(times)
    top = torch.maximum(logits.amax(2, keepdim=True), sink)
    weights = torch.exp(logits - top)
    total = weights.sum(2, keepdim=True)
    numerator = weights.bfloat16().float() @ value
    with_sink = total + torch.exp(sink - top)
    out = (numerator / with_sink).bfloat16().to(query.dtype).transpose(0, 1)
    counted = total if has("lse_without_sink") else with_sink
    lse = ((top + counted.log()) / math.log(2))[:, :, 0].T
    return out, lse
