"""Do FlashInfer's rotary embeddings rotate every pair of queries and keys by the angle of its position, in place?

Variants: cos_sin_* call apply_rope_with_cos_sin_cache_inplace as vLLM does (int64 positions, a float32 cache);
pos_ids_* call apply_rope_pos_ids_inplace, which computes the angles itself. neox pairs element i with
i + rotary_dim / 2, interleaved pairs 2 i with 2 i + 1, cos_sin_fp16 does both. graph_* are captured in a CUDA graph, as
in vLLM, and replayed three times with other queries, keys and positions in the same memory.

Shapes: bf16; 1 to 300 tokens at random positions up to 4095, and 12288 tokens, for which another kernel is launched;
heads of 64 to 512, of which the first 32 to 512 elements are rotated. Queries and keys are parts of a fused QKV tensor,
or of the tensors that hold them in DeepSeek's models with MLA: behind the part without position. What lies behind
rotary_dim and around the heads must stay bit for bit, so must the cache and the positions, and nothing is returned.
The cache is scaled by 1.25, as YaRN scales it.

Tolerance: half a unit in the last place of the dtype (bf16 has 8 significant bits: 2^-8; fp16 has 11: 2^-11) of the
result, because it is rounded once, plus (|x| + |its partner|) times what cos and sin are off by. That is 2^-22 with a
cache: two products and a sum in float32. Without, it is 2^-20 for the approximate sin and cos plus 2^-19 of the angle:
__powf gives the frequency by way of __log2f, off by 2 units in the last place of at most 18.9, and sin.approx reduces
its range in float32. For fp16 one smallest subnormal, 2^-24, is added. The reference is computed in float64.

Upstream: include/flashinfer/pos_enc.cuh, csrc/rope.cu;
vllm/model_executor/layers/rotary_embedding/deepseek_scaling_rope.py and common.py
"""

import itertools
import os
import sys

