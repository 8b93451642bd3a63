"""Does append_paged_kv_cache copy every new key and value to its place in the paged cache, and nothing anywhere else?

Shapes: 7 requests that append 1, 0, 0, 37, 16, 100 and 3 tokens to the 4, 9, 0, 0, 15, 33 and 64 that they have (one
appends nothing, one has nothing and no page, one goes on in the middle of a page and over several more, one begins a
page); 1, 2, 5 and 8 KV heads of size 64, 128 or 256; pages of 1 or 16 tokens in shuffled order with spare ones between
them. Keys and values are slices of one fused QKV tensor, as in a model with grouped queries. The cache is passed as two
tensors and as one tensor of five dimensions.

Tolerance: none. The new rows must be copies bit for bit, and every other element of the cache, which is filled with a
pattern before the call, must keep its pattern. The reference puts one token at a time into a copy of the cache.

Upstream: include/flashinfer/page.cuh, csrc/page.cu
"""

import itertools
import os
import sys

PROBE = {
    "id": "kv.append_paged",
    "feature": "kv.append_paged",
    "module": "page",
    "requires": {"sm": ">=75", "flashinfer": ">=0.5", "symbols": ["flashinfer.page.append_paged_kv_cache"]},
    "variants": {"nhd_page16": {}, "hnd_page16": {}, "nhd_page1": {}, "hnd_page1": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 600,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

PRESENT = (4, 9, 0, 0, 15, 33, 64)  # tokens that each request has in the cache
APPENDED = (1, 0, 0, 37, 16, 100, 3)  # tokens that each request appends
HEADS = ((1, 64), (5, 128), (8, 128), (2, 256))  # KV heads and their size
QUERY_HEADS_PER_KV_HEAD = 2
PATTERN = 0x5A5A  # an ordinary number in bf16 and fp16 that random normal numbers do not reach


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.page import get_page_module

    get_page_module()


def run(variant):
    import torch

    layout, _, page_size = variant.partition("_page")
    generator = torch.Generator(_device()).manual_seed(4)
    checked = 0
    cases = list(itertools.product(HEADS, _dtypes(), (False, True)))
    for heads, dtype, stacked in cases:
        pages = _Pages(int(page_size), generator)
        checked += _check_case(layout.upper(), heads, dtype, stacked, pages)
    return {
        "layout": layout.upper(),
        "page_size": int(page_size),
        "appended_tokens": sum(APPENDED),
        "shapes": " ".join(f"{heads}x{size}" for heads, size in HEADS),
        "dtypes": " ".join(str(dtype).removeprefix("torch.") for dtype in _dtypes()),
        "elements": checked,
        "wrong_elements": 0,
    }


class _Pages:
    """Which page holds what: shuffled page numbers, request by request."""

    def __init__(self, size, generator):
        import torch

        self.size, self.generator = size, generator
        lengths = [present + appended for present, appended in zip(PRESENT, APPENDED, strict=True)]
        counts = [-(-length // size) for length in lengths]
        self.total = sum(counts) + 7  # 7 spare pages
        order = torch.randperm(self.total, generator=generator, device=generator.device).to(torch.int32)
        self.indices = order[: sum(counts)].contiguous()
        self.indptr = self._ints([0, *itertools.accumulate(counts)])
        self.last_page_len = self._ints([(length - 1) % size + 1 if length else 0 for length in lengths])
        self.requests = self._ints([r for r, appended in enumerate(APPENDED) for _ in range(appended)])
        self.positions = self._ints(
            [p for present, appended in zip(PRESENT, APPENDED, strict=True) for p in range(present, present + appended)]
        )

    def _ints(self, values):
        import torch

        return torch.tensor(values, dtype=torch.int32, device=self.generator.device)

    def slots(self):
        """For each appended token its page and its place in the page."""
        first = self.indptr.tolist()
        pages = self.indices.tolist()
        tokens = zip(self.requests.tolist(), self.positions.tolist(), strict=True)
        return [(pages[first[request] + position // self.size], position % self.size) for request, position in tokens]


def _check_case(layout, heads, dtype, stacked, pages):
    """The number of elements that were compared."""
    import flashinfer.page
    import torch

    key, value = _new_tokens(heads, dtype, pages.generator)
    cache = _poisoned_cache(layout, heads, dtype, stacked, pages)
    expected = cache.clone()
    _append_by_hand(_key_and_value(expected, stacked), key, value, layout, pages)

    returned = flashinfer.page.append_paged_kv_cache(
        key,
        value,
        pages.requests,
        pages.positions,
        cache if stacked else _key_and_value(cache, stacked),
        pages.indices,
        pages.indptr,
        pages.last_page_len,
        kv_layout=layout,
    )

    where = f"{layout}, page size {pages.size}, {heads[0]} heads of {heads[1]}, {dtype}, stacked {stacked}"
    assert returned is None, f"{where}: returned {type(returned).__name__} instead of None"
    different = cache.view(torch.int16) != expected.view(torch.int16)
    if different.any():
        at = tuple(different.nonzero()[0].tolist())
        raise AssertionError(
            f"{where}: {int(different.sum())} of {different.numel()} elements are wrong, the first at {at} "
            f"of {tuple(cache.shape)}: got {cache[at].item():.6g}, expected {expected[at].item():.6g}"
        )
    return different.numel()


def _new_tokens(heads, dtype, generator):
    """Keys and values as slices of one tensor [tokens, query, key and value heads, head size]."""
    import torch

    count, size = heads
    queries = count * QUERY_HEADS_PER_KV_HEAD
    shape = (sum(APPENDED), queries + 2 * count, size)
    fused = torch.randn(shape, generator=generator, device=generator.device).to(dtype)
    return fused[:, queries : queries + count], fused[:, queries + count :]


def _poisoned_cache(layout, heads, dtype, stacked, pages):
    """[pages, key and value, ...] when stacked, else [key and value, pages, ...]; every element is the pattern."""
    import torch

    count, size = heads
    outer = (pages.total, 2) if stacked else (2, pages.total)
    inner = (pages.size, count) if layout == "NHD" else (count, pages.size)
    shape = (*outer, *inner, size)
    return torch.full(shape, PATTERN, dtype=torch.int16, device=pages.generator.device).view(dtype)


def _key_and_value(cache, stacked):
    """The two caches, each [pages, ...], as views."""
    return (cache[:, 0], cache[:, 1]) if stacked else (cache[0], cache[1])


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
    for name in sys.argv[1:] or PROBE["variants"]:
        build(name)
        print(name, run(name))
