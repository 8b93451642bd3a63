"""Are attention over ragged new tokens and over paged context right as two parts, planned one after the other?

It is what vLLM's decode context parallelism does with a prompt (BatchDCPPrefillWrapper):
BatchPrefillWithPagedKVCacheWrapper over this rank's share of the context, without a mask and for the query heads of all
ranks, and BatchPrefillWithRaggedKVCacheWrapper over the new tokens, causal. Both are planned before either runs, share
one workspace, allocate their outputs and return the log-sum-exps by which vLLM merges them.

Variants: fa2_d128 and fa3_d128; *_empty_d128 have requests without context, whose output has to be finite and whose
log-sum-exp -inf or, as kernels up to 0.6.7 have it (math::inf is 50000 there), -50000, since vLLM merges them by that
weight: no exponential of either beside a score differs from zero, where all ranks have nothing and their log-sum-exps
add up too. Which it is, is measured (empty_lse).

Shapes: bf16, heads of 128; 8 query heads over 2 KV heads and 4 over 4 for the new tokens, twice as many query heads for
the context; requests of 1 to 513 new tokens (an empty one too) and 1 to 2000 of context, in batches whose KV is split
and in others; pages of 16 tokens in shuffled order, NHD and HND; keys and values of new tokens are slices of a fused
tensor with NaN between them. NaN lies in spare pages, behind the last token of a last page, and in the memory that the
outputs are allocated from. The last key of a request has a logit of 8 with its last query.

Tolerance: |out - ref| <= 2^-7 (sum_i p_i |v_i| + |ref|) + 1e-5, element by element against float64: the unit roundoff
of bf16 is 2^-8; p is rounded in the product with v and in the sum that divides it, the output once, and the parts of a
split request once more. LSE (base 2): 2^-8 / ln 2 + 1e-4, from the sum of rounded p.

Modules: those of attention.prefill for this head size, and none besides.

Upstream: include/flashinfer/attention/prefill.cuh, include/flashinfer/attention/hopper/prefill_sm90.cuh,
csrc/batch_prefill.cu; vllm/v1/attention/backends/flashinfer.py (BatchDCPPrefillWrapper)
"""

import functools
import itertools
import math
import os
import sys

PROBE = {
    "id": "attention.ragged",
    "feature": "attention.ragged",
    "module": "batch_prefill_with_kv_cache",
    "requires": {
        "sm": ">=80",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper",
            "flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper",
        ],
    },
    "variants": {
        "fa2_d128": {},
        "fa3_d128": {"sm": ">=90,<91"},
        "fa2_empty_d128": {},
        "fa3_empty_d128": {"sm": ">=90,<91"},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "subset": {"units": "no_mask_or_causal", "if_short": True},
    "checks": "numbers",
}

SIZE, PAGE, RANKS = 128, 16, 2
HEADS = ((8, 2), (4, 4))  # query heads and KV heads of a rank
BATCHES = (  # new tokens and tokens of context of each request
    ((3, 77), (1, 18), (2, 127)),
    ((1, 310), (0, 21), (37, 16), (128, 513), (513, 33), (1, 2000)),
)
WITHOUT_CONTEXT = ((3, 77), (5, 0), (1, 0), (40, 130), (1, 900), (2, 0))
SPARE_PAGES = 5
LAST_LOGIT = 8.0
WORKSPACE_BYTES = 128 * 2**20
TOLERANCE = 2.0**-7
LSE_TOLERANCE = 2.0**-8 / math.log(2) + 1e-4
NOTHING = -4.9e4  # a log-sum-exp below it stands for no key at all


def build(variant):
    import flashinfer.page
    import torch
    from flashinfer.prefill import get_batch_prefill_module

    bf16, backend = torch.bfloat16, variant[:3]
    window = soft_cap = fp16_qk = False
    get_batch_prefill_module(backend, bf16, bf16, bf16, torch.int32, SIZE, SIZE, 0, window, soft_cap, fp16_qk)
    if backend == "fa3" and hasattr(flashinfer.page, "block_sparse_indices_to_vector_sparse_offsets"):
        flashinfer.page.get_page_module()  # of FlashInfer 0.5, where fa3 turns page numbers into offsets with it


def run(variant):
    found = _Found()
    batches = (WITHOUT_CONTEXT,) if "empty" in variant else BATCHES
    for layout, heads, requests in itertools.product(("NHD", "HND"), HEADS, batches):
        batch = _Batch(requests, heads)
        pages = _Pages(batch, layout)
        context, new = _wrappers(variant[:3], layout)
        _plan(context, new, batch, pages)
        _check(context, new, batch, pages, found)
    return {**found.measured(), "requests_without_context": sum(not context for _, context in batches[0])}