PROBE = {
    "id": "rope.apply",
    "feature": "rope.apply",
    "module": "rope",
    "requires": {
        "sm": ">=75",
        "flashinfer": ">=0.5",
        "symbols": ["flashinfer.rope.apply_rope_with_cos_sin_cache_inplace"],
    },
    "variants": {
        "cos_sin_neox": {"sm": ">=80"},
        "cos_sin_interleaved": {"sm": ">=80"},
        "cos_sin_fp16": {},
        "graph_cos_sin_neox": {"sm": ">=80"},
        "graph_cos_sin_interleaved": {"sm": ">=80"},
        "pos_ids_neox": {"sm": ">=80", "symbols": ["flashinfer.rope.apply_rope_pos_ids_inplace"]},
        "pos_ids_interleaved": {"sm": ">=80", "symbols": ["flashinfer.rope.apply_rope_pos_ids_inplace"]},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

# Tokens, query heads, key heads, head size, rotary_dim.
MLA_CASES = ((1, 16, 1, 64, 64), (37, 128, 1, 64, 64))
FUSED_CASES = (
    (1, 8, 2, 128, 128),
    (300, 5, 1, 64, 32),
    (37, 8, 8, 128, 64),
    (19, 3, 2, 256, 64),
    (7, 4, 1, 512, 512),
    (12288, 2, 1, 256, 256),
)
CACHED_CASES = ((300, 4, 1, 128, 96),)
GRAPH_CASES = (*MLA_CASES, (19, 8, 2, 128, 128))
WITHOUT_POSITION = 128  # elements of a query head before the part that is rotated, in DeepSeek's models
LATENT = 512  # elements before the key
POSITIONS = 4096
MAGNITUDE = 1.25
THETAS = ((1.0, 1e4), (4.0, 5e5))  # rope_scale and rope_theta; the first are FlashInfer's defaults
REPLAYS = 3


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.rope import get_rope_module

    get_rope_module()


def run(variant):
    import torch

    generator = torch.Generator(_device()).manual_seed(26)
    errors = _Errors()
    cases = _cases(variant)
    styles = (False, True) if variant == "cos_sin_fp16" else (variant.endswith("interleaved"),)
    for shape, interleaved in itertools.product(cases, styles):
        case = _Case(shape, _dtype(variant), interleaved, generator)
        if variant.startswith("graph_"):
            _check_graph(case, errors)
        elif variant.startswith("pos_ids"):
            _check_pos_ids(case, errors)
        else:
            case.check(_call(case), case.cached_rotation(), errors)
    return {"shapes": " ".join("x".join(map(str, shape)) for shape in cases), **errors.measured()}


def _cases(variant):
    if variant.startswith("graph_"):
        return GRAPH_CASES
    return (*MLA_CASES, *FUSED_CASES, *(() if variant.startswith("pos_ids") else CACHED_CASES))


def _call(case):
    """As vLLM calls it."""
    import flashinfer.rope

    return flashinfer.rope.apply_rope_with_cos_sin_cache_inplace(
        positions=case.positions,
        query=case.query,
        key=case.key,
        head_size=case.size,
        cos_sin_cache=case.cache,
        is_neox=not case.interleaved,
    )


def _check_pos_ids(case, errors):
    import flashinfer.rope

    for scale, theta in THETAS:
        case.renew(f"scale {scale}, theta {theta}")
        returned = flashinfer.rope.apply_rope_pos_ids_inplace(
            case.heads(case.query),
            case.heads(case.key),
            case.positions.int(),
            rotary_dim=case.rotary,
            interleave=case.interleaved,
            rope_scale=scale,
            rope_theta=theta,
        )
        case.check(returned, case.computed_rotation(scale, theta), errors)


def _check_graph(case, errors):
    replay = _capture(lambda: _call(case))
    for turn in range(REPLAYS):
        case.renew(f"replay {turn + 1} of a CUDA graph")
        replay()
        case.check(None, case.cached_rotation(), errors)


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


class _Case:
    """Queries and keys where a model holds them, their positions, and what has to become of them."""

    def __init__(self, shape, dtype, interleaved, generator):
        import torch

        self.tokens, query_heads, key_heads, self.size, self.rotary = shape
        self.interleaved, self.generator = interleaved, generator
        self.what = f"{shape}, interleaved {interleaved}, {dtype}"
        empty = {"dtype": dtype, "device": generator.device}
        if shape in MLA_CASES:
            queries = torch.empty((self.tokens, query_heads, WITHOUT_POSITION + self.size), **empty)
            keys = torch.empty((self.tokens, LATENT + self.size), **empty)
            self.memory = (queries, keys)
            self.query, self.key = queries[..., WITHOUT_POSITION:], keys[:, LATENT:].unsqueeze(1)
        else:
            fused = torch.empty((self.tokens, (query_heads + 2 * key_heads) * self.size), **empty)
            self.memory = (fused,)
            split = query_heads * self.size
            self.query, self.key = fused[:, :split], fused[:, split : split + key_heads * self.size]
        self.positions = torch.empty(self.tokens, dtype=torch.int64, device=generator.device)
        self.cache = _cache(self.rotary, generator)
        self.renew("")

    def renew(self, detail):
        """Other numbers and positions in the same memory."""
        import torch

        self.where = f"{self.what}, {detail}" if detail else self.what
        device = self.generator.device
        for memory in self.memory:
            memory.copy_(torch.randn(memory.shape, generator=self.generator, device=device))
        self.positions.copy_(torch.randint(POSITIONS, (self.tokens,), generator=self.generator, device=device))
        self.positions[-1] = POSITIONS - 1
        self.kept = [tensor.clone() for tensor in (*self.memory, self.positions, self.cache)]
        self.before = [self.heads(tensor).clone() for tensor in (self.query, self.key)]

    def heads(self, tensor):
        """The queries or keys as [tokens, heads, size], in their memory."""
        return tensor.view(self.tokens, -1, self.size)

    def cached_rotation(self):
        """Cosine and sine of each token and pair, and what they may be off by."""
        cos, sin = self.cache.double()[self.kept[-2]].chunk(2, dim=-1)
        return cos, sin, 2**-22

    def computed_rotation(self, scale, theta):
        import torch

        pairs = torch.arange(self.rotary // 2, dtype=torch.float64, device=self.generator.device)
        angles = self.kept[-2].double()[:, None] / scale * theta ** (-2 * pairs / self.rotary)
        return angles.cos(), angles.sin(), (angles * 2**-19 + 2**-20)[:, None]

    def check(self, returned, rotation, errors):
        """The rotated elements one by one, and everything else bit for bit."""
        import torch

        assert returned is None, f"{self.where}: returned {type(returned).__name__} instead of None"
        for name, tensor, before in zip(("query", "key"), (self.query, self.key), self.before, strict=True):
            self._check_pairs(self.heads(tensor), before, rotation, errors, name)
            self.heads(tensor)[..., : self.rotary] = before[..., : self.rotary]
        for tensor, kept in zip((*self.memory, self.positions, self.cache), self.kept, strict=True):
            assert torch.equal(tensor, kept), f"{self.where}: something was changed that is not to be rotated"

    def _check_pairs(self, got, before, rotation, errors, name):
        cos, sin, off = rotation
        half = self.rotary // 2
        first = slice(0, self.rotary, 2) if self.interleaved else slice(0, half)
        second = slice(1, self.rotary, 2) if self.interleaved else slice(half, self.rotary)
        a, b = before[..., first].double(), before[..., second].double()
        cos, sin = cos[:, None], sin[:, None]
        allowed = (a.abs() + b.abs()) * off
        errors.check(got[..., first], a * cos - b * sin, allowed, f"{self.where}: first of a pair, {name}")
        errors.check(got[..., second], b * cos + a * sin, allowed, f"{self.where}: second of a pair, {name}")


def _cache(rotary, generator):
    """Cosines and sines side by side for each position; behind them NaN, which a kernel may load but not use."""
    import torch

    pairs = torch.arange(rotary // 2, dtype=torch.float64, device=generator.device)
    angles = torch.arange(POSITIONS, device=generator.device)[:, None] * 1e4 ** (-2 * pairs / rotary)
    cache = torch.full((POSITIONS + 1, rotary), float("nan"), dtype=torch.float32, device=generator.device)
    cache[:POSITIONS] = torch.cat((angles.cos(), angles.sin()), dim=-1) * MAGNITUDE
    return cache[:POSITIONS]


class _Errors:
    """The largest errors so far."""

    def __init__(self):
        self.max_absolute = self.max_share = 0.0
        self.elements = 0

    def check(self, got, expected, allowed, where):
        """Raises AssertionError when an element is off or NaN; allowed comes on top of the rounding of the result."""
        relative, smallest = _rounding(got.dtype)
        allowed = allowed + relative * expected.abs() + smallest
        error = (got.double() - expected).abs()
        share = error / allowed
        bad = ~(share <= 1)  # true for NaN as well
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(
                f"{where}: {int(bad.sum())} of {bad.numel()} elements are wrong, the first at {at}: "
                f"got {got[at].item():.6g}, expected {expected[at].item():.6g} within {allowed[at].item():.3g}"
            )
        self.max_absolute = max(self.max_absolute, error.max().item())
        self.max_share = max(self.max_share, share.max().item())
        self.elements += bad.numel()

    def measured(self):
        return {"max_abs_error": self.max_absolute, "share_of_tolerance": self.max_share, "elements": self.elements}


def _rounding(dtype):
    """Half a unit in the last place, relative, and the smallest step near zero."""
    import torch

    return (2**-8, 2.0**-100) if dtype == torch.bfloat16 else (2**-11, 2.0**-24)


def _dtype(variant):
    import torch

    return torch.float16 if variant.endswith("fp16") else torch.bfloat16


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
