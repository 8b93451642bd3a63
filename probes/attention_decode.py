"""Does BatchDecodeWithPagedKVCacheWrapper give the right attention, on CUDA and tensor cores and in a CUDA graph?

Variants: cuda_* are the kernels for CUDA cores, tc_* those for tensor cores (the module of fa2 batch prefill), which
vLLM calls. graph_* are captured in a CUDA graph over buffers that stay, as in vLLM, and replayed three times with other
queries, keys and values in the same memory; then other lengths and another page table are planned, as vLLM does in
every step, once by plan() and once by fast_decode_plan(), and the same graph is replayed. The last three have head
sizes that FlashInfer does not offer: they have to be refused (by the compiler, plan() or run()) or to be right.

Shapes: bf16; 8 query heads over 2 and over 1 KV heads, 4 over 4; NHD and HND; pages of 1 and 16 tokens in shuffled
order with spare ones between them; a batch of up to 100 tokens, which is not split, and one of up to 1000, which is
split into parts of 128 tokens or more and merged. Both hold an empty request, as vLLM's padding of a graph does:
nothing is promised for its own row, which is only reported, but it must not disturb the others. The cache is one tensor
of five dimensions (vLLM to 0.25) or has each value beside its key (vLLM from 0.28); queries are slices of a fused
tensor. Every slot that is not to be read is NaN, the unused rest of a last page too: the kernels mask keys there by
selection and put zeros in place of values without loading them, so nothing is multiplied by NaN. Some values are 32
times as large as others, the last of each request among them, so that a lost token shows.

Tolerance: k * 2^-8 * (sum p|v| + |reference|), element by element, and 2 % and 1e-5 more for float32 and second orders.
Rounding to bf16 errs by 2^-8 at most, times: sum p|v| for the parts of a split request and |reference| for the result
(k = 1, CUDA cores); on tensor cores also the probabilities are rounded, and divided by the sum of the rounded ones,
which moves the result by as much again (k = 2). Log-sum-exp (base 2): 1e-3, on tensor cores 2^-8 / ln 2 more for the
same rounded sum. The reference is float64, request by request.

Upstream: include/flashinfer/attention/decode.cuh, prefill.cuh and scheduler.cuh, flashinfer/decode.py;
vllm/v1/attention/backends/flashinfer.py
"""

import functools
import itertools
import math
import os
import re
import sys

PROBE = {
    "id": "attention.decode",
    "feature": "attention.decode",
    "module": "batch_decode_with_kv_cache",
    "requires": {
        "sm": ">=80",
        "flashinfer": ">=0.5",
        "symbols": ["flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper"],
    },
    "variants": {
        "cuda_d64": {},
        "cuda_d128": {},
        "cuda_d256": {},
        "tc_d64": {},
        "tc_d128": {},
        "tc_d256": {},
        "graph_cuda_d128": {"symbols": ["flashinfer.decode.fast_decode_plan"]},
        "graph_tc_d128": {"symbols": ["flashinfer.decode.fast_decode_plan"]},
        "cuda_d80": {},
        "cuda_d192": {},
        "cuda_d45": {},
    },
    "gpus": 1,
    "timeout_s": 180,
    "build_timeout_s": 1800,
    "compiles": ["nvcc"],
    "subset": {"units": "paged", "if_short": True},  # of prefill's, which tensor cores take: pages without a mask
    "checks": "numbers",
}

SHORT = (1, 15, 0, 16, 17, 100)  # tokens that each request has in the cache
LONG = (1, 15, 16, 17, 200, 1000, 128, 0, 129)
STEPS = ((1, 15, 16, 17, 200, 1000, 40), (900, 3, 33, 16, 1, 500, 0), (16, 130, 1, 1000, 31, 0, 0))
HEADS = ((8, 2), (8, 1), (4, 4))  # query heads and KV heads
GRAPH_CASES = (("NHD", 16), ("HND", 16), ("NHD", 1))
REPLAYS = 3
OFFERED = (64, 128, 256)
SPARE_PAGES = 7
WORKSPACE_BYTES = 64 * 1024 * 1024  # the most that is asked for is 35 MB
SCALE = 1.25  # of 1 / sqrt(head size), so that a default in place of what was passed shows
LOUD = 32.0
ROUNDOFF = 2**-8  # of bf16, which has 8 significant bits