def _wrappers(backend, layout):
    import flashinfer.prefill

    workspace = _workspace(_device())
    return (
        flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper(workspace, layout, backend=backend),
        flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", backend=backend),
    )


def _plan(context, new, batch, pages):
    """Both, as vLLM does, before either runs."""
    import torch

    context.plan(
        qo_indptr=batch.query_indptr,
        paged_kv_indptr=pages.indptr,
        paged_kv_indices=pages.indices,
        paged_kv_last_page_len=pages.last_page_len,
        num_qo_heads=batch.heads[0] * RANKS,
        num_kv_heads=batch.heads[1],
        head_dim_qk=SIZE,
        page_size=PAGE,
        causal=False,
        sm_scale=batch.scale,
        window_left=-1,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        fixed_split_size=-1,
        disable_split_kv=False,
    )
    new.plan(
        qo_indptr=batch.query_indptr,
        kv_indptr=batch.query_indptr,
        num_qo_heads=batch.heads[0],
        num_kv_heads=batch.heads[1],
        head_dim_qk=SIZE,
        head_dim_vo=SIZE,
        causal=True,
        sm_scale=batch.scale,
        window_left=-1,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
    )


def _check(context, new, batch, pages, found):
    """Both outputs and log-sum-exps after both ran, so that one that disturbs the other shows."""
    given = [tensor.clone() for tensor in (batch.all_queries, pages.memory, batch.fused)]
    _leave_nan_in_free_memory(batch.all_queries)
    of_context = context.run(batch.all_queries, pages.memory, k_scale=1.0, v_scale=1.0, return_lse=True)
    _leave_nan_in_free_memory(batch.query)
    of_new = new.run(batch.query, batch.key, batch.value, return_lse=True)
    for tensor, before in zip((batch.all_queries, pages.memory, batch.fused), given, strict=True):
        assert _same(tensor, before), f"{batch}: an input was changed"
    found.where = f"{pages.layout}, context, {batch}"
    found.compare(*of_context, *batch.expected_of_context)
    found.where = f"{pages.layout}, new tokens, {batch}"
    found.compare(*of_new, *batch.expected_of_new)


def _leave_nan_in_free_memory(like):
    """The allocator hands out what was freed last: what a kernel does not write of its new output is then NaN."""
    import torch

    tensors = [torch.full(like.shape, math.nan, dtype=like.dtype, device=like.device) for _ in range(2)]
    del tensors


class _Batch:
    """Queries, new tokens and context of some requests (new tokens, context)."""

    def __init__(self, requests, heads):
        import torch

        self.requests, self.heads = requests, heads
        self.generator = torch.Generator(_device()).manual_seed(9)
        self.scale = 0.75 / math.sqrt(SIZE)
        self.query_indptr = _ints([0, *itertools.accumulate(new for new, _ in requests)])
        new, context = (sum(request[i] for request in requests) for i in (0, 1))
        self.all_queries = (3 * self._normal(new, heads[0] * RANKS)).bfloat16()
        self.fused = torch.full((new, heads[0] + 2 * heads[1] + 1, SIZE), math.nan, device=_device()).bfloat16()
        self.query, self.key = self.fused[:, : heads[0]], self.fused[:, heads[0] : sum(heads)]
        self.value = self.fused[:, sum(heads) : -1]
        self.query.copy_(self.all_queries[:, : heads[0]])
        self.context_key, self.context_value = (self._normal(context, heads[1]).bfloat16() for _ in range(2))
        for tensor in (self.key, self.value):
            tensor.copy_(self._normal(new, heads[1]))
        self._let_last_keys_answer()
        self.expected_of_context, self.expected_of_new = self._expected()

    def __str__(self):
        sizes = " ".join(f"{new}+{context}" for new, context in self.requests)
        return f"{self.heads[0]}/{self.heads[1]} heads, new tokens + context {sizes}"

    def _normal(self, rows, count):
        import torch

        return torch.randn((rows, count, SIZE), generator=self.generator, device=_device())

    def _rows(self):
        """Each request's rows of new tokens and of context."""
        new_end = context_end = 0
        for new, context in self.requests:
            new_end, context_end = new_end + new, context_end + context
            yield slice(new_end - new, new_end), slice(context_end - context, context_end)

    def _let_last_keys_answer(self):
        for new, context in self._rows():
            if new.start < new.stop:
                last = self.query[new.stop - 1].float().unflatten(0, (self.heads[1], -1))
                wanted = (last / last.square().sum(-1, keepdim=True)).sum(1) * (LAST_LOGIT / self.scale)
                self.key[new.stop - 1] = wanted.to(self.key.dtype)
                if context.start < context.stop:
                    self.context_key[context.stop - 1] = wanted.to(self.key.dtype)

    def _expected(self):
        """For context and new tokens, in float64: output, sum_i p_i |v_i|, LSE in base 2."""
        import torch

        parts = []
        for new, context in self._rows():
            if new.start < new.stop:
                keys = self.context_key[context], self.context_value[context]
                of_context = _attention(self.all_queries[new], *keys, self.scale, causal=False)
                of_new = _attention(self.query[new], self.key[new], self.value[new], self.scale, causal=True)
                parts.append((of_context, of_new))
        return [[torch.cat(one) for one in zip(*part, strict=True)] for part in zip(*parts, strict=True)]


