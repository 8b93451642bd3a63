"""Does attention with sinks add each query head's own sink, once and as it is, to the denominator of the softmax?

A sink is a float32 logit (natural logarithm) for each query head that has no value: out = sum exp(s_i) v_i /
(sum exp(s_i) + exp(sink)). fa2 and fa3 are BatchAttentionWithAttentionSinkWrapper, planned and called as vLLM does, and
xqa is xqa_batch_decode_with_kv_cache. window is gpt-oss's (127 tokens to the left), which is another module.
softcap_orders plans in one process without a soft cap, with one and without, then in a fresh wrapper with one first: a
cap that is accepted but not applied is wrong numbers, and one that is refused is said. graph_* are decoding steps,
captured in a CUDA graph and replayed three times with other queries, sinks, keys, lengths and page numbers in the same
memory; the wrappers, which vLLM calls for prompts only and does not capture, are planned again before each replay.

The wrapper keys its module by type, window and backend but not by head size: each change of size compiles over what is
there, and a process that has loaded one size gets its kernel for another. d128 therefore has a key of its own here, and
d64 has the one that gpt-oss takes.

Shapes: 64 query heads over 8 KV heads (wrappers of size 128: 32 over 8, which halves what a split needs) and 8 over 8;
sinks from -4 to 6, different for each head; batches of 7 causal prefills and continuations (one without a query), of 6
decodes with 1, 15, 16, 17, 130 and 1000 keys, and one request with 3000 keys, which is split; NHD (one tensor) and HND
(two) in shuffled pages of 1 and 16 tokens (xqa: 16 and 32). Unused ends of pages hold 3e4, pages of nobody NaN.

Tolerance: element by element 2 u (sum p_i |v_i| + |ref|) + 1e-5, where u = 2^-8 is the unit roundoff of bf16. To first
order no right kernel exceeds it: P is rounded (u sum p|v|), the denominator sums rounded P (u |ref|), the parts of a
split are rounded (u sum p|v|), and so is the output (u |ref|). The logarithm of the denominator (base 2, with the sink)
may be off by u / ln 2, and 1e-3 for approximate functions. The reference is float64, request by request.

Upstream: flashinfer/attention.py (since 0.7 attention/_core.py), flashinfer/jit/attention/variants.py, csrc/xqa/mha.cu
"""

import functools
import importlib
import inspect
import itertools
import math
import os
import sys

PROBE = {
    "id": "attention.sinks",
    "feature": "attention.sinks",
    "module": "batch_prefill_attention_sink",
    "requires": {
        "sm": ">=80",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.attention.BatchAttentionWithAttentionSinkWrapper",
            "flashinfer.decode.xqa_batch_decode_with_kv_cache",
        ],
    },
    "variants": {
        "xqa_d64": {"sm": ">=90,!=110"},
        "xqa_d64_window": {"sm": ">=90,!=110"},
        "xqa_d128": {"sm": ">=90,!=110"},
        "graph_xqa_d64": {"sm": ">=90,!=110"},
        "fa2_d64": {},
        "fa2_d64_window": {},
        "fa2_d128": {},
        "graph_fa2_d64": {},
        "fa2_softcap_orders_d64": {},
        "fa3_d64": {"sm": ">=90,<91"},
        "fa3_d64_window": {"sm": ">=90,<91"},
        "fa3_d128": {"sm": ">=90,<91"},
        "graph_fa3_d64": {"sm": ">=90,<91"},
        "fa3_softcap_orders_d64": {"sm": ">=90,<91"},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "subset": {"units": "paged_causal", "if_short": True},  # vLLM calls it so
    "checks": "numbers",
}

