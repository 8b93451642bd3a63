"""Does BatchMLAPagedAttentionWrapper give the right attention over a cache of compressed keys, with FA2 and FA3?

vLLM 0.33 calls it on compute capability 9.0 for sparse MLA (FLASHINFER_MLA_SPARSE_SM90): fa3, pages of one token, one
query of each row, no mask, in a CUDA graph whose rows behind the batch have neither queries nor keys. Metadata is on
the host, but the page numbers, which in a graph are a part of the reserved buffer itself. graph_* are captured once and
replayed three times with other queries and keys in the same memory; then other lengths and pages are planned twice, as
vLLM does in every step, and the same graph is replayed. fp8 and nope (no rotary part) are what FlashInfer 0.6.18 added.
h40 has a number of heads that does not divide the tile of 64 or 128 rows, and lengths at which the last key of such a
row begins a tile of keys: to be right, or refused in words about that (0.7.2); nobody but FlashInfer promises them.

Shapes: bf16 queries; 16 and 128 heads (tiles of 64 rows, and pairs of them); head sizes 512 and 64; pages of 1 and 64
tokens in shuffled order with spare ones between; requests of 1 to 1000 keys, few (split into parts of 32 tokens or
more, and merged) and forty of them (not split, three tiles each); one query each without a mask, and 0 to 9 queries
each with a causal one, among them such whose last tile or part of keys is hidden from all but the last queries. Cache
and queries are strided as in vLLM: one tensor of 576 columns, of which the keys of both kinds are slices; absorbed
queries with the heads outermost, rotary ones as slices of 192 columns. Every slot that is not to be read is NaN, the
rest of a last page too: the kernels fill what is behind the end of a request with zeros. Keys are values, so the first
and the last tokens of a request are loud only in every 16th channel, in which the queries are zero. FP8 values have
scales that are powers of two, with which bf16 multiplies exactly.

Tolerance: 2^-8 (2 sum p|v| + m |reference|) element by element, and 2 % and 1e-5 more for float32 and second orders.
2^-8 is the unit roundoff of bf16, to which the kernels round the probabilities and the parts of a split request (2)
and the result; FA2 divides by the sum of the rounded probabilities (m = 2), FA3 by that of the exact ones (m = 1).
Log-sum-exp (base 2): 2e-4, as 36 sums of float32 of scores up to 20 make it, for FA2 2^-8 / ln 2 more. The reference is
float64, request by request.

Upstream: include/flashinfer/attention/mla.cuh, mla_hopper.cuh and scheduler.cuh (MLAPlan), flashinfer/mla;
vllm/v1/attention/backends/mla/flashinfer_mla_sparse_sm90.py
"""

import functools
import itertools
import math
import os
import sys

