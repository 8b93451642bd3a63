"""Does XQA give the right attention when called itself, over an FP8 cache, and for several tokens of each request?

attention.decode_xqa asks for one query of each request over a bf16 cache, as vLLM decodes without more settings. Here
are the other calls that vLLM's FlashInfer backend makes of xqa_batch_decode_with_kv_cache: bf16 queries over an FP8
cache (from 0.25.1, --kv-cache-dtype fp8; another kernel on compute capability 9.0), four draft tokens of each request
with the causal mask that vLLM packs (from 0.33 on 9.0), and drafts of unlike lengths (ragged, also none). direct_* and
fp8_* call flashinfer.xqa as well, the former also with a window of 127 tokens to the left. Lengths, pages and mask are
tensors that the kernel reads, so there is no plan: graph_* is captured once and replayed three times with other ones in
the same memory. graph_fp8_* holds an empty request, as vLLM's padding of a graph does; its row is only reported.

Shapes: head size 128, 16 query heads over 2 KV heads, pages of 16 tokens; NHD and HND; one cache tensor of five
dimensions or each value beside its key; 1 to 3000 keys, in a table with room for 256 tokens a request (one thread
block) or for 4096 (split and merged). bf16 slots that are not to be read are NaN; FP8 ones 448, the largest number: the
tensor memory accelerator copies whole pages, so that the end of a last page is multiplied by zero. The first and the
last tokens of a request, and those at the edge of a window, have keys that every query of every head looks at, so that
one more or less shows in each head. FP8 scales are 0.5 for keys and 2 for values; queries are then numbers that FP8
holds, because the kernel rounds them to it.

Tolerance: bf16: 2^-8 (7 sum p|v| + |reference|) and 5 % more, as attention.decode_xqa derives it. FP8:
2^-4 is the unit roundoff of e4m3, to which the probabilities are rounded (not their sum): 2^-4 sum p|v| at most, and
with values of random sign no more than 7 * 2^-4 sqrt(sum p^2 v^2), but once in 10^10 (Hoeffding; the seed is fixed).
Besides, steps of 2^-10 / 448 of the largest probability where they are small, 2^-6 sum p|v| for sums of products in 22
bits, 2^-8 sum p|v| for parts and 2^-8 |reference| for the result in bf16. The reference is float64.

Upstream: csrc/xqa/mha.cu, csrc/xqa/mha_sm90.cu, flashinfer/xqa.py, flashinfer/decode.py;
vllm/v1/attention/backends/flashinfer.py
"""

import importlib
import inspect
import itertools
import math
import os
import sys

