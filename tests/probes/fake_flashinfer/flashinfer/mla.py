# ruff: noqa: PLR0917, FBT002 - these are the signatures of FlashInfer
"""MLA as FlashInfer computes it: parts of 64 keys, probabilities and parts rounded to bf16, merged by their sums.

Where a fault is on, one head of one row goes wrong, or one element.
"""

import math

import torch

from flashinfer.faults import has, spoil

PART = 64
HEAD = 3
LOG2 = math.log(2)


class RefusedError(ValueError):
    pass


class BatchMLAPagedAttentionWrapper:
    def __init__(
        self,
        float_workspace_buffer,
        use_cuda_graph=False,
        qo_indptr=None,
        kv_indptr=None,
        kv_indices=None,
        kv_len_arr=None,
        backend="auto",
    ):
        self.graph, self.backend = use_cuda_graph, backend
        self.buffers = (qo_indptr, kv_indptr, kv_indices, kv_len_arr)
        self.frozen = {}

    def plan(
        self,
        qo_indptr,
        kv_indptr,
        kv_indices,
        kv_len_arr,
        num_heads,
        head_dim_ckv,
        head_dim_kpe,
        page_size,
        causal,
        sm_scale,
        q_data_type,
        kv_data_type,
        use_profiler=False,
    ):
        if has("boundary_refused") and num_heads == 40:
            raise RefusedError("fa2 MLA causal tile boundary: native execution would omit a visible key.")
        if has("refused_otherwise"):
            raise RefusedError("fa2 MLA needs more than this device has.")
        new = (qo_indptr, kv_indptr, kv_indices, kv_len_arr)
        if self.graph:
            for name, buffer, tensor in zip(("qo", "kv", "indices", "lengths"), self.buffers, new, strict=True):
                assert name == "indices" or buffer.shape == tensor.shape, name
                buffer[: len(tensor)].copy_(tensor)
        else:
            self.buffers = new
        self.kept = q_data_type, kv_data_type, head_dim_ckv, head_dim_kpe, num_heads
        self.page_size, self.causal, self.scale = page_size, causal, sm_scale

    def run(
        self,
        q_nope,
        q_pe,
        ckv_cache,
        kpe_cache,
        out=None,
        lse=None,
        return_lse=False,
        profiler_buffer=None,
        ckv_scale=None,
        kpe_scale=None,
    ):
        assert (q_nope.dtype, ckv_cache.dtype, q_nope.shape[2], q_pe.shape[2], q_nope.shape[1]) == self.kept
        assert (ckv_cache.dtype == torch.float8_e4m3fn) == (ckv_scale is not None) == (kpe_scale is not None)
        q_nope, q_pe = self.frozen.get("query", (q_nope, q_pe))
        result, sums = torch.zeros(q_nope.shape), torch.zeros(q_nope.shape[:2])
        caches = (ckv_cache, kpe_cache)
        for row, visible, slots in self._rows():
            keys = self._keys(caches, slots, visible, ckv_scale, kpe_scale)
            result[row], sums[row] = self._attend((q_nope[row], q_pe[row]), keys, self.scale)
        row, visible, slots = max(self._rows(), key=lambda found: (len(found[2]), -found[1]))
        keys = self._keys(caches, *self._damage(slots, visible), *self._scales(ckv_scale, kpe_scale))
        wrong = self._attend((q_nope[row], q_pe[row]), keys, self._scale(), faulty=True)
        result[row, HEAD], sums[row, HEAD] = wrong[0][HEAD], wrong[1][HEAD]
        if has("head_permuted"):
            result[row, [HEAD, HEAD + 1]] = result[row, [HEAD + 1, HEAD]]
        if has("head_unwritten"):
            result[row, HEAD] = out[row, HEAD]
        if has("head_zero"):
            result[row, HEAD] = 0
        if has("rounded_coarsely"):
            result[row, HEAD] = result[row, HEAD].to(torch.float8_e4m3fn).float()
        if has("tolerance_thrice"):
            result[row, HEAD, 4] += 3 * 2**-7 * 1.02 * result[row, HEAD].abs().max()
        spoil(result)
        self._write(result, sums, out, lse)
        if has("query_written"):
            q_nope[-1, -1, -1] += 1
        if has("cache_written"):
            ckv_cache.view(torch.uint8)[-1, -1, -1] += 1
        if return_lse:
            return out, (lse.clone() if has("lse_ignored") else lse)
        return out.clone() if has("out_ignored") else out

    def _write(self, result, sums, out, lse):
        if has("written_behind_last"):
            out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(1.0)
        out.copy_(result)
        if lse is None:
            return
        lse.copy_(sums)
        if has("lse_natural"):
            lse[-1, HEAD] *= LOG2
        if has("lse_written_behind"):
            lse.as_strided((1,), (1,), lse.storage_offset() + lse.numel()).fill_(1.0)

    def _rows(self):
        """Each query: its row, how many keys it sees, and the slots of the whole request."""
        qo, kv, indices, lengths = self.frozen.get("table", self.buffers)
        found = []
        for request, keys in enumerate(lengths.tolist()):
            first, end = qo[request : request + 2].tolist()
            place = torch.arange(keys)
            page = indices[int(kv[request]) :][place // self.page_size].long()
            slots = page * self.page_size + place % self.page_size
            seen = [(row, keys - (end - 1 - row) if self.causal else keys) for row in range(first, end)]
            found += [(*row_and_keys, slots) for row_and_keys in seen]
        return found

    def _damage(self, slots, visible):
        if has("last_key_dropped"):
            visible -= 1
        if has("mask_shifted") and visible < len(slots):
            visible += 1
        if has("wrong_page") and len(slots) > self.page_size:
            slots = torch.cat((slots[-self.page_size :], slots[self.page_size :]))
        if has("page_table_ignored"):
            slots = torch.arange(len(slots))
        if has("slot_next_to_last"):
            slots = torch.cat((slots[: visible - 1], slots[visible - 2 : visible - 1], slots[visible:]))
        return slots, visible

    def _scales(self, ckv_scale, kpe_scale):
        if ckv_scale is None:
            return None, None
        return 1.0 if has("ckv_scale_ignored") else ckv_scale, 1.0 if has("kpe_scale_ignored") else kpe_scale

    def _scale(self):
        return 1 / math.sqrt(192) if has("scale_ignored") else self.scale

    def _keys(self, caches, slots, visible, *scales):
        """The keys that a query sees: the compressed ones, and the rotary ones."""
        found = []
        for cache, scale in zip(caches, scales, strict=True):
            if cache.dtype == torch.float8_e4m3fn:  # which the CPU does not index
                flat = cache.contiguous().view(torch.uint8).flatten(0, 1)[slots[:visible]]
                found.append(flat.view(torch.float8_e4m3fn).float() * scale)
            else:
                found.append(cache.flatten(0, 1)[slots[:visible]].float())
        return found

    def _attend(self, query, keys, scale, *, faulty=False):
        """One row, PART keys at a time; result and log-sum-exp in base 2."""
        (nope, rope), (ckv, kpe) = (part.float() for part in query), keys
        if faulty and has("query_quiet_missing"):
            nope = nope * (torch.arange(nope.shape[1]) != 100)
        scores = nope @ ckv.T
        if not (faulty and has("rotary_ignored")):
            scores = scores + rope @ kpe.T
        outs, sums = [], []
        for scored, values in zip((scores * scale).split(PART, dim=1), ckv.split(PART), strict=True):
            highest = scored.amax(-1, keepdim=True)
            exact = (scored - highest).exp()
            rounded = exact.bfloat16().float()
            total = (rounded if self.backend == "fa2" else exact).sum(-1, keepdim=True)
            outs.append((rounded @ values / total).bfloat16().float())
            sums.append((highest + total.log())[:, 0])
        return self._merge(outs, sums, faulty=faulty)

    def _merge(self, outs, sums, *, faulty):
        if faulty and has("part_lost") and len(outs) > 1:
            outs, sums = outs[:-1], sums[:-1]
        outs, sums = torch.stack(outs), torch.stack(sums)
        weights = (sums * LOG2 if faulty and has("sums_in_log2") else sums).softmax(0)
        if faulty and has("parts_weighted_alike"):
            weights = torch.full_like(weights, 1 / len(weights))
        return (outs * weights[..., None]).sum(0).bfloat16().float(), sums.logsumexp(0) / LOG2

    def stand_in_for_a_graph(self, call):
        """A function that calls again, with what a graph may wrongly have kept from its capture."""
        if has("graph_keeps_table"):
            self.frozen["table"] = [buffer.clone() for buffer in self.buffers]
        if has("graph_keeps_query"):
            queries = [part.clone() for part in call.__self__.queries]
            self.frozen["query"] = queries
        call()
        return (lambda: None) if has("graph_does_nothing") else call


def gen_batch_mla_module(backend, q, kv, o, index, ckv, kpe, profiler):
    assert (q, o, index, profiler) == (torch.bfloat16, torch.bfloat16, torch.int32, False)
    assert (backend, ckv) in {("fa2", 512), ("fa3", 512)}
    assert (kv, kpe) in {(torch.bfloat16, 64), (torch.bfloat16, 0), (torch.float8_e4m3fn, 64)}
    return Module()


class Module:
    def build_and_load(self):
        return self
