"""Does append_paged_mla_kv_cache copy every new latent and rotated key to its place in an MLA cache, and nothing else?

Shapes: latents of 512 and keys of 64 elements, the only ones that the kernel takes; 8 requests that append 1, 0, 0, 37,
64, 200, 3 and 2000 tokens to the 4, 9, 0, 0, 63, 65, 128 and 7 that they have (one appends nothing, one has nothing and
no page, one goes on in the middle of a page and over several more, one begins a page, and there are more tokens than
blocks are launched at once); pages of 1, 16 and 64 tokens in shuffled order with spare ones between them. Latents and
keys are slices of one tensor, as a model's projection gives them. The two caches are two tensors, and the two parts of
one tensor of 576 elements a token, as vLLM keeps them. bf16 and fp16, and fp8_page64 with FP8 (e4m3).

graph_page64 is captured in a CUDA graph and replayed three times: other tokens go to other places of
other pages.

Tolerance: none. The new rows must be copies bit for bit, and every other byte of the cache, which is filled with a
pattern before the call, must keep its pattern. The reference puts each token into a copy of the cache, by a list of
places that is made request by request.

Upstream: include/flashinfer/page.cuh, csrc/page.cu
"""

import itertools
import os
import sys

PROBE = {
    "id": "kv.append_mla",
    "feature": "kv.append_mla",
    "module": "page",
    "requires": {"sm": ">=80", "flashinfer": ">=0.5", "symbols": ["flashinfer.page.append_paged_mla_kv_cache"]},
    "variants": {"page64": {}, "page16": {}, "page1": {}, "graph_page64": {}, "fp8_page64": {"sm": ">=89"}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 600,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

PRESENT = (4, 9, 0, 0, 63, 65, 128, 7)  # tokens that each request has in the cache
APPENDED = (1, 0, 0, 37, 64, 200, 3, 2000)  # tokens that each request appends
GRAPH_SHIFTS = (0, 70, 3)  # tokens that each request, unless it is empty, has more in each replay
LATENT, KEY = 512, 64
BEFORE = 1536  # elements of a projected token before its latent: DeepSeek-V3's queries
SPARE_PAGES = 7
REPLAYS = len(GRAPH_SHIFTS)
PATTERN = 0x5A  # in every byte; an ordinary number in all the dtypes, which random normal numbers do not reach


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.page import get_page_module

    get_page_module()


def run(variant):
    import torch

    generator = torch.Generator(_device()).manual_seed(27)
    page_size = int(variant.partition("page")[2])
    dtypes = (torch.float8_e4m3fn,) if variant.startswith("fp8_") else (torch.bfloat16, torch.float16)
    checked = 0
    for dtype, together in itertools.product(dtypes, (False, True)):
        case = _Case(page_size, dtype, together, generator)
        checked += _check_graph(case) if variant.startswith("graph_") else case.check(case.append())
    return {
        "page_size": page_size,
        "appended_tokens": sum(APPENDED),
        "dtypes": " ".join(str(dtype).removeprefix("torch.") for dtype in dtypes),
        "bytes": checked,
        "wrong_bytes": 0,
    }


def _check_graph(case):
    replay = _capture(case.append)
    checked = 0
    for turn in range(REPLAYS):
        case.renew(GRAPH_SHIFTS[turn], f"replay {turn + 1} of a CUDA graph")
        replay()
        checked += case.check(None)
    return checked


def _capture(call):
    """A function that replays the call from a CUDA graph."""
    import torch

    if _device().type == "cpu":  # the stand-in has no graphs: every replay is a call
        call()
        return call
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # torch wants the first calls to be outside of the capture
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _ends(shift):
    """Tokens that each request has in the end."""
    return [old + new + shift if old + new else 0 for old, new in zip(PRESENT, APPENDED, strict=True)]


class _Case:
    """The tokens that are appended, the cache, and what it has to hold afterwards."""

    def __init__(self, page_size, dtype, together, generator):
        self.size, self.generator = page_size, generator
        self.what = f"page size {page_size}, {dtype}, caches in one tensor {together}"
        self.requests = self._ints([request for request, new in enumerate(APPENDED) for _ in range(new)])
        self.positions = self._ints([0] * len(self.requests))
        self.indptr = self._ints([0] * (len(APPENDED) + 1))
        self.last_page_len = self._ints([0] * len(APPENDED))
        most = sum(-(-end // page_size) for end in _ends(max(GRAPH_SHIFTS)))
        self.indices = self._ints([0] * most)
        self.total = most + SPARE_PAGES
        self.tokens = self._patterned((len(self.requests), BEFORE + LATENT + KEY), dtype)
        widths = (LATENT + KEY,) if together else (LATENT, KEY)
        self.memory = [self._patterned((self.total, page_size, width), dtype) for width in widths]
        first = self.memory[0]
        self.latents, self.keys = (first[..., :LATENT], first[..., LATENT:]) if together else self.memory
        self.renew(0, "")

    def _ints(self, values):
        import torch

        return torch.tensor(values, dtype=torch.int32, device=self.generator.device)

    def _patterned(self, shape, dtype):
        """A tensor of this dtype in which every byte is the pattern."""
        import torch

        wide = (*shape[:-1], shape[-1] * dtype.itemsize)
        return torch.full(wide, PATTERN, dtype=torch.uint8, device=self.generator.device).view(dtype)

    def renew(self, shift, detail):
        """Other tokens in the same memory, further on in their requests and on other pages, and an empty cache."""
        import torch

        self.where = f"{self.what}, {detail}" if detail else self.what
        device = self.generator.device
        self.tokens.copy_(torch.randn(self.tokens.shape, generator=self.generator, device=device))
        self.kept = self.tokens.clone()
        self.indices.copy_(torch.randperm(self.total, generator=self.generator, device=device)[: len(self.indices)])
        ends = _ends(shift)
        begins = [0, *itertools.accumulate(-(-end // self.size) for end in ends)]
        self.indptr.copy_(self._ints(begins))
        self.last_page_len.copy_(self._ints([(end - 1) % self.size + 1 if end else 0 for end in ends]))
        positions = [end - new + i for end, new in zip(ends, APPENDED, strict=True) for i in range(new)]
        self.positions.copy_(self._ints(positions))
        for memory in self.memory:
            memory.view(torch.uint8).fill_(PATTERN)
        self.expected = [memory.clone() for memory in self.memory]
        self._append_by_hand(begins, positions)

    def _append_by_hand(self, begins, positions):
        import torch

        indices = self.indices.tolist()
        tokens = zip(self.requests.tolist(), positions, strict=True)
        pages = [indices[begins[request] + position // self.size] for request, position in tokens]
        places = [position % self.size for position in positions]
        width = self.tokens.element_size()
        begin, middle = BEFORE * width, (BEFORE + LATENT) * width
        new = self.tokens.view(torch.uint8)
        if len(self.expected) == 1:
            self.expected[0].view(torch.uint8)[pages, places] = new[:, begin:]
        else:
            self.expected[0].view(torch.uint8)[pages, places] = new[:, begin:middle]
            self.expected[1].view(torch.uint8)[pages, places] = new[:, middle:]

    def append(self):
        import flashinfer.page

        return flashinfer.page.append_paged_mla_kv_cache(
            self.tokens[:, BEFORE : BEFORE + LATENT],
            self.tokens[:, BEFORE + LATENT :],
            self.requests,
            self.positions,
            self.latents,
            self.keys,
            self.indices,
            self.indptr,
            self.last_page_len,
        )

    def check(self, returned):
        """The number of bytes that were compared."""
        import torch

        assert returned is None, f"{self.where}: returned {type(returned).__name__} instead of None"
        same = torch.equal(self.tokens.view(torch.uint8), self.kept.view(torch.uint8))
        assert same, f"{self.where}: the tokens were changed"
        for memory, expected in zip(self.memory, self.expected, strict=True):
            different = memory.view(torch.uint8) != expected.view(torch.uint8)
            if different.any():
                *token, byte = different.nonzero()[0].tolist()
                at = (*token, byte // memory.element_size())
                raise AssertionError(
                    f"{self.where}: {int(different.sum())} of {different.numel()} bytes are wrong, the first in element"
                    f" {at} of {tuple(memory.shape)}: got {memory[at].item():.6g}, expected {expected[at].item():.6g}"
                )
        return sum(memory.view(torch.uint8).numel() for memory in self.memory)


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
