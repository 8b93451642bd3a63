"""Are layers with sinks and a window right beside layers with neither, when both are planned before either runs?

It is what vLLM does with gpt-oss and a draft model in each step of speculative decoding: the groups of layers have
pages of the same layout, of their own each, and wrappers of their own (BatchAttentionWithAttentionSinkWrapper with a
window of 128 tokens, BatchPrefillWithPagedKVCacheWrapper with none) over one workspace. Each request has several query
tokens, the last token and its drafts; prompts are among them.

Variants: sinks_first and plain_first say which of the two is planned first, for FA2 and FA3. Then the layers run in
turn, each group twice; then both groups are planned anew for other requests, in the other order, and run again.

Shapes: bf16, heads of 64, as gpt-oss has them; 64 query heads over 8 KV heads with sinks, 32 over 8 without; NHD and
HND, pages of 16 tokens in shuffled order; requests of 4 queries over 17 to 1500 tokens, whose KV is split, and prompts
of 70 and 130 tokens. Sinks go from -4 to 6, neighbours differ. As in vLLM, pages that lie before the window of all
queries are page 0, which belongs to nobody and holds 512 everywhere. NaN lies in spare pages, behind the last token of
a last page, and around and in the outputs before the call. The last key in the window of a request's last query and the
first one before it have a logit of 8 with it.

Tolerance: |out - ref| <= 2^-7 (sum_i p_i |v_i| + |ref|) + 1e-5, element by element against float64: the unit roundoff
of bf16 is 2^-8; p is rounded in the product with v and in the sum that divides it, the output once, and the parts of a
split request once more.

Modules: those of attention.prefill and of attention.sinks for heads of 64, and none besides.

Upstream: flashinfer/attention.py, flashinfer/prefill.py, include/flashinfer/attention/scheduler.cuh;
vllm/v1/attention/backends/flashinfer.py
"""

import functools
import itertools
import math
import os
import sys

PROBE = {
    "id": "attention.mixed_groups",
    "feature": "attention.mixed_groups",
    "module": "batch_prefill_with_kv_cache",
    "requires": {
        "sm": ">=80",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.attention.BatchAttentionWithAttentionSinkWrapper",
            "flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper",
        ],
    },
    "variants": {
        "fa2_sinks_first": {},
        "fa2_plain_first": {},
        "fa3_sinks_first": {"sm": ">=90,<91"},
        "fa3_plain_first": {"sm": ">=90,<91"},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "subset": {"units": "paged_causal", "if_short": True},  # vLLM calls both so
    "checks": "numbers",
}

SIZE, PAGE = 64, 16
HEADS = {"sinks": (64, 8), "plain": (32, 8)}  # query heads and KV heads
WINDOW_LEFT = {"sinks": 127, "plain": -1}
STEPS = (  # queries and keys of each request
    ((4, 200), (4, 17), (4, 132), (4, 1500)),
    ((4, 901), (70, 70), (4, 129), (130, 513), (4, 16)),
)
SPARE_PAGES = 5
NULL = 512.0  # what page 0 holds
GUARD = 8  # rows of NaN around an output
EDGE_LOGIT = 8.0
WORKSPACE_BYTES = 128 * 2**20
TOLERANCE = 2.0**-7


def build(variant):
    import flashinfer.page
    import torch
    from flashinfer.prefill import get_batch_prefill_module

    bf16, backend = torch.bfloat16, variant[:3]
    window = soft_cap = fp16_qk = False
    get_batch_prefill_module(backend, bf16, bf16, bf16, torch.int32, SIZE, SIZE, 0, window, soft_cap, fp16_qk)
    _load_sinks(backend)
    if backend == "fa3" and hasattr(flashinfer.page, "block_sparse_indices_to_vector_sparse_offsets"):
        flashinfer.page.get_page_module()  # of FlashInfer 0.5, where fa3 turns page numbers into offsets with it


def _load_sinks(backend):
    """The module that the wrapper asks for when it is made; there need be no GPU for this."""
    import flashinfer.attention
    import torch

    library = flashinfer.attention.BatchAttentionWithAttentionSinkWrapper
    paged = library.__mro__[1]  # to which the wrapper hands its jit_args

    class Asked(paged):
        def __init__(self, *, backend, jit_args, jit_kwargs, **_rest):  # instead of the library's
            self.asked = backend, jit_args, jit_kwargs

    _, jit_args, jit_kwargs = type("Sinks", (library, Asked), {})(
        torch.empty(0, dtype=torch.uint8), "NHD", **_choice(backend)
    ).asked
    # It is cached by these arguments: the wrapper finds it there.
    sys.modules[paged.__module__].get_customize_batch_prefill_module(backend, *jit_args, **jit_kwargs)