PROBE = {
    "id": "attention.xqa",
    "feature": "attention.xqa",
    "module": "xqa",
    "requires": {
        "sm": ">=90,!=110",
        "flashinfer": ">=0.5",
        "symbols": ["flashinfer.xqa", "flashinfer.decode.xqa_batch_decode_with_kv_cache"],
    },
    "variants": {
        "direct_d128": {},
        "fp8_d128": {},
        "graph_fp8_d128": {},
        "spec_d128": {"flashinfer": ">=0.6.7"},
        "graph_spec_d128": {"flashinfer": ">=0.6.7"},
        "ragged_d128": {"flashinfer": ">=0.7"},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

SIZE, QUERY_HEADS, KV_HEADS, PAGE = 128, 16, 2, 16
DRAFT = 4  # tokens
ONE_SHORT = tuple((1, keys) for keys in (1, 15, 16, 17, 130, 200))  # queries and keys of each request
ONE_LONG = tuple((1, keys) for keys in (1, 63, 64, 257, 1000, 3000))
SPEC_SHORT = tuple((DRAFT, keys) for keys in (4, 17, 66, 200))
SPEC_LONG = tuple((DRAFT, keys) for keys in (4, 66, 257, 1000, 3000))
RAGGED = ((4, 66), (1, 17), (0, 30), (3, 3), (2, 1000), (4, 130))
STEPS = ((130, 15, 17, 5, 1000, 3000), (3000, 257, 16, 130, 4, 15), (4, 64, 3000, 16, 17, 130))  # keys
CACHES = tuple(itertools.product(("NHD", "HND"), (False, True)))  # layout, and whether values lie beside keys
WINDOWS = {"direct_d128": (-1, 127)}
TILE, ROOM, MOST = 256, 4096, 4800  # tokens: of a block, that a request has room for, and of all of a batch
SPARE_PAGES = 7
WORKSPACE_BYTES = 32 * 1024 * 1024
SEMAPHORES = 8 * 1024 * 1024  # bytes of it
SCALE = 1.25 / math.sqrt(SIZE)  # not the usual one, so that a default in its place shows
FP8_SCALES = (0.5, 2.0)  # of keys and of values
EDGE_LOGIT = 0.5  # above the logarithm of the number of keys, so that an edge weighs about as much as they all do
ODDS = 7  # standard deviations
FP8_LARGEST = 0x7E  # 448


def build(variant):
    for window_left in WINDOWS.get(variant, (-1,)):
        _load(variant, window_left)


def run(variant):
    found, kind = _Found(), variant.removeprefix("graph_").partition("_")[0]
    if variant.startswith("graph_"):
        _check_graph(kind, found)
        return found.measured()
    batches = {"spec": (SPEC_SHORT, SPEC_LONG), "ragged": (RAGGED,)}.get(kind, (ONE_SHORT, ONE_LONG))
    for requests, window_left in itertools.product(batches, WINDOWS.get(variant, (-1,))):
        _check_eager(_Batch(requests, window_left, _generator(11), fp8=kind == "fp8"), kind, found)
    return found.measured()


def _load(variant, window_left):
    """Compile and load what a call of these shapes asks for."""
    import torch

    known = {
        "input_dtype": torch.bfloat16,
        "kv_cache_dtype": torch.float8_e4m3fn if "fp8" in variant else torch.bfloat16,
        "page_size": PAGE,
        "head_dim": SIZE,
        "head_group_ratio": QUERY_HEADS // KV_HEADS,
        "use_sliding_window": window_left >= 0,
        "output_dtype": torch.bfloat16,
        "q_seq_len": DRAFT if "spec" in variant or "ragged" in variant else 1,
        "use_ragged_q": "ragged" in variant,
    }
    # Its parameters became more with the versions, and it is cached by position. flashinfer.xqa is a function, too.
    load = importlib.import_module("flashinfer.xqa").get_xqa_module
    load(*[known[name] for name in inspect.signature(load).parameters if name in known])


def _check_eager(batch, kind, found):
    workspace = _workspace()
    room = TILE if max(keys for _, keys in batch.requests) <= TILE else ROOM
    for layout, beside in CACHES:
        pages = _Pages(batch, room, layout, beside)
        for call in _calls(kind):
            found.where = (
                f"{call.__name__[1:]}, {layout}, {'values beside keys' if beside else 'one tensor'}, "
                f"window_left {batch.window_left}, requests (queries, keys) {batch.requests}"
            )
            out = batch.empty_output()
            returned = call(batch, pages, workspace, out[:-1])
            same = returned is None or returned.data_ptr() == out.data_ptr()
            assert same, f"{found.where}: the result is not in out"
            found.compare(out, batch)


def _calls(kind):
    """The batch call, and flashinfer.xqa itself where it is asked for."""
    if kind in {"direct", "fp8"}:
        return (_call_xqa, _call_batch)
    return (_call_drafts if kind == "spec" else _call_ragged,)


def _check_graph(kind, found):
    fp8, call = kind == "fp8", _calls(kind)[-1]
    queries = 1 if fp8 else DRAFT
    empty = ((1, 0),) if fp8 else ()
    workspace, generator = _workspace(), _generator(12)
    for layout, beside in CACHES[::3]:
        batch = _Batch(tuple((queries, keys) for keys in range(4, 4 + len(STEPS[0]))) + empty, -1, generator, fp8=fp8)
        pages, out = _Pages(batch, ROOM, layout, beside), batch.empty_output()
        replay = _capture(lambda old=(batch, pages, workspace, out[:-1]): call(*old))
        for turn, step in enumerate(STEPS):
            new = _Batch(tuple((queries, keys) for keys in step) + empty, -1, generator, fp8=fp8)
            batch.query.copy_(new.query)
            pages.fill(new)
            out.fill_(math.nan)
            replay()
            found.where = f"{call.__name__[1:]}, {layout}, replay {turn + 1} of a CUDA graph with {new.requests}"
            found.compare(out, new)


def _call_batch(batch, pages, workspace, out):
    """As vLLM does for one query of each request."""
    import flashinfer.decode

    return flashinfer.decode.xqa_batch_decode_with_kv_cache(
        query=batch.query,
        kv_cache=pages.passed,
        workspace_buffer=workspace,
        block_tables=pages.table,
        seq_lens=pages.lengths,
        max_seq_len=pages.room,
        bmm1_scale=SCALE * batch.scales[0],
        bmm2_scale=batch.scales[1],
        window_left=batch.window_left,
        out=out,
        sinks=None,
        kv_layout=pages.layout,
        q_len_per_req=1,
    )


def _call_drafts(batch, pages, workspace, out, starts=None):
    """As vLLM 0.33 does for drafts; a name of its own, because mask came with 0.6 and the starts with 0.7."""
    import flashinfer.decode

    decode = flashinfer.decode.xqa_batch_decode_with_kv_cache
    more = {} if starts is None else {"q_cu_seq_lens": starts}
    return decode(
        query=batch.query,
        kv_cache=pages.passed,
        workspace_buffer=workspace,
        block_tables=pages.table,
        seq_lens=pages.lengths,
        max_seq_len=pages.room,
        bmm1_scale=SCALE,
        bmm2_scale=1.0,
        window_left=batch.window_left,
        out=out,
        sinks=None,
        kv_layout=pages.layout,
        q_len_per_req=DRAFT,
        mask=batch.mask if starts is None else batch.mask.flatten(0, 1),
        **more,
    )


def _call_ragged(batch, pages, workspace, out):
    return _call_drafts(batch, pages, workspace, out, batch.starts)


def _call_xqa(batch, pages, workspace, out):
    """The kernel's own wrapper, with views as the batch call makes them and semaphores apart."""
    import flashinfer

    key, value = pages.passed if isinstance(pages.passed, tuple) else pages.passed.unbind(1)
    return flashinfer.xqa(
        q=batch.query.unsqueeze(1),
        k_cache=key,
        v_cache=value,
        page_table=pages.table,
        seq_lens=pages.lengths.unsqueeze(1),
        output=out.unsqueeze(1),
        workspace_buffer=workspace[SEMAPHORES:],
        semaphores=workspace[:SEMAPHORES],
        num_kv_heads=KV_HEADS,
        page_size=PAGE,
        q_scale=SCALE * batch.scales[0] / batch.scales[1] * math.sqrt(SIZE),
        kv_scale=batch.scales[1],
        sliding_win_size=batch.window_left + 1,
        kv_layout=pages.layout,
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
    """Queries, keys and values of some requests, the mask of the drafts, and what attention makes of them."""

    def __init__(self, requests, window_left, generator, *, fp8):
        import torch

        self.requests, self.window_left, self.generator, self.fp8 = requests, window_left, generator, fp8
        self.scales = FP8_SCALES if fp8 else (1.0, 1.0)
        kept = torch.float8_e4m3fn if fp8 else torch.bfloat16

        def normal(tokens, heads):
            return torch.randn((tokens, heads, SIZE), generator=generator, device=generator.device)

        queries, keys = (list(side) for side in zip(*requests, strict=True))
        toward = normal(1, KV_HEADS).sign()  # of each KV head: what all of its queries have in common
        common = toward.repeat_interleave(QUERY_HEADS // KV_HEADS, dim=1)
        self.query = ((normal(sum(queries), QUERY_HEADS) + common) / math.sqrt(2)).to(kept).bfloat16()
        key, value = (normal(sum(keys), KV_HEADS) for _ in range(2))
        for end, (mine, length) in zip(itertools.accumulate(keys), requests, strict=True):
            edges = {0, *range(length - mine - 1, length)}
            edges |= {length - 129, length - 128} if window_left >= 0 else set()
            at = [end - length + place for place in edges if 0 <= place < length]
            logit = math.log(length or 1) + EDGE_LOGIT
            key[at] = key[at] / 4 + toward * (logit * math.sqrt(2) / (SIZE * SCALE))
        self.key, self.value = (
            (side / scale).clamp(-448, 448).to(kept) for side, scale in zip((key, value), self.scales, strict=True)
        )
        self.starts = torch.tensor([0, *itertools.accumulate(queries)], dtype=torch.int32, device=generator.device)
        self.mask = self._causal_mask(queries)
        self.present = torch.tensor([n > 0 for n in keys], device=generator.device).repeat_interleave(
            torch.tensor(queries, device=generator.device)
        )
        self.expected, self.bound = self._attention()

    def _causal_mask(self, queries):
        """Bit c of row r says whether draft token r sees draft token c; [requests, tokens, 2] where they are alike."""
        import torch

        rows = [[(2 << row) - 1] for mine in queries for row in range(mine)]
        bits = torch.tensor(rows, dtype=torch.int32, device=self.query.device).view(torch.uint16)
        return bits.view(len(queries), -1, 2) if len(set(queries)) == 1 else bits.view(1, -1, 2)

    def empty_output(self):
        """NaN, with one row more than there are queries."""
        import torch

        shape = (len(self.query) + 1, QUERY_HEADS, SIZE)
        return torch.full(shape, math.nan, dtype=torch.bfloat16, device=self.query.device)

    def _attention(self):
        """Result and tolerance in float64; zero where a request is empty."""
        import torch

        expected = torch.zeros(self.query.shape, dtype=torch.float64, device=self.query.device)
        bound, row, end = torch.zeros_like(expected), 0, 0
        keys, values = (side.double() * by for side, by in zip((self.key, self.value), self.scales, strict=True))
        for queries, length in self.requests:
            row, end = row + queries, end + length
            for back in range(queries if length else 0):  # from the last query
                last = end - back
                first = end - length if self.window_left < 0 else max(end - length, last - 1 - self.window_left)
                query = self.query[row - 1 - back].double().view(KV_HEADS, -1, SIZE)
                scores = torch.einsum("hgd,nhd->hgn", query, keys[first:last]) * SCALE
                result, error = self._one(scores, values[first:last])
                expected[row - 1 - back], bound[row - 1 - back] = result, error
        return expected, bound

    def _one(self, scores, value):
        """One query."""
        import torch

        p, size = scores.softmax(-1), value.abs()
        result, weight = (torch.einsum("hgn,nhd->hgd", p, side).flatten(0, 1) for side in (value, size))
        if not self.fp8:
            return result, 1.05 * 2**-8 * (7 * weight + result.abs()) + 1e-5
        steps = torch.einsum("hg,hd->hgd", p.amax(-1), size.sum(0)).flatten(0, 1) * 2**-10 / 448
        squares = torch.einsum("hgn,nhd->hgd", p**2, value**2).flatten(0, 1)
        rounded = 2**-4 * torch.minimum(weight, ODDS * squares.sqrt())
        return result, 1.05 * (rounded + (2**-6 + 2**-8) * weight + steps + 2**-8 * result.abs()) + 1e-5


class _Pages:
    """The cache, the table of pages and the lengths, in memory that stays."""

    def __init__(self, batch, room, layout, beside):
        import torch

        self.layout, self.room = layout, room
        rows, device, kept = len(batch.requests), batch.query.device, batch.key.dtype
        self.total = MOST // PAGE + rows + SPARE_PAGES
        inner = (PAGE, KV_HEADS) if layout == "NHD" else (KV_HEADS, PAGE)
        shape = (self.total, *inner, 2 * SIZE) if beside else (self.total, 2, *inner, SIZE)
        self.memory = torch.empty(shape, dtype=kept, device=device)
        views = self.memory.split(SIZE, dim=-1) if beside else self.memory.unbind(1)
        self.passed = views if beside else self.memory
        self.table = torch.empty((rows, room // PAGE), dtype=torch.int32, device=device)
        self.lengths = torch.empty(rows, dtype=torch.int32, device=device)
        self.fill(batch)

    def fill(self, batch):
        """The filler everywhere, then the tokens in pages of a new order; the last is nobody's and fills the table."""
        import torch

        device = self.memory.device
        order = torch.randperm(self.total, generator=batch.generator, device=device)
        keys = [length for _, length in batch.requests]
        counts = [-(-length // PAGE) for length in keys]
        self.table.fill_(order[-1])
        for row, end, count in zip(self.table, itertools.accumulate(counts), counts, strict=True):
            row[:count] = order[end - count : end]
        self.lengths.copy_(torch.tensor(keys))
        request = torch.arange(len(keys), device=device).repeat_interleave(self.lengths.long())
        place = torch.cat([torch.arange(length, device=device) for length in keys])
        page, slot = self.table[request, place // PAGE].long(), place % PAGE
        raw = self.memory.view(torch.uint8) if batch.fp8 else self.memory  # FP8 cannot be indexed everywhere
        raw.fill_(FP8_LARGEST if batch.fp8 else math.nan)
        views = raw.unbind(1) if raw.dim() == 5 else raw.split(SIZE, dim=-1)
        for view, new in zip(views, (batch.key, batch.value), strict=True):
            by_token = view if self.layout == "NHD" else view.transpose(1, 2)
            by_token[page, slot] = new.view(torch.uint8) if batch.fp8 else new


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.where = ""
        self.calls = self.elements = 0
        self.worst = 0.0
        self.empty = set()

    def compare(self, out, batch):
        """Every element of every request that has tokens; the row behind the last must be as it was."""
        assert out[-1].isnan().all(), f"{self.where}: something was written behind the last row"
        rows = out[:-1].double()
        share = (rows - batch.expected).abs() / batch.bound
        wrong = ~(share <= 1) & batch.present[:, None, None]  # NaN is wrong
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at {at} (row, "
                f"head, element): got {rows[at].item():.6g}, expected {batch.expected[at].item():.6g} "
                f"within {batch.bound[at].item():.2g}"
            )
        self.calls += 1
        self.elements += int(batch.present.sum()) * rows[0].numel()
        self.worst = max(self.worst, share[batch.present].max().item())
        self.empty |= {_described(row) for row in rows[~batch.present]}

    def measured(self):
        empty = {"empty_request": " or ".join(sorted(self.empty))} if self.empty else {}
        counts = {"calls": self.calls, "elements": self.elements, "wrong_elements": 0}
        return {**counts, "worst_of_tolerance": self.worst, **empty}


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
