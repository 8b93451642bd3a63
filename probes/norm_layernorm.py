"""Does flashinfer.norm.layernorm give (x - mean) / sqrt(variance + eps) * gamma + beta for every element?

Shapes: bf16, gamma and beta float32, as the kernel demands; rows of 111 to 16384 elements in batches of 1 to 989; 111
is odd and is read one element at a time, 111 and 500 are no multiple of the vector width, 16384 takes more than one
round of a block's threads. Rows differ in scale (0.001, 1 and 30), so that eps = 1e-5 decides the result of every third
row, and every second row has a mean three times as large as its deviation. The result must be a new tensor, and the
inputs must stay as they were.

Tolerance: half a unit in the last place of bf16 (8 significant bits: 2^-8 of the result), because the result is rounded
once, plus 2^-16 of (|normalised * gamma| + |beta| + |gamma| * mean|x| / deviation) for the float32 arithmetic (sums
over at most 64 elements per thread, trees of sums, an approximate reciprocal square root: about 2^-20; the last term is
the error of the mean). The reference is computed in float64 from the same rounded inputs.

Variants: bf16 calls what a user of this FlashInfer gets. From 0.6 that is the CuTe DSL kernel where nvidia-cutlass-dsl
is installed (`implementation` says which one ran); cuda_bf16 then calls the module that nvcc builds, as FlashInfer does
under FLASHINFER_USE_CUDA_NORM=1. graph_bf16 is captured in a CUDA graph and replayed three times with other inputs in
the same memory. spread_bf16 passes rows that lie twice as far apart: csrc/norm.cu asks only that the elements of a row
are neighbours, so they are accepted and have to be read where they are.

Upstream: include/flashinfer/norm.cuh, csrc/norm.cu; flashinfer/norm/kernels/layernorm.py (CuTe DSL)
"""

import functools
import math
import os
import sys