PREFILL = ((1, 1), (15, 15), (0, 20), (17, 130), (33, 33), (150, 150), (5, 1000))  # queries and keys of each request
DECODE = ((1, 1), (1, 15), (1, 16), (1, 17), (1, 130), (1, 1000))
SPLIT = ((3, 3000),)
# Keys of the requests of decoding steps in a graph: at its capture, then replay by replay.
GRAPH_STEPS = ((1, 16, 17, 33, 130, 1000), (20, 1, 64, 130, 15, 700), (3, 2, 1, 40, 1000, 16), (999, 31, 5, 16, 1, 80))
SPLIT_DECODE = ((1, 3000),)
HEADS = {64: ((64, 8), (8, 8)), 128: ((32, 8), (8, 8))}  # of the wrappers: query and KV heads
XQA = {  # page size, query and KV heads; each is a module
    "xqa_d64": ((16, 64, 8), (32, 64, 8), (16, 8, 8)),
    "xqa_d64_window": ((16, 64, 8),),
    "xqa_d128": ((16, 64, 8),),
    "graph_xqa_d64": ((16, 64, 8),),
}
PAGE_SIZES = (1, 16)
WINDOW_LEFT = 127
SOFT_CAP = 1.0
ORDERS = ((False, True, False), (True, False))  # with a soft cap or not, each in a wrapper of its own
UNIT = 2.0**-8
UNUSED = 3e4  # what the ends of pages hold: they may be loaded, but must not count
WORKSPACE = 128 * 2**20  # bytes; a split of fa2 takes up to 2 MiB for each 4 SMs


