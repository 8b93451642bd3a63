"""Is attention over an FP8 (e4m3) KV cache right, with k_scale and v_scale, for prompts, decoding and in a CUDA graph?

Variants: auto_bf16q_d128 are prompts over pages with bf16 queries and backend "auto", as vLLM calls
BatchPrefillWithPagedKVCacheWrapper; fa3_fp8q_d128 the same with e4m3 queries and q_scale, as vLLM does on SM90 since
0.25; tc_bf16q_d128 are decoding steps on tensor cores, graph_tc_bf16q_d128 the same in a CUDA graph, replayed three
times with other inputs and once more after each of plan() and fast_decode_plan(); fa3_fp8q_window_d128 are prompts with
e4m3 queries and a window of 128 tokens, which hangs from 257 tokens on where a FlashInfer lacks what its pull request
3682 added.

Shapes: heads of 128, 8 query heads over 2 KV heads and 4 over 4; NHD and HND, pages of 16 tokens in shuffled order;
requests of 1 to 2100 tokens, in batches whose KV is split and in others. q_scale, k_scale and v_scale are 0.5, 0.35 and
1.7, so that one that is left out, taken twice or for another shows; the values of a request's last key reach the
largest of e4m3, 448. NaN lies in spare pages, behind the last token of a last page, between queries, and around and in
the outputs before the call. The first and the last key of a request have a logit of 8 with its last query.

Tolerance: element by element against float64 of the same e4m3 numbers. bf16 queries: |out - ref| <= 2^-7 (sum_i p_i
|v_i| + |ref|) + 2^-8 |ref| + 1e-5: the unit roundoff of bf16 is 2^-8; keys and values become bf16 exactly; p is rounded
in the product with v and in the sum that divides it, the output once, the parts of a split request once, and the output
once more when it is multiplied by v_scale. e4m3 queries: 2^-4 sum_i p_i |v_i| more, since p is rounded to e4m3 (unit
roundoff 2^-4), and 2^-7 (sum_i p_i |v_i| + |ref|) more, since accumulators of e4m3 products keep 14 bits. LSE (base 2):
2^-8 / ln 2 + 1e-4, with e4m3 queries 2^-6.

Modules: fa2 with bf16 queries and fa3 with e4m3 ones, without and with a window, of ten sources each. Where "auto"
takes fa3 for bf16 queries, as FlashInfer 0.5 does on SM90, it is that module which is built. Only those of pages
without a mask (decoding) and with the causal one are called.

Upstream: include/flashinfer/attention/prefill.cuh, include/flashinfer/attention/hopper/quantization/mainloop_mma.cuh,
flashinfer/utils.py (is_fa3_backend_supported); vllm/v1/attention/backends/flashinfer.py
"""

import functools
import itertools
import math
import os
import sys

PROBE = {
    "id": "attention.fp8_kv",
    "feature": "attention.fp8_kv",
    "module": "batch_prefill_with_kv_cache",
    "requires": {
        "sm": ">=80",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper",
            "flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper",
        ],
    },
    "variants": {
        "auto_bf16q_d128": {},
        "tc_bf16q_d128": {},
        "graph_tc_bf16q_d128": {"symbols": ["flashinfer.decode.fast_decode_plan"]},
        "fa3_fp8q_d128": {"sm": ">=90,<91", "flashinfer": ">=0.6.7"},
        "fa3_fp8q_window_d128": {"sm": ">=90,<91", "flashinfer": ">=0.6.7"},
    },
    "gpus": 1,
    "timeout_s": 60,
    "build_timeout_s": 1200,
    "compiles": ["nvcc"],
    "subset": {  # all that is called: pages without a mask or with the causal one
        "units": "paged",
        "units_of": {"fa3_fp8q_d128": "paged_causal", "fa3_fp8q_window_d128": "paged_causal"},
    },
    "checks": "numbers",
}

SIZE = 128
HEADS = ((8, 2), (4, 4))  # query heads and KV heads
WINDOW_LEFT = 127
Q_SCALE, K_SCALE, V_SCALE = 0.5, 0.35, 1.7
LARGEST = 448.0  # of e4m3
PAGE = 16
PROMPTS = (  # queries and keys of each request; the KV of the second batch is split
    ((3, 77), (1, 18), (2, 127), (40, 40)),
    ((1, 310), (0, 21), (37, 37), (128, 513), (200, 331), (1, 2100)),
)
STEPS = ((1, 15, 16, 17, 128, 129, 300), (2000, 3, 144, 16, 1, 700, 129), (130, 16, 1, 2000, 31, 128, 5))  # keys
REPLAYS = 3
SPARE_PAGES = 5
NAN = 0x7F  # of e4m3
GUARD = 8  # rows of NaN around an output
EDGE_LOGIT = 8.0
WORKSPACE_BYTES = 128 * 2**20  # the size that FlashInfer recommends
UNIT = 2.0**-8  # unit roundoff of bf16


