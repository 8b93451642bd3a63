"""Does BatchPrefillWithRaggedKVCacheWrapper give the right attention with the head sizes of MLA, 192 and 128?

vLLM prefills MLA with this wrapper, once for the new tokens (causal, as many keys as queries) and once for each part of
their context (not causal, with the log-sum-exp); only with backend "cutlass", and only on SM100. On other GPUs the same
calls are taken by fa2, and on SM90 by fa3, which is asked here.

Shapes: bf16; 16 and 3 heads, each with keys of its own; new tokens 1, 37, 128, 200, 310 and 2 of six requests; contexts
of 77, 16, 513 and 130 keys for 3, 1, 37 and 140 queries. Values are slices of a tensor of 256 columns, as vLLM's
up-projection leaves them. Around the tensors and between the slices lies NaN: the kernels read a row behind the end of
a request only where another follows, and multiply it by zero. sm_scale is 1.25/sqrt(192), so that a default in its
place is noticed; the first and the last keys have values so large that one more or less shows.

Tolerance: |out - ref| <= 2^-7 (sum_i p_i |v_i| + |ref|) + 1e-5, element by element against float64. The unit roundoff
of bf16 is u = 2^-8; p is rounded in the product with v and in the sum that divides it, the output once, and with split
KV the partial outputs once more: at most 2 u on each term. LSE (base 2): 2^-8/ln 2 + 1e-4, from the sum of rounded p.

Upstream: include/flashinfer/attention/prefill.cuh, include/flashinfer/attention/hopper/prefill_sm90.cuh,
flashinfer/prefill.py; vllm/v1/attention/backends/mla/prefill/flashinfer.py
"""

import functools
import itertools
import math
import os
import sys