REFUSING_COMPILER = re.compile(r"static assertion|static_assert|unsupported head|invalid configuration", re.IGNORECASE)
CUDA_FAULT = re.compile(r"CUDA error|illegal|misaligned|unspecified launch failure|out of memory", re.IGNORECASE)
NO_REFUSALS = (TypeError, AttributeError, NameError, ImportError, OSError, MemoryError)


def build(variant):
    _, head_size = _kind(variant)
    if head_size in OFFERED:
        _load(variant)
    else:
        _refusal_of_compiler(variant)


def run(variant):
    kind, head_size = _kind(variant)
    if head_size not in OFFERED:
        return _check_not_offered(variant, head_size)
    if variant.startswith("graph_"):
        return _check_graph(kind == "tc", head_size)
    return _check_eager(kind == "tc", head_size)


def _kind(variant):
    """Which cores, and the head size."""
    kind, size = variant.removeprefix("graph_").split("_d")
    return kind, int(size)


def _load(variant):
    """Compile and load what plan() asks for: no position encoding, no window, no soft cap."""
    import torch
    from flashinfer.decode import get_batch_decode_module, get_batch_prefill_module

    kind, size = _kind(variant)
    bf16, int32 = torch.bfloat16, torch.int32
    no = False  # window, soft cap, reduction in fp16
    if kind == "tc":
        get_batch_prefill_module("fa2", bf16, bf16, bf16, int32, size, size, 0, no, no, no)
    else:
        get_batch_decode_module(bf16, bf16, bf16, int32, size, size, 0, no, no)


@functools.cache
def _refusal_of_compiler(variant):
    """What a module that cannot be compiled for this head size says about it, or ""; other failures are raised."""
    try:
        _load(variant)
    except NO_REFUSALS:
        raise
    except Exception as error:
        said = REFUSING_COMPILER.search(str(error))
        if said is None or "fatal error" in str(error):
            raise
        return next(line for line in str(error).splitlines() if said[0] in line)
    return ""


def _check_eager(tensor_cores, head_size):
    found = _Found(tensor_cores)
    for heads, lengths in itertools.product(HEADS, (SHORT, LONG)):
        tokens = _Tokens(heads, head_size, lengths, _generator(11))
        for layout, page_size, packed in itertools.product(("NHD", "HND"), (16, 1), (False, True)):
            table = _Table(lengths, page_size, _pages(lengths, page_size), tokens.generator)
            cache = _Cache(layout, table, tokens, packed)
            cache.fill(table, tokens)
            found.where = f"{layout}, page size {page_size}, heads {heads}, lengths {lengths}, packed {packed}"
            _check_call(_wrapper(layout, tensor_cores), table, cache, tokens, found)
    return {**found.measured(), "lengths": " ".join(map(str, sorted({*SHORT, *LONG})))}


def _check_call(wrapper, table, cache, tokens, found):
    """Plan and run as vLLM does, with the log-sum-exp in a second call."""
    import torch

    _plan(wrapper, table, table.indices, tokens)
    out = tokens.empty_output()
    returned = wrapper.run(tokens.query, cache.passed, k_scale=1.0, v_scale=1.0, out=out[:-1])
    assert returned.data_ptr() == out.data_ptr(), f"{found.where}: the result is not in out"
    found.compare(out, tokens)
    lse = torch.full(out.shape[:2], float("nan"), device=out.device)
    out = tokens.empty_output()
    wrapper.run(tokens.query, cache.passed, out=out[:-1], lse=lse[:-1], return_lse=True)
    found.compare(out, tokens)
    found.compare_lse(lse, tokens)


def _check_graph(tensor_cores, head_size):
    found = _Found(tensor_cores)
    for layout, page_size in GRAPH_CASES:
        _check_one_graph(layout, page_size, head_size, found)
    return {**found.measured(), "graphs": len(GRAPH_CASES), "plans": len(GRAPH_CASES) * len(STEPS)}