def build(variant):
    """Compile and load what plan() asks for: no soft cap."""
    import flashinfer.page
    import torch
    from flashinfer.prefill import get_batch_prefill_module

    query, cache, out = _types(variant)
    backends, window = _backends(variant, query, cache), "window" in variant
    soft_cap = fp16_qk = False
    for backend in backends:
        get_batch_prefill_module(backend, query, cache, out, torch.int32, SIZE, SIZE, 0, window, soft_cap, fp16_qk)
    if "fa3" in backends and hasattr(flashinfer.page, "block_sparse_indices_to_vector_sparse_offsets"):
        flashinfer.page.get_page_module()  # of FlashInfer 0.5, where fa3 turns page numbers into offsets with it


def run(variant):
    found = _Found()
    query, cache, _ = _types(variant)
    if variant.startswith("graph_"):
        for layout in ("NHD", "HND"):
            _check_graph(layout, found)
    elif variant.startswith("tc_"):
        for requests in [[(1, keys) for keys in lengths] for lengths in STEPS[:2]]:
            _check_batch(requests, _decode_wrapper, _plan_decode, found)
    else:
        window_left = WINDOW_LEFT if "window" in variant else -1
        for requests in PROMPTS:
            wrapper_of = functools.partial(_prefill_wrapper, variant.partition("_")[0])
            _check_batch(requests, wrapper_of, _plan_prefill, found, query_type=query, window_left=window_left)
    return {"backend": _backends(variant, query, cache)[0], "query": str(query), **found.measured()}


def _types(variant):
    """Of queries, cache and output."""
    import torch

    return torch.float8_e4m3fn if "fp8q" in variant else torch.bfloat16, torch.float8_e4m3fn, torch.bfloat16


def _backends(variant, query, cache):
    """What plan() takes: "auto" is decided by the types and the GPU, for decoding with bf16 queries it is fa2 always.

    Without a GPU it is what each architecture takes that FlashInfer compiles for.
    """
    import torch
    from flashinfer.utils import determine_attention_backend

    if not variant.startswith("auto"):
        return ["fa3" if variant.startswith("fa3") else "fa2"]
    fp16_qk = custom_mask = False
    if _device().type == "cpu" or torch.cuda.is_available():
        return [determine_attention_backend(_device(), 0, fp16_qk, custom_mask, query, cache)]
    from flashinfer.utils import is_fa3_backend_supported

    of_sm90 = "fa3" if is_fa3_backend_supported(0, fp16_qk, custom_mask, query, cache) else "fa2"
    return sorted({of_sm90 if major == 9 else "fa2" for major in _compiled_for()})


def _compiled_for():
    """The major capabilities that FlashInfer compiles for; where it is told none its build says so."""
    from flashinfer.jit.core import current_compilation_context

    return {major for major, _ in current_compilation_context.TARGET_CUDA_ARCHS} or {0}


def _check_batch(requests, wrapper_of, plan, found, **kind):
    for layout, heads in itertools.product(("NHD", "HND"), HEADS):
        batch = _Batch(requests, heads, _generator(5), **kind)
        pages = _Pages(batch, layout)
        pages.fill(batch)
        wrapper = wrapper_of(layout)
        plan(wrapper, batch, pages, pages.indices)
        found.where = f"{layout}, {batch}"
        for with_lse in (False, True):
            found.compare(*_call(wrapper, batch, pages, with_lse=with_lse), batch)


def _call(wrapper, batch, pages, *, with_lse):
    """As vLLM calls it, and once more for the LSE: both outputs with the guard around them."""
    guarded, guarded_lse = batch.empty_output(), batch.empty_lse()
    out, lse = guarded[GUARD:-GUARD], guarded_lse[GUARD:-GUARD]
    given = [tensor.clone() for tensor in (batch.fused, pages.memory)]
    scales = {"k_scale": K_SCALE, "v_scale": V_SCALE} | ({"q_scale": Q_SCALE} if batch.is_fp8 else {})
    if with_lse:
        returned = wrapper.run(batch.query, pages.cache, **scales, out=out, lse=lse, return_lse=True)
        assert returned[1].data_ptr() == lse.data_ptr(), "run() returned another LSE than the one that was given"
        returned = returned[0]
    else:
        returned = wrapper.run(batch.query, pages.cache, **scales, out=out)
    assert returned.data_ptr() == out.data_ptr(), "run() returned another tensor than out"
    for name, before, after in zip(("query", "cache"), given, (batch.fused, pages.memory), strict=True):
        assert _same(before, after), f"run() changed its {name}"
    return guarded, guarded_lse if with_lse else None