def _choice(backend):
    import torch

    return {
        "backend": backend,
        "q_data_type": torch.bfloat16,
        "kv_data_type": torch.bfloat16,
        "head_dim_qk": SIZE,
        "head_dim_vo": SIZE,
        "window_left": WINDOW_LEFT["sinks"],
    }


def run(variant):
    found = _Found()
    backend, first, _ = variant.split("_")
    order = (first, "plain" if first == "sinks" else "sinks")
    for layout in ("NHD", "HND"):
        wrappers = {"sinks": _sinks_wrapper(backend, layout), "plain": _plain_wrapper(backend, layout)}
        for step, requests in enumerate(STEPS):
            groups = {name: _Group(name, requests, layout, seed=30 + step) for name in HEADS}
            planned = order if step % 2 == 0 else order[::-1]
            for name in planned:
                _plan(wrappers[name], groups[name])
            for name in ("sinks", "plain", "sinks", "plain"):
                found.where = f"{layout}, step {step + 1}, {planned[0]} planned first, {groups[name]}"
                found.compare(_call(wrappers[name], groups[name]), groups[name])
    return found.measured()


def _sinks_wrapper(backend, layout):
    import flashinfer.attention
    import torch

    return flashinfer.attention.BatchAttentionWithAttentionSinkWrapper(
        _workspace(_device()),
        layout,
        backend=backend,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        head_dim_qk=SIZE,
        head_dim_vo=SIZE,
        window_left=WINDOW_LEFT["sinks"],
    )


def _plain_wrapper(backend, layout):
    import flashinfer.prefill

    return flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper(_workspace(_device()), layout, backend=backend)


def _plan(wrapper, group):
    import torch

    wrapper.plan(
        qo_indptr=group.query_indptr,
        paged_kv_indptr=group.indptr,
        paged_kv_indices=group.indices,
        paged_kv_last_page_len=group.last_page_len,
        num_qo_heads=group.heads[0],
        num_kv_heads=group.heads[1],
        head_dim_qk=SIZE,
        page_size=PAGE,
        causal=True,
        sm_scale=group.scale,
        window_left=group.window_left,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        fixed_split_size=-1,
        disable_split_kv=False,
    )


def _call(wrapper, group):
    """The output with the guard around it."""
    import torch

    shape = (len(group.query) + 2 * GUARD, *group.query.shape[1:])
    guarded = torch.full(shape, math.nan, dtype=torch.bfloat16, device=_device())
    out = guarded[GUARD:-GUARD]
    if group.sinks is None:
        returned = wrapper.run(group.query, group.memory, k_scale=1.0, v_scale=1.0, out=out)
    else:
        returned = wrapper.run(group.query, group.memory, group.sinks, group.scale, v_scale=1.0, out=out)
    assert returned.data_ptr() == out.data_ptr(), f"{group}: run() returned another tensor than out"
    assert torch.equal(group.query, group.given), f"{group}: run() changed its query"
    return guarded


