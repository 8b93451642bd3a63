"""Does XQA give the right attention for one query each of a batch of requests, also in a CUDA graph?

It is what vLLM (0.25.1 and newer) decodes with inside its FlashInfer backend on compute capability 9.0, and on 12.x
since 0.28, without sinks for ordinary models: trtllm_batch_decode_with_kv_cache with backend "xqa", or since 0.28
xqa_batch_decode_with_kv_cache itself. Each case is called through both. Lengths and page table are tensors that the
kernel reads, so there is no plan: graph_* is captured once and replayed three times with other queries, keys, values,
lengths and pages in the same memory. The window is the one of gpt-oss (127 tokens to the left).

Shapes: bf16; page size, query heads and KV heads as in CASES (page size, group size and window make up a module); NHD
and HND; one cache tensor of five dimensions (vLLM 0.25) or each value beside its key (from 0.28); shuffled pages with
spare ones between them. The table has room for 256 tokens a request, which is one thread block and not split, or for
4096, which is split into tiles of 256 tokens and merged. A batch holds an empty request, as vLLM's padding of a graph
does: nothing is promised for its own row, which is only reported (it is 0/0 where requests are split). Every slot that
is not to be read is NaN, the rest of a last page too: the kernel copies zeros in place of tokens behind the end. Tokens
before the window are loaded and multiplied by zero, so they are those of the request. The first and the last token and
those at both sides of the window's edge have values so large that one more or less shows.

Tolerance: 2^-8 (k sum p|v| + m |reference|) element by element, 5 % more for second orders and 1e-5 for float32. 2^-8
is the unit roundoff of bf16, to which the kernel rounds: each probability (also what it divides by is the sum of
rounded ones, so m = 1), the factor that brings a tile of 64 tokens to a common maximum and its product with the
probabilities (k = 3 up to here), the result of each of the g = 256 / head size groups of warps, and each sum in adding
them up (g; 2 g in all, because the merge of the thread blocks does it again). That makes k = 3 + 2 g and m = 1. Up to
32 tokens there is one tile and one group: k = 1, m = 3. No right kernel exceeds it. The reference is float64.

Upstream: csrc/xqa/mha.cu, flashinfer/xqa.py, flashinfer/decode.py; vllm/v1/attention/backends/flashinfer.py
"""

import importlib
import inspect
import itertools
import math
import os
import sys

