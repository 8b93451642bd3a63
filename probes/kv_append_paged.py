"""Does append_paged_kv_cache copy every new key and value to its place in the paged cache, and nothing anywhere else?

Shapes: 7 requests that append 1, 0, 0, 37, 16, 100 and 3 tokens to the 4, 9, 0, 0, 15, 33 and 64 that they have (one
appends nothing, one has nothing and no page, one goes on in the middle of a page and over several more, one begins a
page); 1, 2, 5 and 8 KV heads of size 64, 128 or 256; pages of 1 or 16 tokens in shuffled order with spare ones between
them. Keys and values are slices of one fused QKV tensor, as in a model with grouped queries. The cache is passed as two
tensors, as one tensor of five dimensions, and as the view of one layer of three that share their memory as vLLM lays it
out across layers (NHD: layers within a page; HND: layers within a head), whose neighbours must stay as they are.

graph_* is captured in a CUDA graph and replayed three times with other keys, values, lengths and page numbers in the
same memory.

Tolerance: none. The new rows must be copies bit for bit, and every other element of the cache, which is filled with a
pattern before the call, must keep its pattern. The reference puts one token at a time into a copy of the cache.

Upstream: include/flashinfer/page.cuh, csrc/page.cu
"""

import importlib
import itertools
import os
import sys