def _attention(query, key, value, scale, *, causal):
    """One request; zeros and -inf without keys."""
    import torch

    group = query.shape[1] // key.shape[1]
    query, key, value = query.double(), *(tensor.double().repeat_interleave(group, 1) for tensor in (key, value))
    scores = torch.einsum("qhd,khd->qhk", query, key) * scale
    if causal:
        later = torch.ones((len(query), len(key)), dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(later[:, None], -math.inf)
    weights = scores.softmax(-1)
    out, spread = (torch.einsum("qhk,khd->qhd", weights, one) for one in (value, value.abs()))
    return out, spread, scores.logsumexp(-1) / math.log(2)


class _Pages:
    """The context of a batch in shuffled pages."""

    def __init__(self, batch, layout):
        import torch

        counts = [-(-context // PAGE) for _, context in batch.requests]
        total = sum(counts) + SPARE_PAGES
        order = torch.randperm(total, generator=batch.generator, device=_device())
        self.layout, self.indices = layout, order[: sum(counts)].int()
        self.indptr = _ints([0, *itertools.accumulate(counts)])
        self.last_page_len = _ints([(context - 1) % PAGE + 1 if context else 0 for _, context in batch.requests])
        inner = (PAGE, batch.heads[1]) if layout == "NHD" else (batch.heads[1], PAGE)
        self.memory = torch.full((total, 2, *inner, SIZE), math.nan, dtype=torch.bfloat16, device=_device())
        slots = []
        for first, (_, context) in zip(self.indptr.tolist(), batch.requests, strict=False):
            slots += range(first * PAGE, first * PAGE + context)
        slots = torch.tensor(slots, device=_device())
        page, place = order[slots // PAGE], slots % PAGE
        for half, new in zip(self.memory.unbind(1), (batch.context_key, batch.context_value), strict=True):
            (half if layout == "NHD" else half.transpose(1, 2))[page, place] = new


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.where = ""
        self.calls = self.elements = 0
        self.worst = self.worst_lse = 0.0
        self.of_nothing = None

    def compare(self, out, lse, expected, spread, expected_lse):
        """Every element; where there are no keys only the weight has to be nothing and the output finite."""
        self.calls += 1
        has_keys = expected_lse > -math.inf
        bound = TOLERANCE * (spread + expected.abs()) + 1e-5 + (~has_keys)[..., None] * 1e30
        self.worst = max(self.worst, self._share(out, expected, bound, "elements"))
        nothing = ~has_keys & (lse <= NOTHING)
        if nothing.any():
            self.of_nothing = lse[nothing].max().item()
        lse = lse.masked_fill(nothing, -math.inf)
        self.worst_lse = max(self.worst_lse, self._share(lse, expected_lse, LSE_TOLERANCE, "LSEs"))

    def _share(self, got, expected, bound, name):
        """The largest error as a share of its bound; NaN is never within it, -inf is right where it is expected."""
        import torch

        assert got.shape == expected.shape, f"{self.where}: {name} of shape {tuple(got.shape)}"
        share = torch.where(got.double() == expected, 0.0, (got.double() - expected).abs() / bound)
        wrong = ~(share <= 1)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} {name} are wrong, the first at {at}: "
                f"got {got[at].item():.6g}, expected {expected[at].item():.6g}"
            )
        self.elements += got.numel()
        return share.max().item()

    def measured(self):
        of_nothing = {} if self.of_nothing is None else {"empty_lse": f"{self.of_nothing:g}"}
        return {
            "calls": self.calls,
            "elements": self.elements,
            "wrong_elements": 0,
            "share_of_tolerance": round(self.worst, 3),
            "share_of_lse_tolerance": round(self.worst_lse, 3),
            **of_nothing,
        }


def _same(before, after):
    """Bit for bit, NaN too."""
    import torch

    return torch.equal(before.view(torch.int16), after.view(torch.int16))


def _ints(values):
    import torch

    return torch.tensor(values, dtype=torch.int32)


@functools.cache
def _workspace(device):
    """FlashInfer wants it zeroed before its first use."""
    import torch

    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


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