def _check_one_graph(layout, page_size, head_size, found):
    generator = _generator(12)
    total = max(_pages(lengths, page_size) for lengths in STEPS)
    tables = [_Table(lengths, page_size, total, generator) for lengths in STEPS]
    tokens = _Tokens(HEADS[0], head_size, STEPS[0], generator)
    graph = _Graph(layout, tables[0], tokens, found.tensor_cores)
    for turn in range(REPLAYS):
        tokens = _Tokens(HEADS[0], head_size, STEPS[0], generator)
        found.where = f"{layout}, page size {page_size}, replay {turn + 1} of a CUDA graph with new inputs"
        found.compare(graph.replay_with(tables[0], tokens), tokens)
    for table, lengths, plan in zip(tables[1:], STEPS[1:], (graph.plan, graph.fast_decode_plan), strict=True):
        tokens = _Tokens(HEADS[0], head_size, lengths, generator)
        plan(table, tokens)
        found.where = f"{layout}, page size {page_size}, replay of a CUDA graph after {plan.__name__} of {lengths}"
        found.compare(graph.replay_with(table, tokens), tokens)


class _Graph:
    """One call in a CUDA graph, with the memory that the graph knows."""

    def __init__(self, layout, table, tokens, tensor_cores):
        import torch

        ints = {"dtype": torch.int32, "device": tokens.query.device}
        self.indptr = torch.zeros(len(table.indptr), **ints)
        self.indices = torch.zeros(table.total, **ints)
        self.last_page_len = torch.zeros(len(table.last_page_len), **ints)
        self.wrapper = self._wrapper(layout, tensor_cores)
        self.cache = _Cache(layout, table, tokens, packed=False)
        self.query, self.out = tokens.query, tokens.empty_output()
        self.cache.fill(table, tokens)
        self.plan(table, tokens)
        self.replay = _capture(self.wrapper, self.call)

    def _wrapper(self, layout, tensor_cores):
        import flashinfer.decode

        return flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper(
            _workspace(_device()),
            layout,
            use_cuda_graph=True,
            use_tensor_cores=tensor_cores,
            paged_kv_indptr_buffer=self.indptr,
            paged_kv_indices_buffer=self.indices,
            paged_kv_last_page_len_buffer=self.last_page_len,
        )

    def call(self):
        self.wrapper.run(self.query, self.cache.passed, k_scale=1.0, v_scale=1.0, out=self.out[:-1])

    def plan(self, table, tokens):
        _plan(self.wrapper, table, self._placed(table), tokens)

    def fast_decode_plan(self, table, tokens):
        """FlashInfer leaves the buffers of the lengths to the caller here."""
        self.indptr.copy_(table.indptr)
        self.last_page_len.copy_(table.last_page_len)
        _fast_plan(self.wrapper, table, self._placed(table), tokens)

    def _placed(self, table):
        """The page numbers, as the part of the buffer that vLLM has filled with them."""
        used = self.indices[: len(table.indices)]
        used.copy_(table.indices)
        return used

    def replay_with(self, table, tokens):
        """The output, poisoned before, for other inputs in the same memory."""
        self.query.copy_(tokens.query)
        self.cache.fill(table, tokens)
        self.out.fill_(float("nan"))
        self.replay()
        return self.out


def _check_not_offered(variant, head_size):
    """Right or refused, for a batch that is not split and one that is."""
    refused = _refusal_of_compiler(variant)
    if refused:
        return {"answer": f"refused: {refused}"}
    found = _Found(tensor_cores=False)
    answers = []
    for heads, lengths in itertools.product(HEADS[::-1], (SHORT, LONG)):
        tokens = _Tokens(heads, head_size, lengths, _generator(13))
        found.where = f"head size {head_size}, heads {heads}, lengths {lengths}"
        refused = _refusal_of_call(tokens, found)
        answers.append(f"refused: {refused}" if refused else "right")
    return {"answer": next((answer for answer in answers if answer != "right"), "right"), **found.measured()}


def _refusal_of_call(tokens, found):
    """What plan() or run() says when it refuses, or ""; raises AssertionError when it computes and is wrong."""
    wrapper = _wrapper("NHD", tensor_cores=False)
    table = _Table(tokens.lengths, 16, _pages(tokens.lengths, 16), tokens.generator)
    cache = _Cache("NHD", table, tokens, packed=False)
    cache.fill(table, tokens)
    out = tokens.empty_output()
    try:
        _plan(wrapper, table, table.indices, tokens)
        wrapper.run(tokens.query, cache.passed, k_scale=1.0, v_scale=1.0, out=out[:-1])
    except NO_REFUSALS:
        raise
    except Exception as error:
        if CUDA_FAULT.search(str(error)):
            raise
        _wait(out.device)  # raises when the GPU has faulted: that is no refusal
        return (str(error) or type(error).__name__).splitlines()[0][:200]
    _wait(out.device)
    found.compare(out, tokens)
    return ""