PROBE = {
    "id": "kv.append_paged",
    "feature": "kv.append_paged",
    "module": "page",
    "requires": {"sm": ">=75", "flashinfer": ">=0.5", "symbols": ["flashinfer.page.append_paged_kv_cache"]},
    "variants": {"nhd_page16": {}, "hnd_page16": {}, "nhd_page1": {}, "hnd_page1": {}, "graph_nhd_page16": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 600,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

PRESENT = (4, 9, 0, 0, 15, 33, 64)  # tokens that each request has in the cache
APPENDED = (1, 0, 0, 37, 16, 100, 3)  # tokens that each request appends
GRAPH_SHIFTS = (0, 5, 17)  # tokens that the requests have besides, replay by replay
GRAPH_HEADS = ((8, 128),)
FORMS = ("two tensors", "one tensor", "one layer of 3")  # how the cache is passed
LAYERS, LAYER = 3, 1
HEADS = ((1, 64), (5, 128), (8, 128), (2, 256))  # KV heads and their size
QUERY_HEADS_PER_KV_HEAD = 2
PATTERN = 0x5A5A  # an ordinary number in bf16 and fp16 that random normal numbers do not reach


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.page import get_page_module

    get_page_module()


def run(variant):
    import torch

    layout, _, page_size = variant.removeprefix("graph_").partition("_page")
    heads_and_sizes = GRAPH_HEADS if variant.startswith("graph_") else HEADS
    check = _check_graph if variant.startswith("graph_") else _check_case
    generator = torch.Generator(_device()).manual_seed(4)
    checked = 0
    for heads, dtype, form in itertools.product(heads_and_sizes, _dtypes(), FORMS):
        checked += check(_Case(layout.upper(), heads, dtype, form, _Pages(int(page_size), generator)))
    return {
        "layout": layout.upper(),
        "page_size": int(page_size),
        "appended_tokens": sum(APPENDED),
        "shapes": " ".join(f"{heads}x{size}" for heads, size in heads_and_sizes),
        "dtypes": " ".join(str(dtype).removeprefix("torch.") for dtype in _dtypes()),
        "elements": checked,
        "wrong_elements": 0,
    }


class _Pages:
    """Which page holds what: shuffled page numbers, request by request."""

    def __init__(self, size, generator):
        import torch

        self.size, self.generator = size, generator
        self.total = max(sum(self._counts(shift)) for shift in GRAPH_SHIFTS) + 7  # 7 spare pages
        self.indices, self.indptr, self.last_page_len, self.positions = self._of(0)
        self.requests = self._ints([r for r, appended in enumerate(APPENDED) for _ in range(appended)])
        spare = torch.zeros(self.total - len(self.indices), dtype=torch.int32, device=generator.device)
        self.indices = torch.cat((self.indices, spare))

    def renew(self, shift):
        """Other lengths and page numbers, in the same memory."""
        indices, *rest = self._of(shift)
        self.indices.zero_()[: len(indices)] = indices
        for mine, new in zip((self.indptr, self.last_page_len, self.positions), rest, strict=True):
            mine.copy_(new)

    def slots(self):
        """For each appended token its page and its place in the page."""
        first = self.indptr.tolist()
        pages = self.indices.tolist()
        tokens = zip(self.requests.tolist(), self.positions.tolist(), strict=True)
        return [(pages[first[request] + position // self.size], position % self.size) for request, position in tokens]

    def _of(self, shift):
        """Page numbers, where those of each request begin, the lengths of last pages, positions of new tokens."""
        import torch

        counts, lengths = self._counts(shift), _lengths(shift)
        order = torch.randperm(self.total, generator=self.generator, device=self.generator.device).to(torch.int32)
        ends = zip(lengths, APPENDED, strict=True)
        return (
            order[: sum(counts)].contiguous(),
            self._ints([0, *itertools.accumulate(counts)]),
            self._ints([(length - 1) % self.size + 1 if length else 0 for length in lengths]),
            self._ints([position for length, appended in ends for position in range(length - appended, length)]),
        )

    def _counts(self, shift):
        return [-(-length // self.size) for length in _lengths(shift)]

    def _ints(self, values):
        import torch

        return torch.tensor(values, dtype=torch.int32, device=self.generator.device)


def _lengths(shift):
    """Tokens that each request has in the end; one that has nothing stays without."""
    return [old + new + shift if old + new else 0 for old, new in zip(PRESENT, APPENDED, strict=True)]


def _check_case(case):
    """The number of elements that were compared."""
    returned = case.append()
    assert returned is None, f"{case.where}: returned {type(returned).__name__} instead of None"
    return case.compare()


def _check_graph(case):
    replay = _capture(case.append)
    checked, where = 0, case.where
    for turn, shift in enumerate(GRAPH_SHIFTS):
        case.where = f"replay {turn + 1} of a CUDA graph with new inputs, {where}"
        case.renew(shift)
        replay()
        checked += case.compare()
    return checked


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.page").stand_in_for_a_graph(call)
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


class _Case:
    """The tokens that are appended, the cache, and what it has to hold afterwards."""

    def __init__(self, layout, heads, dtype, form, pages):
        import torch

        count, size = heads
        self.layout, self.heads, self.form, self.pages = layout, heads, form, pages
        self.where = f"{layout}, page size {pages.size}, {count} heads of {size}, {dtype}, {form}"
        queries = count * QUERY_HEADS_PER_KV_HEAD
        shape = (sum(APPENDED), queries + 2 * count, size)
        self.fused = torch.empty(shape, dtype=dtype, device=pages.generator.device)
        self.key, self.value = self.fused[:, queries : queries + count], self.fused[:, queries + count :]
        self.memory = _memory(layout, heads, form, pages).view(dtype)
        self.fill()

    def fill(self):
        """New keys and values, and a cache of nothing but the pattern."""
        import torch

        self.memory.view(torch.int16).fill_(PATTERN)
        generator = self.pages.generator
        self.fused.copy_(torch.randn(self.fused.shape, generator=generator, device=generator.device))
        self.expected = self.memory.clone()
        _append_by_hand(self._halves(self.expected), self.key, self.value, self.layout, self.pages)

    def renew(self, shift):
        self.pages.renew(shift)
        self.fill()

    def append(self):
        import flashinfer.page

        pages = self.pages
        return flashinfer.page.append_paged_kv_cache(
            self.key,
            self.value,
            pages.requests,
            pages.positions,
            self._halves(self.memory) if self.form == "two tensors" else self._whole(self.memory),
            pages.indices,
            pages.indptr,
            pages.last_page_len,
            kv_layout=self.layout,
        )

    def compare(self):
        """The number of elements that were compared."""
        import torch

        different = self.memory.view(torch.int16) != self.expected.view(torch.int16)
        if different.any():
            at = tuple(different.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(different.sum())} of {different.numel()} elements are wrong, the first at {at} of "
                f"{tuple(self.memory.shape)}: got {self.memory[at].item():.6g}, expected {self.expected[at].item():.6g}"
            )
        return different.numel()

    def _whole(self, memory):
        """One tensor of the cache: [pages, key and value, ...]."""
        if self.form != "one layer of 3":
            return memory
        return memory[:, LAYER] if self.layout == "NHD" else memory[:, :, :, LAYER]

    def _halves(self, memory):
        """The two caches, each [pages, ...], as views."""
        if self.form == "two tensors":
            return memory[0], memory[1]
        return self._whole(memory).unbind(1)


def _memory(layout, heads, form, pages):
    """The cache as it lies in memory, 16 bits each."""
    import torch

    count, size = heads
    inner = (pages.size, count, size) if layout == "NHD" else (count, pages.size, size)
    shapes = {"two tensors": (2, pages.total, *inner), "one tensor": (pages.total, 2, *inner)}
    if layout == "NHD":
        shapes["one layer of 3"] = (pages.total, LAYERS, 2, *inner)
    else:
        shapes["one layer of 3"] = (pages.total, 2, count, LAYERS, pages.size, size)
    return torch.empty(shapes[form], dtype=torch.int16, device=pages.generator.device)


def _append_by_hand(caches, key, value, layout, pages):
    for cache, new in zip(caches, (key, value), strict=True):
        by_token = cache if layout == "NHD" else cache.transpose(1, 2)  # [pages, page size, heads, head size]
        for token, (page, place) in enumerate(pages.slots()):
            by_token[page, place] = new[token]


def _dtypes():
    import torch

    return torch.bfloat16, torch.float16


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
