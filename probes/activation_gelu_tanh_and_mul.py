"""Does flashinfer.activation.gelu_tanh_and_mul give gelu(x[..., :d]) * x[..., d:], with tanh, for every element?

Shapes: d from 8 (one vector) to 14336 in batches of 1 to 989 rows, and one input of three dimensions; 8200 leaves
one vector for the last round of a block's threads. Gates reach from -60 to 60, so that both ends are seen, and gate and
up halves are drawn apart, so that exchanged halves show. The output is passed in and filled with NaN, or left to
FlashInfer; what lies around it must stay NaN and the input must stay as it was. graph_bf16 is captured in a CUDA graph
and replayed three times with other inputs in the same memory.

Tolerance: half a unit in the last place of the output dtype (bf16 has 8 significant bits: 2^-8; fp16 has 11: 2^-11) of
the result, because it is rounded once, plus 2^-16 of it for the float32 arithmetic, plus 1.02 * 2^-12 of |gate * up|:
the kernel uses the instruction tanh.approx.f32, whose relative error is up to 2^-10.987, and multiplies by
0.5 * (1 + tanh). Results that float32 flushes to zero may be off by 2^-100, and those of fp16 by one smallest
subnormal, 2^-24. The reference is computed in float64.

That allows for as much as gelu with erf differs from gelu with tanh. But this difference keeps its sign over wide
ranges of the gate, and an approximation by pieces is taken to err to both sides: `part_of_erf` is the share of the
difference that is found in all errors together (least squares, each element in units of its tolerance; 0 is tanh, 1 is
erf), and has to stay within 0.5.

Upstream: include/flashinfer/activation.cuh, flashinfer/jit/activation.py; include/flashinfer/math.cuh
"""

import math
import os
import sys