def _plan(wrapper, table, indices, tokens):
    """As vLLM calls it: lengths on the host, page numbers on the device."""
    import torch

    wrapper.plan(
        indptr=table.indptr,
        indices=indices,
        last_page_len=table.last_page_len,
        num_qo_heads=tokens.query_heads,
        num_kv_heads=tokens.kv_heads,
        head_dim=tokens.size,
        page_size=table.size,
        pos_encoding_mode="NONE",
        window_left=-1,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        sm_scale=tokens.scale,
        non_blocking=True,
    )


def _fast_plan(wrapper, table, indices, tokens):
    """What vLLM calls from its second step on when the batch is in a graph."""
    import flashinfer.decode
    import torch

    flashinfer.decode.fast_decode_plan(
        wrapper,
        indptr=table.indptr,
        indices=indices,
        last_page_len=table.last_page_len,
        num_qo_heads=tokens.query_heads,
        num_kv_heads=tokens.kv_heads,
        head_dim=tokens.size,
        page_size=table.size,
        pos_encoding_mode="NONE",
        window_left=-1,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        sm_scale=tokens.scale,
        non_blocking=True,
    )


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


@functools.cache
def _workspace(device):
    """FlashInfer wants it zeroed before its first use."""
    import torch

    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


@functools.cache
def _wrapper(layout, tensor_cores):
    import flashinfer.decode

    return flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper(
        _workspace(_device()), layout, use_tensor_cores=tensor_cores
    )


