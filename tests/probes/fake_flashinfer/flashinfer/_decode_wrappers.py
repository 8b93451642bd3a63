# ruff: noqa: PLR0917, FBT002 - these are the signatures of FlashInfer
import math

import torch

from flashinfer.faults import has, spoil

PART = 128  # tokens; longer requests are split and merged
NO_MODULE = "Ninja build failed. Ninja output:\n"
COMPILER_SAYS = {
    "compiler_refuses": "decode.cuh(451): error: static assertion failed",
    "compiler_lacks_header": "decode.cuh(17): fatal error: cuda_fp8.h: No such file or directory",
    "linker_fails": "/usr/bin/ld: cannot find -lcudart",
    "no_compiler": "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
}


def get_batch_decode_module(*args):
    return _module("decode", *args)


def get_batch_prefill_module(backend, *args):
    return _module(backend, *args)


def _module(kind, *args):
    """(kind, head size); fails to be built as the fault says when the head size is not offered."""
    for fault, text in COMPILER_SAYS.items():
        if has(fault):
            raise RuntimeError(NO_MODULE + text)
    return kind, args[4]


class BatchDecodeWithPagedKVCacheWrapper:
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
        jit_args=None,
    ):
        assert not float_workspace_buffer.any()
        self.device = float_workspace_buffer.device
        self.layout, self.graph, self.tensor_cores = kv_layout, use_cuda_graph, use_tensor_cores
        self.buffers = [paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer]
        self.frozen = {}

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
        data_type=None,
        sm_scale=None,
        rope_scale=None,
        rope_theta=None,
        non_blocking=True,
        block_tables=None,
        seq_lens=None,
        fixed_split_size=None,
        disable_split_kv=False,
    ):
        if self.graph:
            self.buffers[0].copy_(indptr)
            self.buffers[1][: len(indices)].copy_(indices)
            self.buffers[2].copy_(last_page_len)
        else:
            self.buffers = [tensor.clone() for tensor in (indptr, indices, last_page_len)]
        if has("plan_refuses") or (head_dim not in {64, 128, 256} and has("")):
            raise RuntimeError(f"Unsupported head_dim: {head_dim}")
        self._schedule(indptr, last_page_len, page_size)
        self.scale = 1 / math.sqrt(head_dim) if sm_scale is None or has("scale_ignored") else sm_scale
        self.heads = num_qo_heads, num_kv_heads

    def _schedule(self, indptr, last_page_len, page_size):
        """How many parts each request has."""
        pages = indptr.diff()
        self.lengths = ((pages - 1).clamp(min=0) * page_size + last_page_len).tolist()
        self.parts = [-(-max(length, 1) // PART) for length in self.lengths]

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
        enable_pdl=None,
        window_left=None,
        sinks=None,
        q_len_per_req=1,
    ):
        if has("illegal_access"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if has("wrong_signature"):
            raise TypeError("run() got an unexpected keyword argument")
        self.query = q
        result, sums = self._attend(self.frozen.get("q", q), self._keys_and_values(paged_kv_cache))
        if has("last_request_unwritten"):
            result[-1] = float("nan")
        if has("rounded_coarsely"):
            result = (result.to(torch.float8_e4m3fn)).float()
        spoil(result)
        out.copy_(result)
        if has("written_behind_last"):
            out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(1.0)
        if return_lse:
            lse.copy_(sums * math.log(2) if has("lse_natural") else sums)
            return out, lse
        return out.clone() if has("out_ignored") else out

    def _keys_and_values(self, cache):
        """[pages, page size, KV heads, head size] each."""
        key, value = cache if isinstance(cache, tuple) else (cache[:, 0], cache[:, 1])
        if has("key_and_value_swapped"):
            key, value = value, key
        if has("strides_ignored") and isinstance(cache, tuple):  # as if keys lay one after the other
            key = key.as_strided(key.shape, key.contiguous().stride())
        if self.layout == "NHD":
            return key, value
        if has("hnd_as_nhd"):
            return tuple(side.reshape(side.shape[0], side.shape[2], side.shape[1], -1) for side in (key, value))
        return key.transpose(1, 2), value.transpose(1, 2)

    def _attend(self, q, caches):
        query_heads, kv_heads = self.heads
        groups = query_heads // kv_heads
        of_head = torch.arange(query_heads) // groups
        if has("heads_interleaved"):
            of_head = torch.arange(query_heads) % kv_heads
        if has("query_strides_ignored"):
            q = q.as_strided(q.shape, (q.shape[1] * q.shape[2], q.shape[2], 1))
        result = torch.zeros(q.shape)
        sums = torch.full(q.shape[:2], -math.inf)
        if has("empty_is_nan"):
            result[:] = float("nan")
        for row in range(len(q)):
            key, value = (side[:, of_head] for side in self._tokens(row, caches))
            if has("last_key_dropped"):
                key, value = key[:-1], value[:-1]
            if len(key):
                result[row], sums[row] = self._split(q[row].float(), key.float(), value.float(), self.parts[row])
        return result, sums

    def _tokens(self, row, caches):
        """The keys and the values of one request, found as the kernel finds them."""
        indptr, indices, last_page_len = self.frozen.get("table", self.buffers)
        first, end = indptr[row : row + 2].tolist()
        pages = indices[first:end].long()
        if has("wrong_page") and len(pages) > 1:
            pages = torch.cat((pages[1:], pages[:1]))
        if has("page_table_ignored"):
            pages = torch.arange(first, end)
        page_size = caches[0].shape[1]
        length = (end - first - 1) * page_size + int(last_page_len[row]) if end > first else 0
        if has("rest_of_page_read"):
            length = (end - first) * page_size
        return [side[pages].reshape(-1, *side.shape[2:])[:length] for side in caches]

    def _split(self, q, key, value, parts):
        """One request: PART tokens at a time, as many parts as were planned, then merged by their sums."""
        outs, sums = [], []
        for part in range(parts):
            keys, values = (side[part * PART : (part + 1) * PART] for side in (key, value))
            if len(keys):
                scores = torch.einsum("hd,nhd->hn", q, keys) * self.scale
                rounded = scores.softmax(-1).bfloat16().float() if self.tensor_cores else scores.softmax(-1)
                outs.append(torch.einsum("hn,nhd->hd", rounded / rounded.sum(-1, keepdim=True), values))
                sums.append(scores.logsumexp(-1) / math.log(2))
        if len(outs) > 1 and has("last_part_lost"):
            outs, sums = outs[:-1], sums[:-1]
        outs, sums = torch.stack(outs).bfloat16().float(), torch.stack(sums)
        weights = (sums * math.log(2)).softmax(0)
        if has("parts_weighted_alike"):
            weights = torch.full_like(weights, 1 / len(weights))
        return (outs * weights[..., None]).sum(0), (sums * math.log(2)).logsumexp(0) / math.log(2)

    def stand_in_for_a_graph(self, call):
        """A function that calls again, with what a graph may wrongly have kept from its capture."""
        at_capture = [tensor.clone() for tensor in self.buffers]
        call()

        def replay():
            live = self.buffers
            kept = {
                "graph_keeps_lengths": [at_capture[0], live[1], at_capture[2]],
                "graph_keeps_last_page_len": [live[0], live[1], at_capture[2]],
                "graph_keeps_page_table": [live[0], at_capture[1], live[2]],
            }
            stale = [table for fault, table in kept.items() if has(fault)]
            self.frozen = {"table": stale[0]} if stale else {}
            if has("graph_keeps_plan"):
                self.parts = first_parts
            if has("graph_keeps_query"):
                self.frozen["q"] = first_query
            if not has("graph_does_nothing"):
                call()

        first_parts, first_query = list(self.parts), self.query.clone()
        return replay


def fast_decode_plan(
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
    q_data_type=None,
    kv_data_type=None,
    data_type=None,
    sm_scale=None,
    rope_scale=None,
    rope_theta=None,
    non_blocking=True,
    fixed_split_size=None,
    disable_split_kv=False,
    global_override_indptr_cpu=None,
):
    """Only the schedule: the buffers are the caller's."""
    if not has("fast_plan_does_nothing"):
        self._schedule(indptr, last_page_len, page_size)