def build(variant):
    backend, size, window_left = _parts(variant)
    if backend == "xqa":
        for page_size, queries, keys in XQA[variant]:
            _build_xqa(page_size, size, queries // keys, window_left)
        return
    asked = _asked(backend, size, window_left)
    load = sys.modules[_paged().__module__].get_customize_batch_prefill_module
    load(asked.backend, *asked.jit_args, **asked.jit_kwargs)  # cached by these arguments: the wrapper finds it there


def run(variant):
    backend, size, window_left = _parts(variant)
    if "softcap_orders" in variant:
        return _check_soft_cap_orders(backend, size)
    if variant.startswith("graph_"):
        return _check_graphs(backend, size)
    if backend == "xqa":
        return _check_xqa(variant, size, window_left)
    return _check_wrapper(backend, size, window_left)


def _parts(variant):
    """Backend, head size, window_left."""
    backend, _, rest = variant.removeprefix("graph_").partition("_")
    return backend, 128 if "d128" in rest else 64, WINDOW_LEFT if rest.endswith("window") else -1


def _check_wrapper(backend, size, window_left):
    tally = _Tally()
    cases = itertools.product(HEADS[size], (PREFILL, DECODE, SPLIT))
    batches = [_Batch(requests, heads, size, window_left) for heads, requests in cases]
    for layout in ("NHD", "HND"):
        wrapper = _wrapper(backend, size, layout, window_left)
        for page_size, batch in itertools.product(PAGE_SIZES, batches):
            _plan(wrapper, batch, pages := _Pages(batch, layout, page_size), None)
            where = f"{backend}, {layout}, pages of {page_size}, {batch}"
            tally.add(where, *_call(wrapper, batch, pages), batch.reference())
    key = _asked(backend, size, window_left).key
    theirs = key if size == 64 else key.removesuffix(f"_head_dim_{size}")
    return {
        "module": key,
        "module_key_names_head_size": str(size) in theirs,
        "window_left": window_left,
        "shapes": " ".join(f"{queries}/{keys}x{size}" for queries, keys in HEADS[size]),
        **tally.measured(),
    }


def _check_xqa(variant, size, window_left):
    import flashinfer.decode

    tally = _Tally()
    _workspace(_device()).zero_()  # its semaphores must be zero before the first call, and are left so by each
    for page_size, queries, keys in XQA[variant]:
        for requests, layout in itertools.product((DECODE, SPLIT_DECODE), ("NHD", "HND")):
            batch = _Batch(requests, (queries, keys), size, window_left)
            buffer, out = _poisoned(batch.query)
            kept = batch.query.clone(), batch.sinks.clone()
            _call_xqa(batch, _Pages(batch, layout, page_size), out)
            _assert_untouched(buffer, batch, kept)
            tally.add(f"xqa, {layout}, pages of {page_size}, {batch}", out, None, batch.reference())
    arguments = inspect.signature(flashinfer.decode.xqa_batch_decode_with_kv_cache).parameters
    return {
        "modules": " ".join(f"page{page_size}_group{queries // keys}" for page_size, queries, keys in XQA[variant]),
        "window_left": window_left,
        "soft_cap": "offered, not checked" if "logits_soft_cap" in arguments else "not offered",
        **tally.measured(),
    }


def _check_graphs(backend, size):
    tally = _Tally()
    _workspace(_device()).zero_()  # for the semaphores of XQA
    for layout in ("NHD", "HND"):
        held = _Held(backend, size, layout)
        replay = _capture(held.call)
        for turn, lengths in enumerate(GRAPH_STEPS[1:]):
            batch = held.take(lengths, seed=turn + 1)
            held.out.fill_(math.nan)
            replay()
            where = f"{backend}, {layout}, replay {turn + 1} of a CUDA graph with new inputs, {batch}"
            tally.add(where, held.out, None, batch.reference())
            _assert_untouched(held.buffer, held.batch, (batch.query, batch.sinks))
    return {"graphs": 2, "page_size": 16, **tally.measured()}


class _Held:
    """The memory that a graph reads and writes: of a decoding step, its pages and its output."""

    def __init__(self, backend, size, layout):
        self.backend, self.size, self.layout = backend, size, layout
        self.batch, self.pages = self._step(GRAPH_STEPS[0], 0)
        self.buffer, self.out = _poisoned(self.batch.query)
        self.wrapper = None
        if backend != "xqa":
            self.wrapper = _graph_wrapper(backend, layout, self.pages)
            _plan(self.wrapper, self.batch, self.pages, None)

    def _step(self, lengths, seed):
        batch = _Batch(tuple((1, length) for length in lengths), (64, 8), self.size, -1, seed)
        return batch, _Pages(batch, self.layout, 16, room=max(map(max, GRAPH_STEPS)))

    def take(self, lengths, seed):
        """Another step, in the memory of this one."""
        batch, pages = self._step(lengths, seed)
        for mine, new in (
            (self.batch.query, batch.query),
            (self.batch.sinks, batch.sinks),
            (self.pages.stacked, pages.stacked),
            (self.pages.table, pages.table),
            (self.pages.lengths, pages.lengths),
        ):
            mine.copy_(new)
        if self.wrapper is not None:
            _plan(self.wrapper, batch, pages, None)
        return batch

    def call(self):
        if self.wrapper is None:
            return _call_xqa(self.batch, self.pages, self.out)
        batch = self.batch
        return self.wrapper.run(batch.query, self.pages.cache, batch.sinks, batch.scale, out=self.out)


def _graph_wrapper(backend, layout, pages):
    """The library's own wrapper of size 64, with buffers for its graph."""
    import flashinfer.attention
    import torch

    count = len(pages.lengths)

    def room(length):
        return torch.zeros(length, dtype=torch.int32, device=pages.lengths.device)

    return flashinfer.attention.BatchAttentionWithAttentionSinkWrapper(
        _workspace(_device()),
        layout,
        use_cuda_graph=True,
        qo_indptr_buf=room(count + 1),
        paged_kv_indptr_buf=room(count + 1),
        paged_kv_indices_buf=room(pages.table.numel()),
        paged_kv_last_page_len_buf=room(count),
        backend=backend,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        head_dim_qk=64,
        head_dim_vo=64,
        window_left=-1,
    )


def _check_soft_cap_orders(backend, size):
    batch = _Batch((*PREFILL, *DECODE), HEADS[size][0], size, -1)
    pages = _Pages(batch, "NHD", 16)
    references = {False: batch.reference(), True: batch.reference(SOFT_CAP)}
    seen = []
    for order in ORDERS:
        wrapper = _wrapper(backend, size, "NHD", -1)
        for capped in order:
            try:
                _plan(wrapper, batch, pages, SOFT_CAP if capped else None)
            except (NotImplementedError, ValueError, AssertionError) as refusal:
                if not capped:
                    raise
                seen.append(f"refused: {type(refusal).__name__}: {refusal}")
                continue
            seen.append(_effect_of_cap(batch, _call(wrapper, batch, pages), references, capped, seen))
    with_cap = [effect for effect in seen if effect != "off"]
    assert "ignored" not in with_cap, (
        f"the soft cap is ignored: the numbers are those without it ({backend}, plan(logits_soft_cap={SOFT_CAP}) "
        f"succeeds; one after the other: {', '.join(seen)})"
    )
    return {"soft_cap": " | ".join(sorted(set(with_cap))), "order": ", ".join(seen), "wrong_elements": 0}


def _effect_of_cap(batch, result, references, capped, seen):
    """What plan()'s soft cap did: "off" where there is none, "applied" or "ignored"; anything else raises."""
    matches = {cap: not any(_wrong(*result, reference)) for cap, reference in references.items()}
    where = f"soft cap {SOFT_CAP if capped else 'off'} after ({', '.join(seen) or 'nothing'}), {batch}"
    if matches[capped]:
        return "applied" if capped else "off"
    assert capped or not matches[True], f"{where}: the numbers are those with the soft cap of an earlier plan()"
    if not matches[False]:
        _Tally().add(where, *result, references[capped])  # raises, and says where
    return "ignored"


class _Batch:
    """Queries, keys, values and sinks of some requests, each (number of queries, number of keys)."""

    def __init__(self, requests, heads, size, window_left, seed=0):
        import torch

        generator = torch.Generator(_device()).manual_seed(7 + seed)
        self.requests, self.heads, self.size, self.window_left = requests, heads, size, window_left
        self.queries, self.keys = (sum(request[i] for request in requests) for i in (0, 1))
        self.scale = 1.2 / math.sqrt(size)  # not the default; logits have a standard deviation of 1.2

        def normal(tokens, count):
            return torch.randn((tokens, count, size), generator=generator, device=generator.device)

        self.query = normal(self.queries, heads[0]).bfloat16()
        self.key = normal(self.keys, heads[1]).bfloat16()
        self.value = (1 + 2 * normal(self.keys, heads[1])).bfloat16()  # a mean, so that outputs do not average to zero
        order = (37 * torch.arange(heads[0], device=generator.device) + 11 + seed) % heads[0]  # neighbours differ
        self.sinks = torch.linspace(-4, 6, heads[0], device=generator.device)[order].contiguous()
        self.computed = {}

    def __str__(self):
        sizes = " ".join(f"{queries}/{keys}" for queries, keys in self.requests)
        return f"{self.heads[0]}/{self.heads[1]} heads of {self.size}, window_left {self.window_left}, requests {sizes}"

    def reference(self, soft_cap=0.0):
        """Output, sum of p |v|, and logarithm of the denominator (base 2), in float64."""
        import torch

        if soft_cap not in self.computed:
            ends = itertools.accumulate(self.requests, lambda a, b: (a[0] + b[0], a[1] + b[1]))
            parts = [self._attend(*request, *end, soft_cap) for request, end in zip(self.requests, ends, strict=True)]
            self.computed[soft_cap] = tuple(torch.cat(part) for part in zip(*parts, strict=True))
        return self.computed[soft_cap]

    def _attend(self, queries, keys, query_end, key_end, soft_cap):
        """One request: the last of its queries stands at its last key."""
        import torch

        group = self.heads[0] // self.heads[1]
        query = self.query[query_end - queries : query_end].double()
        key, value = (t[key_end - keys : key_end].double().repeat_interleave(group, 1) for t in (self.key, self.value))
        scores = torch.einsum("qhd,khd->qhk", query, key) * self.scale
        scores = soft_cap * torch.tanh(scores / soft_cap) if soft_cap else scores
        at = torch.arange(keys, device=query.device)
        behind = at[keys - queries :, None] - at  # how far each key lies before each query
        seen = (behind >= 0) & ((behind <= self.window_left) | (self.window_left < 0))
        scores = scores.masked_fill(~seen[:, None], -math.inf)
        sinks = self.sinks.double().expand(queries, -1)
        logarithm = torch.logaddexp(torch.logsumexp(scores, -1), sinks)
        weights = torch.exp(scores - logarithm[..., None])
        out, size = (torch.einsum("qhk,khd->qhd", weights, one) for one in (value, value.abs()))
        return out, size, logarithm / math.log(2)


class _Pages:
    """The keys and values of a batch in shuffled pages; page 0 fills up block tables."""

    def __init__(self, batch, layout, page_size, room=0):
        """room: keys that each request has pages for; 0: what it needs."""
        import torch

        device = batch.query.device
        lengths = [keys for _, keys in batch.requests]
        counts = [-(-length // page_size) for length in lengths]
        used = sum(counts)
        width = max(*counts, -(-room // page_size))
        most = width * len(counts) if room else used
        generator = torch.Generator(device).manual_seed(3 + sum(lengths) * bool(room))
        order = torch.randperm(most + 7, generator=generator, device=device)[:used] + 1  # 7 pages are nobody's
        self.layout, self.page_size = layout, page_size
        self.indices = order.int()
        self.indptr = torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)
        self.last_page_len = torch.tensor([(length - 1) % page_size + 1 for length in lengths], dtype=torch.int32)
        self.query_indptr = torch.tensor([0, *itertools.accumulate(q for q, _ in batch.requests)], dtype=torch.int32)
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device=device)
        self.max_length = max(*lengths, room)
        self.table = torch.zeros((len(lengths), width), dtype=torch.int32, device=device)
        for row, begin, end in zip(self.table, self.indptr.tolist(), self.indptr.tolist()[1:], strict=False):
            row[: end - begin] = self.indices[begin:end]
        inner = (page_size, batch.heads[1]) if layout == "NHD" else (batch.heads[1], page_size)
        stacked = torch.full((most + 8, 2, *inner, batch.size), math.nan, dtype=torch.bfloat16, device=device)
        stacked[order] = UNUSED
        stacked[0] = UNUSED
        at = torch.cat([torch.arange(length, device=device) for length in lengths])
        first = self.indptr[:-1].to(device).repeat_interleave(self.lengths.long())
        pages = order[first + at // page_size]
        for half, tokens in zip(stacked.unbind(1), (batch.key, batch.value), strict=True):
            (half if layout == "NHD" else half.transpose(1, 2))[pages, at % page_size] = tokens
        self.stacked = stacked
        self.cache = stacked if layout == "NHD" else stacked.unbind(1)


class _Tally:
    """Compares outputs with references and keeps count."""

    def __init__(self):
        self.elements, self.cases, self.worst = 0, 0, 0.0

    def add(self, where, out, lse, reference):
        wrong_out, wrong_lse = _wrong(out, lse, reference)
        if wrong_out:
            error, bound = (out.double() - reference[0]).abs(), _bound(reference)
            bad = ~(error <= bound)
            at = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(
                f"{where}: {wrong_out} of {out.numel()} elements are wrong, in {int(bad.any(2).any(0).sum())} of "
                f"{out.shape[1]} heads, the first at {at}: got {out[at].item():.6g}, expected "
                f"{reference[0][at].item():.6g} within {bound[at].item():.2g}"
            )
        assert not wrong_lse, f"{where}: {wrong_lse} of {lse.numel()} logarithms of the denominator are wrong"
        self.elements += out.numel()
        self.cases += 1
        self.worst = max(self.worst, float(((out.double() - reference[0]).abs() / _bound(reference)).max()))

    def measured(self):
        return {
            "cases": self.cases,
            "elements": self.elements,
            "largest_error_of_bound": round(self.worst, 3),
            "wrong_elements": 0,
        }


def _bound(reference):
    return 2 * UNIT * (reference[1] + reference[0].abs()) + 1e-5


def _wrong(out, lse, reference):
    """The number of wrong outputs and logarithms; NaN is wrong."""
    outputs = int((~((out.double() - reference[0]).abs() <= _bound(reference))).sum())
    if lse is None:
        return outputs, 0
    return outputs, int((~((lse.double() - reference[2]).abs() <= UNIT / math.log(2) + 1e-3)).sum())


def _wrapper(backend, size, layout, window_left):
    """The library's own wrapper; for size 128 with a key of its own."""
    import flashinfer.attention
    import torch

    if size != 64:
        return _with(_naming())(_workspace(_device()), layout, **_choice(backend, size, window_left))
    return flashinfer.attention.BatchAttentionWithAttentionSinkWrapper(
        _workspace(_device()),
        layout,
        backend=backend,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        head_dim_qk=size,
        head_dim_vo=size,
        window_left=window_left,
    )


def _choice(backend, size, window_left):
    import torch

    types = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}
    return {"backend": backend, **types, "head_dim_qk": size, "head_dim_vo": size, "window_left": window_left}


def _with(*between):
    """The wrapper, with classes between it and the one to which it hands its jit_args."""
    return type("Sinks", (_library_class(), *between), {})


def _paged():
    """The class to which the wrapper hands its jit_args, the module's key first."""
    return _library_class().__mro__[1]


def _library_class():
    import flashinfer.attention

    return flashinfer.attention.BatchAttentionWithAttentionSinkWrapper


@functools.cache
def _naming():
    """Adds the head size to the key."""

    class Naming(_paged()):
        def __init__(self, *args, jit_args, **kwargs):
            key = f"{jit_args[0]}_head_dim_{jit_args[5]}"
            super().__init__(*args, jit_args=[key, *jit_args[1:]], **kwargs)

    return Naming


def _asked(backend, size, window_left):
    """What the wrapper asks for: backend, jit_args, jit_kwargs; nothing is compiled, and there need be no GPU."""
    import torch

    class Asked(_paged()):
        def __init__(self, *, backend, jit_args, jit_kwargs, **_rest):  # instead of the library's
            self.backend, self.jit_args, self.jit_kwargs, self.key = backend, jit_args, jit_kwargs, jit_args[0]

    between = (Asked,) if size == 64 else (_naming(), Asked)
    return _with(*between)(torch.empty(0, dtype=torch.uint8), "NHD", **_choice(backend, size, window_left))


def _plan(wrapper, batch, pages, soft_cap):
    import torch

    wrapper.plan(
        qo_indptr=pages.query_indptr,
        paged_kv_indptr=pages.indptr,
        paged_kv_indices=pages.indices,
        paged_kv_last_page_len=pages.last_page_len,
        num_qo_heads=batch.heads[0],
        num_kv_heads=batch.heads[1],
        head_dim_qk=batch.size,
        page_size=pages.page_size,
        causal=True,
        sm_scale=batch.scale,
        window_left=batch.window_left,
        logits_soft_cap=soft_cap,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
    )


def _poisoned(query):
    """A buffer of NaN, and the output in it with a row of nobody before and after: vLLM passes a slice, too."""
    import torch

    buffer = torch.full((len(query) + 2, *query.shape[1:]), math.nan, dtype=query.dtype, device=query.device)
    return buffer, buffer[1:-1]


def _assert_untouched(buffer, batch, kept):
    import torch

    assert buffer[[0, -1]].isnan().all(), f"{batch}: something was written outside of out"
    same = [torch.equal(mine, before) for mine, before in zip((batch.query, batch.sinks), kept, strict=True)]
    assert all(same), f"{batch}: the queries or the sinks were changed"


def _call(wrapper, batch, pages):
    """Output and logarithm of the denominator, in buffers that were NaN."""
    import torch

    buffer, out = _poisoned(batch.query)
    kept = batch.query.clone(), batch.sinks.clone()
    lse = torch.full(batch.query.shape[:2], math.nan, device=batch.query.device)
    # The scale goes to the custom kernel as an argument; that of plan() does not reach it in every version.
    returned = wrapper.run(batch.query, pages.cache, batch.sinks, batch.scale, out=out, lse=lse, return_lse=True)
    assert returned[0].data_ptr() == out.data_ptr(), "run() returned another tensor than out"
    _assert_untouched(buffer, batch, kept)
    return out, lse


def _call_xqa(batch, pages, out):
    import flashinfer.decode

    returned = flashinfer.decode.xqa_batch_decode_with_kv_cache(
        query=batch.query,
        kv_cache=pages.cache,
        workspace_buffer=_workspace(batch.query.device),
        block_tables=pages.table,
        seq_lens=pages.lengths,
        max_seq_len=pages.max_length,
        bmm1_scale=batch.scale,
        bmm2_scale=1.0,
        window_left=batch.window_left,
        out=out,
        sinks=batch.sinks,
        kv_layout=pages.layout,
    )
    assert returned.data_ptr() == out.data_ptr(), "the call returned another tensor than out"
    return out


def _build_xqa(page_size, size, group, window_left):
    import torch

    known = {
        "input_dtype": torch.bfloat16,
        "kv_cache_dtype": torch.bfloat16,
        "page_size": page_size,
        "head_dim": size,
        "head_group_ratio": group,
        "use_sliding_window": window_left >= 0,
        "output_dtype": torch.bfloat16,
        "q_seq_len": 1,
    }
    # Its parameters became more with the versions, and it is cached by position. flashinfer.xqa is a function, too.
    load = importlib.import_module("flashinfer.xqa").get_xqa_module
    load(*[known[name] for name in inspect.signature(load).parameters if name in known])


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.attention").stand_in_for_a_graph(call)
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


@functools.cache
def _workspace(device):
    import torch

    return torch.empty(WORKSPACE, dtype=torch.uint8, device=device)


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