def _check_graph(layout, found):
    generator = _generator(6)
    batches = [_Batch([(1, keys) for keys in lengths], HEADS[0], generator) for lengths in STEPS]
    total = max(sum(_pages_of(batch)) for batch in batches) + SPARE_PAGES
    pages = [_Pages(batch, layout, total) for batch in batches]
    graph = _Graph(layout, batches[0], pages[0])
    for turn in range(REPLAYS):
        batch = _Batch(batches[0].requests, HEADS[0], generator)
        found.where = f"{layout}, replay {turn + 1} of a CUDA graph with new inputs, {batch}"
        found.compare(graph.replay_with(pages[0], batch), None, batch)
    for batch, table, plan in zip(batches[1:], pages[1:], (graph.plan, graph.fast_decode_plan), strict=True):
        plan(table, batch)
        found.where = f"{layout}, replay of a CUDA graph after {plan.__name__}, {batch}"
        found.compare(graph.replay_with(table, batch), None, batch)


class _Graph:
    """One decoding call in a CUDA graph, with the memory that the graph knows."""

    def __init__(self, layout, batch, pages):
        import flashinfer.decode
        import torch

        ints = {"dtype": torch.int32, "device": batch.query.device}
        self.indptr = torch.zeros(len(batch.requests) + 1, **ints)
        self.indices = torch.zeros(pages.total, **ints)
        self.last_page_len = torch.zeros(len(batch.requests), **ints)
        self.wrapper = flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper(
            _workspace(_device()),
            layout,
            use_cuda_graph=True,
            use_tensor_cores=True,
            paged_kv_indptr_buffer=self.indptr,
            paged_kv_indices_buffer=self.indices,
            paged_kv_last_page_len_buffer=self.last_page_len,
        )
        self.query, self.pages, self.guarded = batch.query, pages, batch.empty_output()
        pages.fill(batch)
        self.plan(pages, batch)
        self.replay = _capture(self.wrapper, self.call)

    def call(self):
        out = self.guarded[GUARD:-GUARD]
        self.wrapper.run(self.query, self.pages.cache, k_scale=K_SCALE, v_scale=V_SCALE, out=out)

    def plan(self, pages, batch):
        _plan_decode(self.wrapper, batch, pages, self._placed(pages))

    def fast_decode_plan(self, pages, batch):
        """FlashInfer leaves the buffers of the lengths to the caller here."""
        self.indptr.copy_(pages.indptr)
        self.last_page_len.copy_(pages.last_page_len)
        _fast_plan(self.wrapper, batch, pages, self._placed(pages))

    def _placed(self, pages):
        """The page numbers, as the part of the buffer that vLLM has filled with them."""
        used = self.indices[: len(pages.indices)]
        used.copy_(pages.indices)
        return used

    def replay_with(self, pages, batch):
        """The output, poisoned before, for other inputs in the same memory."""
        self.query.copy_(batch.query)
        pages.fill(batch, self.pages.memory)
        self.guarded.fill_(math.nan)
        self.replay()
        return self.guarded


def _plan_prefill(wrapper, batch, pages, indices):
    import torch

    wrapper.plan(
        batch.query_indptr,
        pages.indptr,
        indices,
        pages.last_page_len,
        batch.heads[0],
        batch.heads[1],
        SIZE,
        PAGE,
        causal=True,
        sm_scale=batch.scale,
        window_left=batch.window_left,
        logits_soft_cap=None,
        q_data_type=batch.query.dtype,
        kv_data_type=pages.cache.dtype,
        fixed_split_size=-1,
        disable_split_kv=False,
        **({"o_data_type": torch.bfloat16} if batch.is_fp8 else {}),  # of the queries where it is not given
    )


def _plan_decode(wrapper, batch, pages, indices):
    import torch

    wrapper.plan(
        indptr=pages.indptr,
        indices=indices,
        last_page_len=pages.last_page_len,
        num_qo_heads=batch.heads[0],
        num_kv_heads=batch.heads[1],
        head_dim=SIZE,
        page_size=PAGE,
        pos_encoding_mode="NONE",
        window_left=batch.window_left,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
        kv_data_type=pages.cache.dtype,
        sm_scale=batch.scale,
        non_blocking=True,
    )