PROBE = {
    "id": "attention.decode_xqa",
    "feature": "attention.decode",
    "module": "xqa",
    "requires": {
        "sm": ">=90,!=110",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.decode.trtllm_batch_decode_with_kv_cache",
            "flashinfer.decode.xqa_batch_decode_with_kv_cache",
        ],
    },
    "variants": {"xqa_d64": {}, "xqa_d128": {}, "xqa_d256": {}, "graph_xqa_d128": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

CASES = {  # page size, query heads, KV heads, window_left
    "xqa_d64": ((16, 8, 1, -1), (16, 16, 2, -1)),
    "xqa_d128": ((16, 8, 1, -1), (16, 16, 2, -1), (32, 8, 2, -1), (16, 4, 4, -1), (16, 16, 2, 127)),
    "xqa_d256": ((16, 8, 1, -1), (16, 16, 2, -1)),
    "graph_xqa_d128": ((16, 16, 2, -1), (32, 8, 2, -1)),
}
CACHES = tuple(itertools.product(("NHD", "HND"), (False, True)))  # layout, and whether values lie beside keys
SHORT = (1, 15, 16, 17, 0, 130, 200)  # tokens that each request has in the cache
LONG = (1, 15, 16, 17, 0, 130, 257, 1000, 3000)
CAPTURED = (1, 2, 3, 4, 5, 0, 0)
STEPS = ((130, 15, 17, 1, 1000, 3000, 0), (3000, 257, 16, 130, 1, 15, 17), (1, 0, 3000, 16, 17, 130, 1000))
TILE = 256  # tokens; a longer table is split
ROOM = 4096
SPARE_PAGES = 7
WORKSPACE_BYTES = 32 * 1024 * 1024  # 8 MiB of semaphores; the parts of requests take less than 1 MiB
SCALE = 1.25  # of 1 / sqrt(head size), so that a default in place of what was passed shows
ROUNDOFF = 2**-8  # of bf16, which has 8 significant bits


def build(variant):
    for page_size, query_heads, kv_heads, window_left in CASES[variant]:
        _load(page_size, _head_size(variant), query_heads // kv_heads, window_left)


def run(variant):
    found = _Found()
    for page_size, query_heads, kv_heads, window_left in CASES[variant]:
        shape = (query_heads, kv_heads, _head_size(variant), window_left)
        found.case = f"{query_heads}/{kv_heads} heads, page size {page_size}, window_left {window_left}"
        (_check_graphs if variant.startswith("graph_") else _check_eager)(page_size, shape, found)
    return found.measured()


def _head_size(variant):
    return int(variant.partition("_d")[2])


def _load(page_size, head_size, group, window_left):
    """Compile and load what a call with these shapes asks for."""
    import torch

    known = {
        "input_dtype": torch.bfloat16,
        "kv_cache_dtype": torch.bfloat16,
        "page_size": page_size,
        "head_dim": head_size,
        "head_group_ratio": group,
        "use_sliding_window": window_left >= 0,
        "output_dtype": torch.bfloat16,
        "q_seq_len": 1,
    }
    # Its parameters became more with the versions, and it is cached by position. flashinfer.xqa is a function, too.
    load = importlib.import_module("flashinfer.xqa").get_xqa_module
    load(*[known[name] for name in inspect.signature(load).parameters if name in known])


def _check_eager(page_size, shape, found):
    workspace, generator = _workspace(), _generator(11)
    for lengths, room in ((SHORT, TILE), (LONG, ROOM)):
        batch = _Batch(lengths, shape, generator)
        for layout, beside in CACHES:
            pages = _Pages(batch, room, page_size, layout, beside)
            for call in (_call_trtllm, _call_xqa):
                found.where = f"{call.__name__[1:]}, {layout}, {'values beside keys' if beside else 'one tensor'}"
                out = batch.empty_output()
                returned = call(batch, pages, workspace, out[:-1])
                assert returned.data_ptr() == out.data_ptr(), f"{found.where}: the result is not in out"
                found.compare(out, batch, "split" if room > TILE else "whole")


def _check_graphs(page_size, shape, found):
    for call, (layout, beside) in zip((_call_trtllm, _call_xqa), CACHES[::3], strict=True):
        workspace, generator = _workspace(), _generator(12)
        batch = _Batch(CAPTURED, shape, generator)
        pages, out = _Pages(batch, ROOM, page_size, layout, beside), batch.empty_output()
        replay = _capture(lambda call=call, old=(batch, pages, workspace, out[:-1]): call(*old))
        for turn, lengths in enumerate(STEPS):
            new = _Batch(lengths, shape, generator)
            batch.query.copy_(new.query)
            pages.fill(new)
            out.fill_(math.nan)
            replay()
            found.where = f"{call.__name__[1:]}, {layout}, replay {turn + 1} of a CUDA graph with new {lengths}"
            found.compare(out, new, "split")


def _call_trtllm(batch, pages, workspace, out):
    """As vLLM 0.25.1 does on compute capability 9.0."""
    import flashinfer.decode

    return flashinfer.decode.trtllm_batch_decode_with_kv_cache(
        query=batch.query,
        kv_cache=pages.passed,
        workspace_buffer=workspace,
        block_tables=pages.table,
        seq_lens=pages.lengths,
        max_seq_len=pages.room,
        bmm1_scale=batch.scale,
        bmm2_scale=1.0,
        window_left=batch.window_left,
        sinks=None,
        o_sf_scale=None,
        out=out,
        kv_layout=pages.layout,
        backend="xqa",
        q_len_per_req=1,
    )


def _call_xqa(batch, pages, workspace, out):
    """As vLLM 0.33 does, and 0.28 on compute capability 12.x."""
    import flashinfer.decode

    return flashinfer.decode.xqa_batch_decode_with_kv_cache(
        query=batch.query,
        kv_cache=pages.passed,
        workspace_buffer=workspace,
        block_tables=pages.table,
        seq_lens=pages.lengths,
        max_seq_len=pages.room,
        bmm1_scale=batch.scale,
        bmm2_scale=1.0,
        window_left=batch.window_left,
        out=out,
        sinks=None,
        kv_layout=pages.layout,
        q_len_per_req=1,
    )


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        call()
        return call
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
    """Queries, keys and values of some requests, and what attention makes of them."""

    def __init__(self, lengths, shape, generator):
        import torch

        self.lengths, self.generator = lengths, generator
        self.query_heads, self.kv_heads, self.size, self.window_left = shape
        self.scale = SCALE / math.sqrt(self.size)

        def normal(tokens, heads):
            return torch.randn((tokens, heads, self.size), generator=generator, device=generator.device)

        self.query = normal(len(lengths), self.query_heads).bfloat16()
        self.key = normal(sum(lengths), self.kv_heads).bfloat16()
        value = normal(sum(lengths), self.kv_heads)
        for begin, length in zip(itertools.accumulate((0, *lengths)), lengths, strict=False):
            loud = {at for at in (0, length - 129, length - 128, length - 1) if 0 <= at < length}
            value[[begin + at for at in loud]] *= max(4, length / 8)
        self.value = value.bfloat16()
        self.present = torch.tensor([length > 0 for length in lengths], device=generator.device)
        self.expected, self.bound = self._attention()

    def empty_output(self):
        """NaN, with one row more than there are requests."""
        import torch

        shape = (len(self.lengths) + 1, self.query_heads, self.size)
        return torch.full(shape, math.nan, dtype=torch.bfloat16, device=self.query.device)

    def _attention(self):
        """Result and tolerance in float64; zero where a request is empty."""
        import torch

        expected = torch.zeros(self.query.shape, dtype=torch.float64, device=self.query.device)
        bound, end = torch.zeros_like(expected), 0
        for row, length in enumerate(self.lengths):
            end += length
            if not length:
                continue
            first = end - length if self.window_left < 0 else max(end - length, end - 1 - self.window_left)
            key, value = self.key[first:end].double(), self.value[first:end].double()
            query = self.query[row].double().view(self.kv_heads, -1, self.size)
            weights = (torch.einsum("hgd,nhd->hgn", query, key) * self.scale).softmax(-1)
            result, size = (torch.einsum("hgn,nhd->hgd", weights, v).flatten(0, 1) for v in (value, value.abs()))
            k, m = (1, 3) if length <= 32 else (3 + 2 * (TILE // self.size), 1)
            expected[row], bound[row] = result, 1.05 * ROUNDOFF * (k * size + m * result.abs()) + 1e-5
        return expected, bound


class _Pages:
    """The cache, the table of pages and the lengths, in memory that stays."""

    def __init__(self, batch, room, page_size, layout, beside):
        import torch

        self.layout, self.page_size, self.room = layout, page_size, room
        rows, device = len(batch.lengths), batch.query.device
        self.total = max(map(sum, (LONG, *STEPS))) // page_size + rows + SPARE_PAGES
        inner = (page_size, batch.kv_heads) if layout == "NHD" else (batch.kv_heads, page_size)
        shape = (self.total, *inner, 2 * batch.size) if beside else (self.total, 2, *inner, batch.size)
        self.memory = torch.empty(shape, dtype=torch.bfloat16, device=device)
        views = self.memory.split(batch.size, dim=-1) if beside else self.memory.unbind(1)
        self.passed = views if beside else self.memory
        self.by_token = views if layout == "NHD" else tuple(view.transpose(1, 2) for view in views)
        self.table = torch.empty((rows, room // page_size), dtype=torch.int32, device=device)
        self.lengths = torch.empty(rows, dtype=torch.int32, device=device)
        self.fill(batch)

    def fill(self, batch):
        """NaN everywhere, then the tokens in pages of a new order; the last of it is nobody's and fills the table."""
        import torch

        device = self.memory.device
        order = torch.randperm(self.total, generator=batch.generator, device=device)
        counts = [-(-length // self.page_size) for length in batch.lengths]
        self.table.fill_(order[-1])
        for row, end, count in zip(self.table, itertools.accumulate(counts), counts, strict=True):
            row[:count] = order[end - count : end]
        self.lengths.copy_(torch.tensor(batch.lengths))
        request = torch.arange(len(batch.lengths), device=device).repeat_interleave(self.lengths.long())
        place = torch.cat([torch.arange(length, device=device) for length in batch.lengths])
        page = self.table[request, place // self.page_size].long()
        self.memory.fill_(math.nan)
        for view, new in zip(self.by_token, (batch.key, batch.value), strict=True):
            view[page, place % self.page_size] = new


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.case = self.where = ""
        self.calls = self.elements = 0
        self.worst = 0.0
        self.empty = set()

    def compare(self, out, batch, how):
        """Every element of every request that has tokens; the row behind the last must be as it was."""
        where = f"head size {batch.size}, {self.case}, {self.where}"
        assert out[-1].isnan().all(), f"{where}: something was written behind the last request"
        rows = out[:-1].double()
        share = (rows - batch.expected).abs() / batch.bound
        wrong = ~(share <= 1) & batch.present[:, None, None]  # NaN is wrong
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            lengths = sorted({batch.lengths[row] for row in wrong.nonzero()[:, 0].tolist()})
            raise AssertionError(
                f"{where}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, in requests of {lengths} tokens, "
                f"the first at {at} (request, head, element): got {rows[at].item():.6g}, expected "
                f"{batch.expected[at].item():.6g} within {batch.bound[at].item():.2g}"
            )
        self.calls += 1
        self.elements += int(batch.present.sum()) * rows[0].numel()
        self.worst = max(self.worst, share[batch.present].max().item())
        self.empty |= {f"{how}: {_described(row)}" for row in rows[~batch.present]}

    def measured(self):
        return {
            "calls": self.calls,
            "elements": self.elements,
            "wrong_elements": 0,
            "worst_of_tolerance": self.worst,
            "empty_request": ", ".join(sorted(self.empty)),
        }


def _described(row):
    if row.isnan().any():
        return "NaN"
    return "other numbers" if row.any() else "zeros"


def _workspace():
    """Its semaphores must be zero before the first call; each call leaves them so."""
    import torch

    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=_device())


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