PROBE = {
    "id": "activation.gelu_tanh_and_mul",
    "feature": "activation.gelu_tanh_and_mul",
    "module": "gelu_tanh_and_mul",
    "requires": {"sm": ">=75", "flashinfer": ">=0.5", "symbols": ["flashinfer.activation.gelu_tanh_and_mul"]},
    "variants": {"bf16": {"sm": ">=80"}, "fp16": {}, "graph_bf16": {"sm": ">=80"}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 600,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

SIZES = (8, 64, 888, 8200, 14336)
BATCH_SIZES = (1, 19, 989)
GRAPH_SHAPES = ((1, 4304), (19, 888))
REPLAYS = 3
MOST_ELEMENTS = 2**21  # of one tensor: a larger batch is cut, so that little GPU memory is needed
GUARD = 64  # elements before and after an output; keeps it aligned to 128 bytes
TANH_ERROR = 1.02 * 2**-12
MOST_OF_ERF = 0.5


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.activation import get_act_and_mul_module

    get_act_and_mul_module("gelu_tanh")


def run(variant):
    import torch

    generator = torch.Generator(_device()).manual_seed(25)
    errors = _Errors(*_tolerance(_dtype(variant)))
    for shape in _shapes(variant):
        if variant.startswith("graph_"):
            _check_graph(shape, _dtype(variant), generator, errors)
        else:
            _check_case(shape, _dtype(variant), generator, errors)
    errors.check_that_it_is_tanh()
    return {"shapes": " ".join("x".join(map(str, shape)) for shape in _shapes(variant)), **errors.measured()}


def _shapes(variant):
    """Shapes of the output; the input's last dimension is twice as long."""
    if variant.startswith("graph_"):
        return GRAPH_SHAPES
    batches = ((size, min(batch, MOST_ELEMENTS // size)) for size in SIZES for batch in BATCH_SIZES)
    return [(batch, size) for size, batch in batches] + [(3, 5, SIZES[-1])]


def _check_case(shape, dtype, generator, errors):
    import flashinfer.activation
    import torch

    x = _input(shape, dtype, generator)
    kept = x.clone()
    where = f"input {tuple(x.shape)}"

    errors.check(flashinfer.activation.gelu_tanh_and_mul(x), kept, f"{where}, no out")

    count = math.prod(shape)
    buffer = torch.full((GUARD + count + GUARD,), math.nan, dtype=dtype, device=x.device)
    out = buffer[GUARD : GUARD + count].view(shape)
    result = flashinfer.activation.gelu_tanh_and_mul(x, out=out)
    assert result.data_ptr() == out.data_ptr(), f"{where}: the result is not the tensor given as out"
    errors.check(out, kept, f"{where}, out given")
    out.fill_(math.nan)
    assert buffer.isnan().all(), f"{where}: something was written outside of out"
    assert torch.equal(x, kept), f"{where}: the input was changed"


def _check_graph(shape, dtype, generator, errors):
    import flashinfer.activation
    import torch

    x = _input(shape, dtype, generator)
    out = torch.empty(shape, dtype=dtype, device=x.device)
    replay = _capture(lambda: flashinfer.activation.gelu_tanh_and_mul(x, out))
    for turn in range(REPLAYS):
        renewed = _input(shape, dtype, generator)
        x.copy_(renewed)
        out.fill_(math.nan)
        replay()
        errors.check(out, renewed, f"input {tuple(x.shape)}, replay {turn + 1} of a CUDA graph")


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


def _input(shape, dtype, generator):
    """Gates of scale 2 with every 13th 15 times as large but within 60, ups of scale 1."""
    import torch

    gate = torch.randn(shape, generator=generator, device=generator.device) * 2
    gate.view(-1)[::13] *= 15
    up = torch.randn(shape, generator=generator, device=generator.device)
    return torch.cat((gate.clamp(-60, 60), up), dim=-1).to(dtype)


class _Errors:
    """The largest errors so far."""

    def __init__(self, relative, smallest):
        self.relative, self.smallest = relative, smallest
        self.max_absolute = self.max_share = 0.0
        self.elements = 0
        self.along_erf = self.erf = 0.0

    def check(self, got, x, where):
        """Raises AssertionError when an element is off or NaN."""
        gate, up = x.double().chunk(2, dim=-1)
        expected = _gelu_tanh(gate) * up
        assert got.shape == expected.shape, f"{where}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
        allowed = self.relative * expected.abs() + TANH_ERROR * (gate * up).abs() + self.smallest
        error = got.double() - expected
        share = error.abs() / allowed
        bad = ~(share <= 1)  # true for NaN as well
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(
                f"{where}: {int(bad.sum())} of {bad.numel()} elements are wrong, the first at {at}: "
                f"got {got[at].item():.6g}, expected {expected[at].item():.6g} within {allowed[at].item():.3g}"
            )
        self.max_absolute = max(self.max_absolute, error.abs().max().item())
        self.max_share = max(self.max_share, share.max().item())
        self.elements += bad.numel()
        towards_erf = (_gelu_erf(gate) * up - expected) / allowed
        self.along_erf += (error / allowed * towards_erf).sum().item()
        self.erf += towards_erf.square().sum().item()

    def measured(self):
        return {
            "max_abs_error": self.max_absolute,
            "tolerance_rel": self.relative,
            "share_of_tolerance": self.max_share,
            "elements": self.elements,
            "part_of_erf": self.along_erf / self.erf,
        }

    def check_that_it_is_tanh(self):
        part = self.along_erf / self.erf
        assert abs(part) <= MOST_OF_ERF, f"{part:.2f} of the difference between gelu with tanh and with erf is found"


def _gelu_tanh(gate):
    """Without 1 + tanh(u), which cancels: it is 2 * sigmoid(2 * u)."""
    return gate * (2 * math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)).sigmoid()


def _gelu_erf(gate):
    return gate * (-gate * math.sqrt(0.5)).erfc() / 2


def _tolerance(dtype):
    """What rounding to the dtype allows: relative, and near zero."""
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