PROBE = {
    "id": "attention.mla",
    "feature": "attention.mla",
    "module": "batch_mla_attention",
    "requires": {
        "sm": ">=80",
        "flashinfer": ">=0.5",
        "symbols": ["flashinfer.mla.BatchMLAPagedAttentionWrapper"],
    },
    "variants": {
        "fa2_h16": {},
        "fa2_h128": {},
        "fa2_h40": {},
        "graph_fa2_h16": {},
        "fa3_h16": {"sm": ">=90,<91"},
        "fa3_h128": {"sm": ">=90,<91"},
        "fa3_h40": {"sm": ">=90,<91"},
        "fa3_nope_h16": {"sm": ">=90,<91", "flashinfer": ">=0.6.18"},
        "fa3_fp8_h16": {"sm": ">=90,<91", "flashinfer": ">=0.6.18"},
        "graph_fa3_h16": {"sm": ">=90,<91"},
        "graph_fa3_fp8_h16": {"sm": ">=90,<91", "flashinfer": ">=0.6.18"},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

CKV = 512  # channels of the compressed keys, which are the values
KPE = 64  # rotary channels of the keys, which are not
PREFIX = 128  # columns before the rotary part in vLLM's queries
PAGE_SIZES = (1, 64)
SHORT = tuple((1, keys) for keys in (1, 15, 16, 17, 63, 64, 65, 100))  # queries and keys of each request
LONG = tuple((1, keys) for keys in (1, 130, 257, 1000, 64, 513, 31))
MANY = tuple((1, 120 + 7 * place % 71) for place in range(40))
CAUSAL = ((4, 66), (1, 130), (3, 3), (0, 21), (4, 258), (9, 600), (2, 1000), (1, 1))
BOUNDARY = ((4, 65), (4, 129), (1, 40), (7, 260))  # of which 40 heads lose a key where tiles are counted wrongly
EMPTY = 2  # rows of a graph without a query, behind those of
STEPS = ((1, 15, 64, 65, 200, 1000), (900, 3, 33, 16, 1, 500), (16, 130, 1, 1000, 31, 7))
REPLAYS = 3
SPARE_PAGES = 7
WORKSPACE_BYTES = 64 * 1024 * 1024  # the parts take less than 40 MB
SCALE = 1.25 / math.sqrt(192)  # not the usual one, so that a default in its place shows
QUERY_SIZE = 0.5  # so that no key is alone
QUIET = slice(5, None, 16)  # the channels in which queries are zero
FP8_SCALES = (0.5, 2.0)  # of compressed keys and of the rotary part
FP8_NAN = 0x7F
ROUNDOFF = 2**-8  # of bf16, which has 8 significant bits
REFUSAL = "would omit a visible key"


def build(variant):
    _load(*_kind(variant))


def run(variant):
    backend, heads, kpe, fp8 = _kind(variant)
    found = _Found(backend)
    if variant.startswith("graph_"):
        return _check_graphs((heads, kpe, fp8), found)
    if heads == 40:
        return _check_boundary((heads, kpe, fp8), found)
    for requests in (SHORT, LONG, MANY, CAUSAL):
        _check_eager((heads, kpe, fp8), requests, found)
    return found.measured()


def _kind(variant):
    """Backend, heads, rotary channels, and whether the cache is FP8."""
    parts = variant.removeprefix("graph_").split("_")
    return parts[0], int(parts[-1][1:]), 0 if "nope" in parts else KPE, "fp8" in parts


def _load(backend, _heads, kpe, fp8):
    """Compile and load what plan() asks for."""
    import torch
    from flashinfer.jit import gen_batch_mla_module

    bf16, kept = torch.bfloat16, torch.float8_e4m3fn if fp8 else torch.bfloat16
    profiler = False
    gen_batch_mla_module(backend, bf16, kept, bf16, torch.int32, CKV, kpe, profiler).build_and_load()


def _check_eager(shape, requests, found):
    """Plan and run as vLLM does, with the log-sum-exp in a second call."""
    generator = _generator(11)
    tokens = _Tokens(shape, requests, generator)
    for page_size in PAGE_SIZES:
        found.where = f"page size {page_size}, requests (queries, keys) {requests}"
        cache = _Cache(tokens, page_size, _pages(requests, page_size))
        cache.fill(tokens)
        wrapper = _wrapper(found.backend)
        _plan(wrapper, cache, tokens, cache.indices)
        out, _ = tokens.empty_outputs()
        returned = wrapper.run(*tokens.queries, *cache.passed, out=out[:-1], **cache.scales)
        assert returned.data_ptr() == out.data_ptr(), f"{found.where}: the result is not in out"
        found.compare(out, tokens)
        out, lse = tokens.empty_outputs()
        returned = wrapper.run(
            *tokens.queries, *cache.passed, out=out[:-1], lse=lse[:-1], return_lse=True, **cache.scales
        )
        places = [tensor.data_ptr() for tensor in returned]
        assert places == [out.data_ptr(), lse.data_ptr()], f"{found.where}: the results are not in out and lse"
        found.compare(out, tokens)
        found.compare_lse(lse, tokens)
        found.unchanged(tokens, cache)


def _check_boundary(shape, found):
    """Right, or refused by plan() in words about it."""
    try:
        _check_eager(shape, BOUNDARY, found)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        if REFUSAL not in str(error):
            raise
        return {"answer": f"refused: {str(error).splitlines()[0][:200]}"}
    return {"answer": "right", **found.measured()}


def _check_graphs(shape, found):
    for page_size in PAGE_SIZES:
        generator = _generator(12)
        steps = [tuple((1, keys) for keys in step) + ((0, 0),) * EMPTY for step in STEPS]
        tokens = _Tokens(shape, steps[0], generator)
        graph = _Graph(tokens, page_size, max(_pages(step, page_size) for step in steps), found.backend)
        for turn in range(REPLAYS):
            tokens = _Tokens(shape, steps[0], generator)
            found.where = f"page size {page_size}, replay {turn + 1} of a CUDA graph with new inputs"
            found.compare(graph.replay_with(tokens), tokens)
        for step in steps[1:]:
            tokens = _Tokens(shape, step, generator)
            graph.plan(tokens)
            found.where = f"page size {page_size}, replay of a CUDA graph after plan() of {step}"
            found.compare(graph.replay_with(tokens), tokens)
    return {**found.measured(), "graphs": len(PAGE_SIZES), "plans": len(PAGE_SIZES) * len(STEPS)}


class _Graph:
    """One call in a CUDA graph, with the memory that the graph knows."""

    def __init__(self, tokens, page_size, total, backend):
        import torch

        ints = {"dtype": torch.int32, "device": _device()}
        rows = len(tokens.requests)
        self.indices = torch.zeros(total, **ints)
        self.wrapper = _graph_wrapper(backend, rows, self.indices, ints)
        self.cache, self.queries = _Cache(tokens, page_size, total), tokens.queries
        self.out, _ = tokens.empty_outputs()
        self.cache.fill(tokens)
        self.plan(tokens)
        self.replay = _capture(self.wrapper, self.call)

    def call(self):
        self.wrapper.run(*self.queries, *self.cache.passed, out=self.out[:-1], **self.cache.scales)

    def plan(self, tokens):
        """New pages, their numbers in the part of the buffer that vLLM fills."""
        self.cache.place(tokens)
        used = self.indices[: len(self.cache.indices)]
        used.copy_(self.cache.indices)
        _plan(self.wrapper, self.cache, tokens, used)

    def replay_with(self, tokens):
        """The output, poisoned before, for other inputs in the same memory."""
        for old, new in zip(self.queries, tokens.queries, strict=True):
            old.copy_(new)
        self.cache.fill(tokens)
        self.out.fill_(math.nan)
        self.replay()
        return self.out


def _plan(wrapper, cache, tokens, indices):
    import torch

    wrapper.plan(
        qo_indptr=_starts(queries for queries, _ in tokens.requests),
        kv_indptr=cache.indptr,
        kv_indices=indices,
        kv_len_arr=torch.tensor([keys for _, keys in tokens.requests], dtype=torch.int32),
        num_heads=tokens.heads,
        head_dim_ckv=CKV,
        head_dim_kpe=tokens.kpe,
        page_size=cache.page_size,
        causal=tokens.causal,
        sm_scale=SCALE,
        q_data_type=torch.bfloat16,
        kv_data_type=cache.memory.dtype,
    )


def _capture(wrapper, call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
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


@functools.cache
def _workspace():
    import torch

    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=_device())


def _wrapper(backend):
    import flashinfer.mla

    return flashinfer.mla.BatchMLAPagedAttentionWrapper(_workspace(), backend=backend)


def _graph_wrapper(backend, rows, indices, ints):
    import flashinfer.mla
    import torch

    return flashinfer.mla.BatchMLAPagedAttentionWrapper(
        _workspace(),
        use_cuda_graph=True,
        qo_indptr=torch.zeros(rows + 1, **ints),
        kv_indptr=torch.zeros(rows + 1, **ints),
        kv_indices=indices,
        kv_len_arr=torch.zeros(rows, **ints),
        backend=backend,
    )


class _Tokens:
    """Queries and keys of some requests, and what attention makes of them."""

    def __init__(self, shape, requests, generator):
        import torch

        (self.heads, self.kpe, self.fp8), self.requests = shape, requests
        self.causal = max(queries for queries, _ in requests) > 1
        self.generator, device = generator, generator.device
        self.rows = sum(queries for queries, _ in requests)
        self.scales = FP8_SCALES if self.fp8 else (1.0, 1.0)

        def normal(*size):
            return torch.randn(size, generator=generator, device=device)

        nope = normal(self.heads, self.rows, CKV) * QUERY_SIZE
        nope[..., QUIET] = 0
        fused = torch.full((self.rows, self.heads, PREFIX + self.kpe), math.nan, device=device)
        fused[..., PREFIX:] = normal(self.rows, self.heads, self.kpe) * QUERY_SIZE
        self.queries = (nope.bfloat16().transpose(0, 1), fused.bfloat16()[..., PREFIX:])
        ckv = normal(sum(keys for _, keys in requests), CKV)
        self._raise_voices(ckv)
        parts = (ckv, normal(len(ckv), self.kpe))
        kept = torch.float8_e4m3fn if self.fp8 else torch.bfloat16
        self.keys = tuple(part.clamp(-448, 448).to(kept) for part in parts)
        self.before = tuple(part.clone() for part in self.queries)
        self.expected, self.weight, self.lse = self._attention()

    def _raise_voices(self, ckv):
        """Of the first token, of those that not every query sees and of some before, where no query hears them."""
        end = 0
        for queries, keys in self.requests:
            end += keys
            far = {0, keys - 129, keys - 128, *range(keys - queries - 1, keys)}
            at = [end - keys + place for place in sorted(far) if 0 <= place < keys]
            ckv[at, QUIET] *= max(4, keys / 8)

    def empty_outputs(self):
        """NaN, with one row more than there are queries: the result and the log-sum-exp."""
        import torch

        size, device = (self.rows + 1, self.heads), self.queries[0].device
        out = torch.full((*size, CKV), math.nan, dtype=torch.bfloat16, device=device)
        return out, torch.full(size, math.nan, device=device)

    def _attention(self):
        """Result, sum p|v| and log-sum-exp in base 2, in float64, request by request."""
        import torch

        nope, rope = (part.double() for part in self.queries)
        values, rotary = (part.double() * scale for part, scale in zip(self.keys, self.scales, strict=True))
        expected = torch.empty(nope.shape, dtype=torch.float64, device=nope.device)
        weight, lse, row, end = torch.empty_like(expected), torch.empty_like(expected[..., 0]), 0, 0
        for queries, keys in self.requests:
            mine, end = slice(row, row + queries), end + keys
            if not queries:
                continue
            v, k = values[end - keys : end], rotary[end - keys : end]
            scores = torch.einsum("qhd,nd->qhn", nope[mine], v) + torch.einsum("qhd,nd->qhn", rope[mine], k)
            if self.causal:
                place = torch.arange(keys, device=nope.device)
                hidden = place > place[keys - queries :, None]
                scores = scores.masked_fill(hidden[:, None], -math.inf)
            p = (scores * SCALE).softmax(-1)
            expected[mine], weight[mine] = p @ v, p @ v.abs()
            lse[mine] = (scores * SCALE).logsumexp(-1) / math.log(2)
            row += queries
        return expected, weight, lse


class _Cache:
    """Pages of both parts of the keys side by side, and which page holds what."""

    def __init__(self, tokens, page_size, total):
        import torch

        self.page_size, self.total = page_size, total
        kept, device = tokens.keys[0].dtype, tokens.keys[0].device
        self.memory = torch.empty((total, page_size, CKV + tokens.kpe), dtype=kept, device=device)
        self.passed = (self.memory[..., :CKV], self.memory[..., CKV:])
        self.scales = dict(zip(("ckv_scale", "kpe_scale"), tokens.scales, strict=True)) if tokens.fp8 else {}
        self.place(tokens)

    def place(self, tokens):
        """Shuffled page numbers, request by request, and the page and the slot of each token."""
        import torch

        device = self.memory.device
        counts = [-(-keys // self.page_size) for _, keys in tokens.requests]
        order = torch.randperm(self.total, generator=tokens.generator, device=device)
        self.indices, self.indptr = order[: sum(counts)].int(), _starts(counts)
        slots = [
            first * self.page_size + torch.arange(keys, device=device)
            for first, (_, keys) in zip(self.indptr.tolist(), tokens.requests, strict=False)
        ]
        at = torch.cat(slots)
        self.page, self.slot = order[at // self.page_size], at % self.page_size

    def fill(self, tokens):
        """NaN everywhere, then the tokens at their places."""
        import torch

        if tokens.fp8:
            self.memory.view(torch.uint8).fill_(FP8_NAN)
        else:
            self.memory.fill_(math.nan)
        raw = self.memory.view(torch.uint8) if tokens.fp8 else self.memory  # FP8 cannot be indexed everywhere
        keys = [part.view(torch.uint8) if tokens.fp8 else part for part in tokens.keys]
        raw[self.page, self.slot] = torch.cat(keys, dim=-1)
        self.before = raw.view(torch.uint8).clone()


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self, backend):
        self.backend, self.where = backend, ""
        self.lse_tolerance = 2e-4 + (ROUNDOFF / math.log(2) if backend == "fa2" else 0.0)
        self.calls = self.elements = 0
        self.worst = self.worst_lse = 0.0

    def compare(self, out, tokens):
        """Every element; the row behind the last must be as it was."""
        assert out[-1].isnan().all(), f"{self.where}: something was written behind the last row"
        rows = out[:-1].double()
        terms = 2 * tokens.weight + (2 if self.backend == "fa2" else 1) * tokens.expected.abs()
        bound = 1.02 * ROUNDOFF * terms + 1e-5
        share = (rows - tokens.expected).abs() / bound
        wrong = ~(share <= 1)  # NaN is wrong
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at {at} (row, "
                f"head, element): got {rows[at].item():.6g}, expected {tokens.expected[at].item():.6g} "
                f"within {bound[at].item():.2g}"
            )
        self.calls += 1
        self.elements += rows.numel()
        self.worst = max(self.worst, share.max().item())

    def compare_lse(self, lse, tokens):
        assert lse[-1].isnan().all(), f"{self.where}: something was written behind the last log-sum-exp"
        difference = (lse[:-1].double() - tokens.lse).abs()
        wrong = ~(difference <= self.lse_tolerance)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} log-sum-exps are wrong, the first at {at} "
                f"(row, head): got {lse[at].item():.6g}, expected {tokens.lse[at].item():.6g} "
                f"within {self.lse_tolerance:.2g}"
            )
        self.worst_lse = max(self.worst_lse, difference.max().item() / self.lse_tolerance)

    def unchanged(self, tokens, cache):
        import torch

        same = all(torch.equal(now, old) for now, old in zip(tokens.queries, tokens.before, strict=True))
        assert same, f"{self.where}: the queries were written to"
        same = torch.equal(cache.memory.view(torch.uint8), cache.before)
        assert same, f"{self.where}: the cache was written to"

    def measured(self):
        lse = {"worst_lse_of_tolerance": self.worst_lse} if self.worst_lse else {}
        counts = {"calls": self.calls, "elements": self.elements, "wrong_elements": 0}
        return {**counts, "worst_of_tolerance": self.worst, **lse}


def _starts(counts):
    """Where each begins and the last ends, on the host."""
    import torch

    return torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)


def _pages(requests, size):
    return sum(-(-keys // size) for _, keys in requests) + SPARE_PAGES


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