class _Table:
    """Which page holds what: shuffled page numbers, request by request; lengths on the host."""

    def __init__(self, lengths, size, total, generator):
        import torch

        self.size, self.total = size, total
        counts = [-(-length // size) for length in lengths]
        order = torch.randperm(total, generator=generator, device=generator.device)
        self.indices = order[: sum(counts)].to(torch.int32)
        self.indptr = torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)
        last = [(length - 1) % size + 1 if length else 0 for length in lengths]
        self.last_page_len = torch.tensor(last, dtype=torch.int32)
        begins = self.indptr[:-1].tolist()
        places = [begin * size + i for begin, length in zip(begins, lengths, strict=True) for i in range(length)]
        places = torch.tensor(places, device=generator.device)
        self.page, self.place = order[places // size], places % size  # of each token of all requests in turn


class _Tokens:
    """Queries, keys and values of a batch, and what attention makes of them."""

    def __init__(self, heads, size, lengths, generator):
        import torch

        self.generator, self.size, self.lengths = generator, size, lengths
        self.query_heads, self.kv_heads = heads
        self.scale = SCALE / math.sqrt(size)
        device = generator.device
        rows = len(lengths)
        fused = torch.full((rows, self.query_heads + 2 * self.kv_heads, size), float("nan"), device=device)
        fused[:, : self.query_heads] = torch.randn((rows, self.query_heads, size), generator=generator, device=device)
        self.query = fused.bfloat16()[:, : self.query_heads]
        shape = (sum(lengths), self.kv_heads, size)
        self.key = torch.randn(shape, generator=generator, device=device).bfloat16()
        value = torch.randn(shape, generator=generator, device=device)
        loud = torch.rand(len(value), generator=generator, device=device) < 1 / 50
        loud[[end - 1 for end in itertools.accumulate(lengths) if end]] = True
        self.value = (value * torch.where(loud, LOUD, 1.0)[:, None, None]).bfloat16()
        self.present = torch.tensor([length > 0 for length in lengths], device=device)
        self.expected, self.weight, self.lse = self._attention()

    def empty_output(self):
        """NaN, with one row more than there are requests."""
        import torch

        shape = (len(self.lengths) + 1, self.query_heads, self.size)
        return torch.full(shape, float("nan"), dtype=torch.bfloat16, device=self.query.device)

    def _attention(self):
        """Result, sum p|v| and log-sum-exp (base 2) in float64; zero where a request is empty."""
        import torch

        expected = torch.zeros(self.query.shape, dtype=torch.float64, device=self.query.device)
        weight, lse = torch.zeros_like(expected), torch.zeros_like(expected[:, :, 0])
        end = 0
        for row, length in enumerate(self.lengths):
            end += length
            if not length:
                continue
            key, value = self.key[end - length : end].double(), self.value[end - length : end].double()
            query = self.query[row].double().view(self.kv_heads, -1, self.size)
            scores = torch.einsum("hgd,nhd->hgn", query, key) * self.scale
            probabilities = scores.softmax(-1)
            expected[row] = torch.einsum("hgn,nhd->hgd", probabilities, value).reshape(self.query_heads, -1)
            weight[row] = torch.einsum("hgn,nhd->hgd", probabilities, value.abs()).reshape(self.query_heads, -1)
            lse[row] = scores.logsumexp(-1).reshape(-1) / math.log(2)
        return expected, weight, lse


class _Cache:
    """Pages, and views of them by token: [pages, page size, KV heads, head size]."""

    def __init__(self, layout, table, tokens, packed):
        import torch

        inner = (table.size, tokens.kv_heads) if layout == "NHD" else (tokens.kv_heads, table.size)
        shape = (table.total, *inner, 2 * tokens.size) if packed else (table.total, 2, *inner, tokens.size)
        self.memory = torch.empty(shape, dtype=torch.bfloat16, device=tokens.key.device)
        views = self.memory.split(tokens.size, dim=-1) if packed else (self.memory[:, 0], self.memory[:, 1])
        self.passed = views if packed else self.memory
        self.by_token = views if layout == "NHD" else tuple(view.transpose(1, 2) for view in views)

    def fill(self, table, tokens):
        """NaN everywhere, then the tokens at their places."""
        self.memory.fill_(float("nan"))
        for view, new in zip(self.by_token, (tokens.key, tokens.value), strict=True):
            view[table.page, table.place] = new


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self, tensor_cores):
        self.tensor_cores, self.where = tensor_cores, ""
        self.lse_tolerance = 1e-3 + (ROUNDOFF / math.log(2) if tensor_cores else 0.0)
        self.calls = self.elements = 0
        self.worst = self.worst_lse = 0.0
        self.empty = set()

    def compare(self, out, tokens):
        """Every element of every request that has tokens; the row behind the last must be as it was."""
        assert out[-1].isnan().all(), f"{self.where}: something was written behind the last request"
        rows = out[:-1].double()
        roundings = 2 if self.tensor_cores else 1
        bound = 1.02 * roundings * ROUNDOFF * (tokens.weight + tokens.expected.abs()) + 1e-5
        share = (rows - tokens.expected).abs() / bound
        wrong = ~(share <= 1) & tokens.present[:, None, None]  # NaN is wrong
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at {at} (request, "
                f"head, element): got {rows[at].item():.6g}, expected {tokens.expected[at].item():.6g} "
                f"within {bound[at].item():.2g}"
            )
        self.calls += 1
        self.elements += int(tokens.present.sum()) * rows[0].numel()
        self.worst = max(self.worst, share[tokens.present].max().item())
        self.empty |= {_described(row) for row in rows[~tokens.present]}

    def compare_lse(self, lse, tokens):
        difference = (lse[:-1].double() - tokens.lse).abs()
        wrong = ~(difference <= self.lse_tolerance) & tokens.present[:, None]
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} log-sum-exps are wrong, the first at {at} "
                f"(request, head): got {lse[at].item():.6g}, expected {tokens.lse[at].item():.6g} "
                f"within {self.lse_tolerance:.2g}"
            )
        self.worst_lse = max(self.worst_lse, difference[tokens.present].max().item() / self.lse_tolerance)

    def measured(self):
        return {
            "calls": self.calls,
            "elements": self.elements,
            "wrong_elements": 0,
            "worst_of_tolerance": self.worst,
            "worst_lse_of_tolerance": self.worst_lse,
            "empty_request": " or ".join(sorted(self.empty)),
        }


def _described(row):
    if row.isnan().any():
        return "NaN"
    return "other numbers" if row.any() else "zeros"


def _pages(lengths, size):
    return sum(-(-length // size) for length in lengths) + SPARE_PAGES


def _wait(device):
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


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