PROBE = {
    "id": "norm.layernorm",
    "feature": "norm.layernorm",
    "module": "norm",
    "requires": {"sm": ">=80", "flashinfer": ">=0.5", "symbols": ["flashinfer.norm.layernorm"]},
    "variants": {"bf16": {}, "graph_bf16": {}, "spread_bf16": {}, "cuda_bf16": {"flashinfer": ">=0.6"}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc", "cute-dsl"],
    "checks": "numbers",
}

EPS = 1e-5
HIDDEN_SIZES = (111, 500, 4096, 16384)  # few: the CuTe DSL compiles a kernel for each
SPREAD_HIDDEN_SIZES = (500, 4096)
BATCH_SIZES = (1, 19, 989)
GRAPH_SHAPES = ((1, 4096), (19, 500))
REPLAYS = 3
MOST_ELEMENTS = 2**21  # of one tensor: a larger batch is cut, so that little GPU memory is needed
ROW_SCALES = (1e-3, 1.0, 30.0)
ROW_MEANS = (0.0, 3.0)  # in units of the row's scale
GUARD = 64  # elements before and after an output; keeps it aligned to 128 bytes
ROUNDOFF = 2**-8  # of bf16, which has 8 significant bits
ARITHMETIC = 2**-16


def build(variant):
    if not (variant.startswith("cuda_") or _default_is_cuda()):
        return False  # the first call compiles the CuTe DSL kernel
    _cuda_module()
    return True


def run(variant):
    import torch

    generator = torch.Generator(_device()).manual_seed(23)
    errors = _Errors()
    for shape in _shapes(variant):
        case = _Case(shape, generator, spread=variant == "spread_bf16")
        if variant.startswith("graph_"):
            _check_graph(case, errors)
        else:
            _check_case(variant, case, errors)
    return {
        "implementation": _implementation(variant),
        "eps": EPS,
        "shapes": " ".join("x".join(map(str, shape)) for shape in _shapes(variant)),
        **errors.measured(),
    }


def _shapes(variant):
    if variant.startswith("graph_"):
        return GRAPH_SHAPES
    sizes = SPREAD_HIDDEN_SIZES if variant == "spread_bf16" else HIDDEN_SIZES
    return [(min(batch, MOST_ELEMENTS // hidden), hidden) for hidden in sizes for batch in BATCH_SIZES]


class _Case:
    """The inputs of one call, and what has to come out."""

    def __init__(self, shape, generator, *, spread):
        self.shape, self.generator = shape, generator
        rows, hidden = shape
        _, wide = _poisoned((rows, 2 * hidden if spread else hidden), generator.device)
        self.x = wide[:, :hidden].copy_(self._values())
        self.gamma, self.beta = self._float32(), self._float32()
        self.where = f"input {rows}x{hidden}, strides {self.x.stride()}"
        self.keep()

    def keep(self):
        self.kept = [tensor.clone() for tensor in (self.x, self.gamma, self.beta)]

    def renew(self):
        """Other inputs in the same memory."""
        self.x.copy_(self._values())
        self.gamma.copy_(self._float32())
        self.beta.copy_(self._float32())
        self.keep()

    def check(self, got, errors):
        """The result, and that the inputs are as they were."""
        import torch

        errors.check(got, *self._reference(), self.where)
        for name, tensor, kept in zip(
            ("input", "gamma", "beta"), (self.x, self.gamma, self.beta), self.kept, strict=True
        ):
            assert torch.equal(tensor, kept), f"{self.where}: {name} was changed"

    def _reference(self):
        """What is expected, and what float32 arithmetic errs in proportion to."""
        x, gamma, beta = (tensor.double() for tensor in self.kept)
        centred = x - x.mean(-1, keepdim=True)
        factor = (centred.square().mean(-1, keepdim=True) + EPS).rsqrt()
        scaled = centred * factor * gamma
        mean_error = gamma.abs() * factor * x.abs().mean(-1, keepdim=True)
        return scaled + beta, scaled.abs() + beta.abs() + mean_error

    def _values(self):
        """Normal random numbers, each row in its own scale and around its own mean."""
        import torch

        rows = torch.arange(self.shape[0], device=self.generator.device)
        scales = torch.tensor(ROW_SCALES, device=rows.device)[rows % len(ROW_SCALES)]
        means = torch.tensor(ROW_MEANS, device=rows.device)[rows % len(ROW_MEANS)]
        values = torch.randn(self.shape, generator=self.generator, device=rows.device)
        return (values + means[:, None]) * scales[:, None]

    def _float32(self):
        import torch

        return torch.randn(self.shape[1], generator=self.generator, device=self.generator.device)


def _check_case(variant, case, errors):
    import flashinfer.norm

    if not variant.startswith("cuda_"):
        result = flashinfer.norm.layernorm(case.x, case.gamma, case.beta, EPS)
        assert result.data_ptr() != case.x.data_ptr(), f"{case.where}: the result lies in the input"
        case.check(result, errors)
        return
    buffer, out = _poisoned(case.shape, case.x.device)
    _cuda_module().layernorm(out, case.x, case.gamma, case.beta, EPS)
    case.check(out, errors)
    out.fill_(math.nan)
    assert buffer.isnan().all(), f"{case.where}: something was written outside of out"


def _check_graph(case, errors):
    """What the call returned when captured holds the result of every replay."""
    import flashinfer.norm

    replay, result = _capture(lambda: flashinfer.norm.layernorm(case.x, case.gamma, case.beta, EPS))
    where = case.where
    for turn in range(REPLAYS):
        case.renew()
        result.fill_(math.nan)
        replay()
        case.where = f"{where}, replay {turn + 1} of a CUDA graph"
        case.check(result, errors)


def _capture(call):
    """A function that replays the call from a CUDA graph, and what the call returned when it was captured."""
    import torch

    if _device().type == "cpu":  # the stand-in has no graphs: every replay is a call
        result = call()
        return lambda: result.copy_(call()), result
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # torch wants the first calls to be outside of the capture
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph.replay, result


@functools.cache
def _cuda_module():
    """The module that nvcc builds, loaded."""
    from flashinfer.jit.norm import gen_norm_module

    return gen_norm_module().build_and_load()


def _default_is_cuda():
    """Whether layernorm() calls the nvcc module whatever the GPU: before 0.6, or without nvidia-cutlass-dsl."""
    import flashinfer.norm

    return getattr(flashinfer.norm, "_USE_CUDA_NORM", True)


def _implementation(variant):
    import flashinfer.norm

    if variant.startswith("cuda_") or _default_is_cuda():
        return "cuda"
    if hasattr(flashinfer.norm, "_use_cuda_norm"):  # from 0.7 it depends on the GPU, too
        return "cuda" if flashinfer.norm._use_cuda_norm(_device()) else "cute-dsl"  # noqa: SLF001 - nothing public tells
    return "cute-dsl"


def _poisoned(shape, device):
    """A buffer of NaN, and the tensor of this shape inside it."""
    import torch

    count = math.prod(shape)
    buffer = torch.full((GUARD + count + GUARD,), math.nan, dtype=torch.bfloat16, device=device)
    return buffer, buffer[GUARD : GUARD + count].view(shape)


class _Errors:
    """The largest errors so far."""

    def __init__(self):
        self.max_absolute = self.max_share = 0.0
        self.elements = 0

    def check(self, got, expected, magnitude, where):
        """Raises AssertionError when an element is off or NaN."""
        assert got.shape == expected.shape, f"{where}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
        error = (got.double() - expected).abs()
        allowed = ROUNDOFF * expected.abs() + ARITHMETIC * magnitude
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
        return {
            "max_abs_error": self.max_absolute,
            "tolerance_rel": ROUNDOFF,
            "share_of_tolerance": self.max_share,
            "elements": self.elements,
        }


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