def _fast_plan(wrapper, batch, pages, indices):
    """What vLLM calls from its second step on when the batch is in a graph."""
    import flashinfer.decode
    import torch

    flashinfer.decode.fast_decode_plan(
        wrapper,
        indptr=pages.indptr,
        indices=indices,
        last_page_len=pages.last_page_len,
        num_qo_heads=batch.heads[0],
        num_kv_heads=batch.heads[1],
        head_dim=SIZE,
        page_size=PAGE,
        pos_encoding_mode="NONE",
        window_left=batch.window_left,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
        kv_data_type=pages.cache.dtype,
        sm_scale=batch.scale,
        non_blocking=True,
    )


def _prefill_wrapper(backend, layout):
    import flashinfer.prefill

    return flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper(_workspace(_device()), layout, backend=backend)


def _decode_wrapper(layout):
    import flashinfer.decode

    return flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper(_workspace(_device()), layout, use_tensor_cores=True)


def _capture(wrapper, call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if wrapper.device.type == "cpu":
        return wrapper.stand_in_for_a_graph(call)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


class _Batch:
    """Queries, keys and values of some requests (queries, keys), and what attention makes of them."""

    def __init__(self, requests, heads, generator, *, query_type=None, window_left=-1):
        import torch

        self.requests, self.heads, self.window_left, self.generator = tuple(requests), heads, window_left, generator
        self.is_fp8 = query_type == torch.float8_e4m3fn
        self.scale = 0.75 / math.sqrt(SIZE)
        self.query_indptr = _ints([0, *itertools.accumulate(queries for queries, _ in requests)])  # on the host
        rows, keys = (sum(request[i] for request in requests) for i in (0, 1))
        query = 3 * self._normal(rows, heads[0])
        if self.is_fp8:
            self.fused = self.query = (query / Q_SCALE).to(query_type)  # quantised into a tensor of its own
        else:
            self.fused = torch.full((rows, heads[0] + 2 * heads[1], SIZE), math.nan, device=_device()).bfloat16()
            self.query = self.fused[:, : heads[0]]
            self.query.copy_(query)
        key, value = (self._normal(keys, heads[1]) for _ in range(2))
        self._let_ends_answer(key, value)
        self.key, self.value = (
            (one / scale).to(torch.float8_e4m3fn) for one, scale in ((key, K_SCALE), (value, V_SCALE))
        )
        self.expected, self.spread, self.lse = self._attention()

    def __str__(self):
        sizes = " ".join(f"{queries}/{keys}" for queries, keys in self.requests)
        return f"{self.heads[0]}/{self.heads[1]} heads, window_left {self.window_left}, queries/keys {sizes}"

    def empty_output(self):
        import torch

        shape = (len(self.query) + 2 * GUARD, self.heads[0], SIZE)
        return torch.full(shape, math.nan, dtype=torch.bfloat16, device=self.query.device)

    def empty_lse(self):
        import torch

        return torch.full((len(self.query) + 2 * GUARD, self.heads[0]), math.nan, device=self.query.device)

    def parts(self):
        """Each request's rows of queries and of keys."""
        query_end = key_end = 0
        for queries, keys in self.requests:
            query_end, key_end = query_end + queries, key_end + keys
            yield slice(query_end - queries, query_end), slice(key_end - keys, key_end)

    def _normal(self, rows, count):
        import torch

        return torch.randn((rows, count, SIZE), generator=self.generator, device=self.generator.device)

    def _let_ends_answer(self, key, value):
        """Gives the first and the last key of a request their logit, and the last one large values."""
        for queries, keys in self.parts():
            value[keys.stop - 1, :, ::7] = LARGEST * V_SCALE
            if queries.start < queries.stop:
                last = self._real_query(queries)[-1].float().unflatten(0, (self.heads[1], -1))
                wanted = (last / last.square().sum(-1, keepdim=True)).sum(1) * (EDGE_LOGIT / self.scale)
                key[[keys.start, keys.stop - 1]] = wanted

    def _real_query(self, rows):
        return self.query[rows].double() * (Q_SCALE if self.is_fp8 else 1.0)

    def _attention(self):
        """In float64: the output, sum_i p_i |v_i| for each of its elements, and the LSE in base 2."""
        import torch

        done = [self._attend(queries, keys) for queries, keys in self.parts() if queries.start < queries.stop]
        return [torch.cat(tensors) for tensors in zip(*done, strict=True)]

    def _attend(self, queries, keys):
        """One request: its last query stands at its last key."""
        import torch

        group = self.heads[0] // self.heads[1]
        query = self._real_query(queries)
        real = (self.key[keys].double() * K_SCALE, self.value[keys].double() * V_SCALE)
        key, value = (tensor.repeat_interleave(group, 1) for tensor in real)
        scores = torch.einsum("qhd,khd->qhk", query, key) * self.scale
        stands = torch.arange(len(key) - len(query), len(key), device=query.device)[:, None]
        behind = stands - torch.arange(len(key), device=query.device)
        hidden = (behind < 0) | ((behind > self.window_left) & (self.window_left >= 0))
        scores = scores.masked_fill(hidden[:, None], -math.inf)
        weights = scores.softmax(-1)
        out, spread = (torch.einsum("qhk,khd->qhd", weights, one) for one in (value, value.abs()))
        return out, spread, scores.logsumexp(-1) / math.log(2)


def _pages_of(batch):
    """How many pages each request's keys lie in."""
    return [-(-keys // PAGE) for _, keys in batch.requests]


class _Pages:
    """Where the keys of a batch lie: pages in shuffled order, some between them nobody's."""

    def __init__(self, batch, layout, total=None):
        import torch

        counts = _pages_of(batch)
        self.layout, self.total = layout, total or sum(counts) + SPARE_PAGES
        self.indptr = _ints([0, *itertools.accumulate(counts)])
        self.last_page_len = _ints([(keys - 1) % PAGE + 1 for _, keys in batch.requests])
        order = torch.randperm(self.total, generator=batch.generator, device=_device())
        self.indices = order[: sum(counts)].int()
        slots = [
            (first * PAGE + at)
            for first, (_, keys) in zip(self.indptr.tolist(), batch.requests, strict=False)
            for at in range(keys)
        ]
        slots = torch.tensor(slots, device=_device())
        self.page, self.place = self.indices.long()[slots // PAGE], slots % PAGE  # of each key of all requests in turn
        inner = (PAGE, batch.heads[1]) if layout == "NHD" else (batch.heads[1], PAGE)
        self.memory = torch.empty((self.total, 2, *inner, SIZE), dtype=torch.uint8, device=_device())
        self.cache = self.memory.view(torch.float8_e4m3fn)

    def fill(self, batch, memory=None):
        """NaN everywhere, then the keys and values at their places."""
        memory = self.memory if memory is None else memory
        memory.fill_(NAN)
        for half, new in zip(memory.unbind(1), (batch.key, batch.value), strict=True):
            by_token = half if self.layout == "NHD" else half.transpose(1, 2)
            by_token[self.page, self.place] = new.view(memory.dtype)


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.where = ""
        self.calls = self.elements = 0
        self.worst = self.worst_lse = 0.0

    def compare(self, guarded, guarded_lse, batch):
        """Every element; NaN is never within a tolerance."""
        self.calls += 1
        size = batch.expected.abs()
        bound = 2 * UNIT * (batch.spread + size) + UNIT * size + 1e-5
        lse_bound = UNIT / math.log(2) + 1e-4
        if batch.is_fp8:
            bound, lse_bound = bound + 2**-4 * batch.spread + 2 * UNIT * (batch.spread + size), 2**-6
        self.worst = max(self.worst, self._share(guarded, batch.expected, bound, "elements"))
        if guarded_lse is not None:
            self.worst_lse = max(self.worst_lse, self._share(guarded_lse, batch.lse, lse_bound, "LSEs"))

    def _share(self, guarded, expected, bound, name):
        """The largest error as a share of its bound."""
        got = guarded[GUARD:-GUARD]
        share = (got.double() - expected).abs() / bound
        wrong = ~(share <= 1)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} {name} are wrong, the first at {at}: "
                f"got {got[at].item():.6g}, expected {expected[at].item():.6g}"
            )
        for rows in (guarded[:GUARD], guarded[-GUARD:]):
            assert rows.isnan().all(), f"{self.where}: something was written before or behind the {name}"
        self.elements += got.numel()
        return share.max().item()

    def measured(self):
        return {
            "calls": self.calls,
            "elements": self.elements,
            "wrong_elements": 0,
            "share_of_tolerance": round(self.worst, 3),
            "share_of_lse_tolerance": round(self.worst_lse, 3),
        }


def _same(before, after):
    """Bit for bit, NaN too."""
    import torch

    return torch.equal(before.view(torch.uint8), after.view(torch.uint8))


def _ints(values):
    import torch

    return torch.tensor(values, dtype=torch.int32)


@functools.cache
def _workspace(device):
    """FlashInfer wants it zeroed before its first use."""
    import torch

    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


def _generator(seed):
    import torch

    return torch.Generator(_device()).manual_seed(seed)


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