PROBE = {
    "id": "attention.mla_prefill",
    "feature": "attention.mla",
    "module": "batch_prefill_with_kv_cache",
    "requires": {
        "sm": ">=80",
        "flashinfer": ">=0.5",
        "symbols": ["flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper"],
    },
    "variants": {"ragged_fa2": {}, "ragged_fa3": {"sm": ">=90,<91"}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "subset": {"units": "ragged", "if_short": True},  # without a mask or with the causal one, as all calls of vLLM's
    "checks": "numbers",
}

NOPE, ROPE, VALUES = 128, 64, 128  # channels
NEW = tuple((tokens, tokens) for tokens in (1, 37, 128, 200, 310, 2))  # queries and keys of each request
CONTEXT = ((3, 77), (1, 16), (37, 513), (140, 130))
HEADS = (16, 3)
GUARD = 8  # rows of NaN before and behind a tensor
WORKSPACE_BYTES = 128 * 1024 * 1024  # the size that FlashInfer recommends
SCALE = 1.25 / math.sqrt(NOPE + ROPE)
TOLERANCE = 2.0**-7
LSE_TOLERANCE = 2.0**-8 / math.log(2) + 1e-4


def build(variant):
    import torch
    from flashinfer.prefill import get_batch_prefill_module

    backend, bf16 = variant.removeprefix("ragged_"), torch.bfloat16
    window = soft_cap = fp16_qk = False
    # The arguments, as they are, under which plan() looks up the module.
    get_batch_prefill_module(backend, bf16, bf16, bf16, torch.int32, NOPE + ROPE, VALUES, 0, window, soft_cap, fp16_qk)


def run(variant):
    found = _Found()
    for heads, (requests, causal) in itertools.product(HEADS, ((NEW, True), (CONTEXT, False))):
        tokens = _Tokens(heads, requests, causal=causal)
        found.where = f"{heads} heads, requests (queries, keys) {requests}, causal {causal}"
        _check(variant.removeprefix("ragged_"), tokens, found)
    return found.measured()


def _check(backend, tokens, found):
    """Plan as vLLM does, then run for the result alone, and once more with the log-sum-exp."""
    import flashinfer.prefill
    import torch

    wrapper = flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper(_workspace(), "NHD", backend=backend)
    wrapper.plan(
        qo_indptr=_starts(queries for queries, _ in tokens.requests),
        kv_indptr=_starts(keys for _, keys in tokens.requests),
        num_qo_heads=tokens.heads,
        num_kv_heads=tokens.heads,
        head_dim_qk=NOPE + ROPE,
        head_dim_vo=VALUES,
        causal=tokens.causal,
        sm_scale=SCALE,
        window_left=-1,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
    )
    whole, out = _guarded(tokens.rows, tokens.heads, VALUES)
    returned = wrapper.run(q=tokens.query, k=tokens.key, v=tokens.value, out=out, return_lse=False)
    assert returned.data_ptr() == out.data_ptr(), f"{found.where}: the result is not in out"
    found.compare(whole, tokens)
    whole, out = _guarded(tokens.rows, tokens.heads, VALUES)
    returned, lse = wrapper.run(q=tokens.query, k=tokens.key, v=tokens.value, out=out, return_lse=True)
    assert returned.data_ptr() == out.data_ptr(), f"{found.where}: the result is not in out"
    found.compare(whole, tokens)
    found.compare_lse(lse, tokens)
    same = all(torch.equal(now.view(torch.int16), old) for now, old in zip(tokens.memory, tokens.before, strict=True))
    assert same, f"{found.where}: an input was written to"


class _Tokens:
    """Queries, keys and values of some requests, and what attention makes of them."""

    def __init__(self, heads, requests, *, causal):
        import torch

        self.heads, self.requests, self.causal = heads, requests, causal
        generator = torch.Generator(_device()).manual_seed(11)
        self.rows, keys = (sum(side) for side in zip(*requests, strict=True))

        def normal(rows, width):
            return torch.randn((rows, heads, width), generator=generator, device=generator.device)

        whole_query, self.query = _guarded(self.rows, heads, NOPE + ROPE)
        whole_key, self.key = _guarded(keys, heads, NOPE + ROPE)
        whole_value, wide = _guarded(keys, heads, NOPE + VALUES)
        self.query.copy_(normal(self.rows, NOPE + ROPE))
        self.key.copy_(normal(keys, NOPE + ROPE))
        self.value = wide[..., NOPE:]
        values, end = normal(keys, VALUES), 0
        for _, length in requests:
            end += length
            loud = {at for at in (0, length - 129, length - 2, length - 1) if 0 <= at < length}
            values[[end - length + at for at in loud]] *= max(4, length / 16)
        self.value.copy_(values)
        self.memory = (whole_query, whole_key, whole_value)
        self.before = [part.view(torch.int16).clone() for part in self.memory]
        self.expected, self.weight, self.lse = self._attention()

    def _attention(self):
        """Result, sum p|v| and log-sum-exp in base 2, in float64, request by request."""
        import torch

        expected, weights, sums, row, end = [], [], [], 0, 0
        for queries, keys in self.requests:
            row, end = row + queries, end + keys
            query, key = self.query[row - queries : row].double(), self.key[end - keys : end].double()
            value = self.value[end - keys : end].double()
            scores = torch.einsum("qhd,nhd->hqn", query, key) * SCALE
            if self.causal:
                place = torch.arange(keys, device=scores.device)
                scores = scores.masked_fill(place > place[keys - queries :, None], -math.inf)
            p = scores.softmax(-1)
            expected.append(torch.einsum("hqn,nhd->qhd", p, value))
            weights.append(torch.einsum("hqn,nhd->qhd", p, value.abs()))
            sums.append(scores.logsumexp(-1).T / math.log(2))
        return torch.cat(expected), torch.cat(weights), torch.cat(sums)


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.where = ""
        self.calls = self.elements = 0
        self.worst = self.worst_lse = 0.0

    def compare(self, whole, tokens):
        """Every element; the rows before the first and behind the last must be as they were."""
        guards = (*whole[:GUARD], *whole[-GUARD:])
        assert all(row.isnan().all() for row in guards), f"{self.where}: something was written around the result"
        rows = whole[GUARD:-GUARD].double()
        bound = TOLERANCE * (tokens.weight + tokens.expected.abs()) + 1e-5
        self._judge(rows, tokens.expected, bound, "elements")
        self.calls += 1
        self.elements += rows.numel()

    def compare_lse(self, lse, tokens):
        bound = lse.new_full(lse.shape, LSE_TOLERANCE).double()
        self._judge(lse.double(), tokens.lse, bound, "log-sum-exps")

    def _judge(self, got, expected, bound, what):
        assert got.shape == expected.shape, f"{self.where}: {what} of shape {tuple(got.shape)}"
        share = (got - expected).abs() / bound
        wrong = ~(share <= 1)  # NaN is wrong
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} {what} are wrong, the first at {at} (row, head, "
                f"element): got {got[at].item():.6g}, expected {expected[at].item():.6g} within {bound[at].item():.2g}"
            )
        if what == "elements":
            self.worst = max(self.worst, share.max().item())
        else:
            self.worst_lse = max(self.worst_lse, share.max().item())

    def measured(self):
        counts = {"calls": self.calls, "elements": self.elements, "wrong_elements": 0}
        return {**counts, "worst_of_tolerance": self.worst, "worst_lse_of_tolerance": self.worst_lse}


def _guarded(rows, heads, width):
    """NaN, with guard rows: the whole and the part between them."""
    import torch

    shape = (rows + 2 * GUARD, heads, width)
    whole = torch.full(shape, math.nan, dtype=torch.bfloat16, device=_device())
    return whole, whole[GUARD:-GUARD]


def _starts(counts):
    """Where each request begins and the last ends, on the device, as vLLM has them."""
    import torch

    return torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32, device=_device())


@functools.cache
def _workspace():
    import torch

    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=_device())


def _device():
    """The GPU; the CPU only where the checks themselves are tested against a stand-in for FlashInfer."""
    import torch

    name = os.environ.get("FI_DOCTOR_PROBE_DEVICE", "cuda")
    return torch.device(name, 0) if name == "cuda" else torch.device(name)


if __name__ == "__main__":
    import torch

    if torch.cuda.device_count() < PROBE["gpus"]:
        sys.exit(f"{PROBE['id']} needs {PROBE['gpus']} GPU, torch sees {torch.cuda.device_count()}")
    for name in sys.argv[1:] or PROBE["variants"]:
        build(name)
        print(name, run(name))
