"""Does flashinfer.activation.silu_and_mul give silu(x[..., :d]) * x[..., d:] for every element?

Shapes: d from 8 (one vector) to 14336 in batches of 1 to 989 rows, and one input of three dimensions; 8200 leaves
one vector for the second round of a block's 1024 threads. Gates reach from -60 to 60, so that both ends of the sigmoid
are seen, and gate and up halves are drawn apart, so that exchanged halves show. The output is passed in and filled with
NaN, or left to FlashInfer; what lies around it must stay NaN and the input must stay as it was.

Variant bf16_d3420 asks about d = 3420 (Qwen2.5-VL), which is no multiple of the 8 elements of a vector: versions that
accept it and then load the upper half in vectors of 16 bytes stop with a misaligned address. It comes last because that
error leaves the process without a usable GPU. graph_bf16 is captured in a CUDA graph, with `out` given, and replayed
three times with other inputs in the same memory.

Tolerance: relative, half a unit in the last place of the output dtype (bf16 has 8 significant bits: 2^-8; fp16 has 11:
2^-11), because the result is rounded once, plus 2^-16 for float32 arithmetic with approximate exp and division (at most
2 + 1.2 * 60 units of 2^-23 in exp, 2 in the division: about 2^-17). Results that float32 flushes to zero may be off by
2^-100, and those of fp16 by one smallest subnormal, 2^-24. The reference is computed in float64.

Upstream: include/flashinfer/activation.cuh, flashinfer/jit/activation.py
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "activation.silu_and_mul",
    "feature": "activation.silu_and_mul",
    "module": "silu_and_mul",
    "requires": {"sm": ">=75", "flashinfer": ">=0.5", "symbols": ["flashinfer.activation.silu_and_mul"]},
    "variants": {"bf16": {"sm": ">=80"}, "fp16": {}, "graph_bf16": {"sm": ">=80"}, "bf16_d3420": {"sm": ">=80"}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 600,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

SIZES = (8, 64, 888, 8200, 14336)
BATCH_SIZES = (1, 19, 989)
REPLAYS = 3
GRAPH_SHAPES = ((1, 14336), (19, 888))
MOST_ELEMENTS = 2**21  # of one tensor: a larger batch is cut, so that little GPU memory is needed
GUARD = 64  # elements before and after an output; keeps it aligned to 128 bytes


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.activation import get_act_and_mul_module

    get_act_and_mul_module("silu")


def run(variant):
    import torch

    generator = torch.Generator(_device()).manual_seed(3)
    errors = _Errors(*_tolerance(_dtype(variant)))
    check = _check_graph if variant.startswith("graph_") else _check_case
    for shape in _shapes(variant):
        check(shape, _dtype(variant), generator, errors)
    return {"shapes": " ".join("x".join(map(str, shape)) for shape in _shapes(variant)), **errors.measured()}


def _shapes(variant):
    """Shapes of the output; the input's last dimension is twice as long."""
    if variant.startswith("graph_"):
        return GRAPH_SHAPES
    sizes = (3420,) if variant == "bf16_d3420" else SIZES
    batches = ((size, min(batch, MOST_ELEMENTS // size)) for size in sizes for batch in BATCH_SIZES)
    return [(batch, size) for size, batch in batches] + [(3, 5, sizes[-1])]


def _check_case(shape, dtype, generator, errors):
    import flashinfer.activation
    import torch

    x = _input(shape, dtype, generator)
    kept = x.clone()
    expected = _reference(x)
    where = f"input {tuple(x.shape)}"

    errors.check(flashinfer.activation.silu_and_mul(x), expected, f"{where}, no out")

    buffer, out = _poisoned(shape, dtype, x.device)
    result = flashinfer.activation.silu_and_mul(x, out=out)
    assert result.data_ptr() == out.data_ptr(), f"{where}: the result is not the tensor given as out"
    errors.check(out, expected, f"{where}, out given")
    out.fill_(math.nan)
    assert buffer.isnan().all(), f"{where}: something was written outside of out"
    assert torch.equal(x, kept), f"{where}: the input was changed"


def _check_graph(shape, dtype, generator, errors):
    import flashinfer.activation

    x = _input(shape, dtype, generator)
    buffer, out = _poisoned(shape, dtype, x.device)
    replay = _capture(lambda: flashinfer.activation.silu_and_mul(x, out=out))
    for turn in range(REPLAYS):
        x.copy_(_input(shape, dtype, generator))
        out.fill_(math.nan)
        replay()
        errors.check(out, _reference(x), f"replay {turn + 1} of a CUDA graph with new inputs, {tuple(x.shape)}")
    out.fill_(math.nan)
    assert buffer.isnan().all(), f"{tuple(x.shape)}: a replay wrote outside of out"


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.activation").stand_in_for_a_graph(call)
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


def _reference(x):
    gate, up = x.double().chunk(2, dim=-1)
    return gate * gate.sigmoid() * up


def _poisoned(shape, dtype, device):
    """A buffer of NaN, and the tensor of this shape inside it."""
    import torch

    count = math.prod(shape)
    buffer = torch.full((GUARD + count + GUARD,), math.nan, dtype=dtype, device=device)
    return buffer, buffer[GUARD : GUARD + count].view(shape)


def _input(shape, dtype, generator):
    """Gates of scale 4 with every 13th 15 times as large but within 60, ups of scale 1."""
    import torch

    gate = torch.randn(shape, generator=generator, device=generator.device) * 4
    gate.view(-1)[::13] *= 15
    up = torch.randn(shape, generator=generator, device=generator.device)
    return torch.cat((gate.clamp(-60, 60), up), dim=-1).to(dtype)


class _Errors:
    """The largest errors so far; a relative and an absolute part make up what is allowed."""

    def __init__(self, relative, absolute):
        self.relative, self.absolute = relative, absolute
        self.max_absolute = self.max_relative = self.max_share = 0.0
        self.elements = 0

    def check(self, got, expected, where):
        """Raises AssertionError when an element is off or NaN."""
        assert got.shape == expected.shape, f"{where}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
        error = (got.double() - expected).abs()
        share = error / (self.relative * expected.abs() + self.absolute)
        bad = ~(share <= 1)  # true for NaN as well
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(
                f"{where}: {int(bad.sum())} of {bad.numel()} elements are wrong, the first at {at}: "
                f"got {got[at].item():.6g}, expected {expected[at].item():.6g} within {self.relative:.3g} relative"
            )
        self.max_absolute = max(self.max_absolute, error.max().item())
        normal = expected.abs().clamp(min=self.absolute * 2**11)  # below it steps are absolute, not relative
        self.max_relative = max(self.max_relative, (error / normal).max().item())
        self.max_share = max(self.max_share, share.max().item())
        self.elements += bad.numel()

    def measured(self):
        return {
            "max_abs_error": self.max_absolute,
            "max_rel_error": self.max_relative,
            "tolerance_rel": self.relative,
            "share_of_tolerance": self.max_share,
            "elements": self.elements,
        }


def _tolerance(dtype):
    """Relative and absolute."""
    import torch

    if dtype == torch.bfloat16:
        return 2**-8 + 2**-16, 2.0**-100
    return 2**-11 + 2**-16, 2.0**-24


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