class _Group:
    """The layer of one group: queries, keys and values of some requests, their pages, and the right output."""

    def __init__(self, name, requests, layout, seed):
        import torch

        self.name, self.requests, self.heads, self.window_left = name, requests, HEADS[name], WINDOW_LEFT[name]
        self.generator = torch.Generator(_device()).manual_seed(seed + (name == "sinks"))
        self.scale = 0.75 / math.sqrt(SIZE)
        self.query_indptr = _ints([0, *itertools.accumulate(queries for queries, _ in requests)])  # on the host
        rows, keys = (sum(request[i] for request in requests) for i in (0, 1))
        self.query = (3 * self._normal(rows, self.heads[0])).bfloat16()
        self.given = self.query.clone()
        self.key, self.value = (self._normal(keys, self.heads[1]).bfloat16() for _ in range(2))
        self.sinks = self._sinks() if name == "sinks" else None
        self._let_edges_answer()
        self._place(layout)
        done = [self._attend(*rows) for rows in self._rows()]
        self.expected, self.spread = (torch.cat(tensors) for tensors in zip(*done, strict=True))

    def __str__(self):
        sizes = " ".join(f"{queries}/{keys}" for queries, keys in self.requests)
        return f"{self.name} group of {self.heads[0]}/{self.heads[1]} heads, queries/keys {sizes}"

    def _normal(self, rows, count):
        import torch

        return torch.randn((rows, count, SIZE), generator=self.generator, device=_device())

    def _sinks(self):
        import torch

        order = (37 * torch.arange(self.heads[0], device=_device()) + 11) % self.heads[0]  # neighbours differ
        return torch.linspace(-4, 6, self.heads[0], device=_device())[order].contiguous()

    def _rows(self):
        """Each request's rows of queries and of keys."""
        query_end = key_end = 0
        for queries, keys in self.requests:
            query_end, key_end = query_end + queries, key_end + keys
            yield slice(query_end - queries, query_end), slice(key_end - keys, key_end)

    def _let_edges_answer(self):
        """The last key in a window of 128 of a request's last query, and the first one before it."""
        for queries, keys in self._rows():
            last = self.query[queries.stop - 1].float().unflatten(0, (self.heads[1], -1))
            wanted = (last / last.square().sum(-1, keepdim=True)).sum(1) * (EDGE_LOGIT / self.scale)
            for at in (keys.stop - 1 - WINDOW_LEFT["sinks"], keys.stop - 2 - WINDOW_LEFT["sinks"]):
                if at >= keys.start:
                    self.key[at] = wanted.to(self.key.dtype)

    def _attend(self, queries, keys):
        """One request, whose last query stands at its last key: in float64 the output, and sum_i p_i |v_i|."""
        import torch

        group = self.heads[0] // self.heads[1]
        key, value = (tensor[keys].double().repeat_interleave(group, 1) for tensor in (self.key, self.value))
        scores = torch.einsum("qhd,khd->qhk", self.query[queries].double(), key) * self.scale
        stands = torch.arange(len(key) - scores.shape[0], len(key), device=_device())[:, None]
        behind = stands - torch.arange(len(key), device=_device())
        hidden = (behind < 0) | ((behind > self.window_left) & (self.window_left >= 0))
        scores = scores.masked_fill(hidden[:, None], -math.inf)
        total = scores.logsumexp(-1)
        if self.sinks is not None:
            total = torch.logaddexp(total, self.sinks.double().expand_as(total))
        weights = torch.exp(scores - total[..., None])
        return [torch.einsum("qhk,khd->qhd", weights, one) for one in (value, value.abs())]

    def _place(self, layout):
        """Puts the keys and values into pages in shuffled order; page 0 stands for those before all windows."""
        import torch

        counts = [-(-keys // PAGE) for _, keys in self.requests]
        total = sum(counts) + SPARE_PAGES
        self.indptr = _ints([0, *itertools.accumulate(counts)])
        self.last_page_len = _ints([(keys - 1) % PAGE + 1 for _, keys in self.requests])
        order = torch.randperm(total - 1, generator=self.generator, device=_device()) + 1
        self.indices = order[: sum(counts)].int()
        slots = []
        for first, (queries, keys) in zip(self.indptr.tolist(), self.requests, strict=False):
            slots += range(first * PAGE, first * PAGE + keys)
            if self.window_left >= 0:
                self.indices[first : first + max(0, keys - queries - self.window_left) // PAGE] = 0
        inner = (PAGE, self.heads[1]) if layout == "NHD" else (self.heads[1], PAGE)
        self.memory = torch.full((total, 2, *inner, SIZE), math.nan, dtype=torch.bfloat16, device=_device())
        slots = torch.tensor(slots, device=_device())
        page, place = self.indices.long()[slots // PAGE], slots % PAGE
        for half, new in zip(self.memory.unbind(1), (self.key, self.value), strict=True):
            (half if layout == "NHD" else half.transpose(1, 2))[page, place] = new
        self.memory[0] = NULL


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.where, self.calls, self.elements, self.worst = "", 0, 0, 0.0

    def compare(self, guarded, group):
        """Every element; NaN is never within a tolerance."""
        got = guarded[GUARD:-GUARD]
        bound = TOLERANCE * (group.spread + group.expected.abs()) + 1e-5
        share = (got.double() - group.expected).abs() / bound
        wrong = ~(share <= 1)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, in "
                f"{int(wrong.any(2).any(0).sum())} of {got.shape[1]} heads, the first at {at}: "
                f"got {got[at].item():.6g}, expected {group.expected[at].item():.6g}"
            )
        for rows in (guarded[:GUARD], guarded[-GUARD:]):
            assert rows.isnan().all(), f"{self.where}: something was written before or behind the output"
        self.calls += 1
        self.elements += got.numel()
        self.worst = max(self.worst, share.max().item())

    def measured(self):
        return {
            "calls": self.calls,
            "elements": self.elements,
            "wrong_elements": 0,
            "share_of_tolerance": round(self.worst, 3),
        }


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
