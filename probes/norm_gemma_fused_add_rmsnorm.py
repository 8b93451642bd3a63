"""Does flashinfer.norm.gemma_fused_add_rmsnorm add the residual and normalise the sum with weight + 1, both in place?

vLLM relies on all of it: afterwards `residual` holds input + residual, `input` holds that sum / sqrt(mean(sum^2) + eps)
* (weight + 1), both in the tensors that were passed, nothing is returned and the weight is untouched.

Shapes: rows of 111 to 16384 elements in batches of 1 to 989; 111 and 500 are no multiple of the kernels' vector
width, 16384 takes more than one round of a block's threads. Rows differ in scale (0.001, 1 and 30), so that eps = 1e-5
decides the result of every third row. Weights are normal random numbers, some of them near -1, where weight + 1 is
small. Rows are dense, or lie twice as far apart; what lies between and around them must stay NaN.

Tolerance, relative: half a unit in the last place of the dtype for the residual, which is rounded once (bf16 has 8
significant bits: 2^-8; fp16 has 11: 2^-11). Twice that for the normalised sum, because a kernel may normalise the sum
either before or after rounding it to the residual's dtype. Plus 2^-16 for the float32 arithmetic (a sum over at most 64
elements per thread, a tree of sums, an approximate reciprocal square root, weight + 1: about 2^-20). For fp16 one
smallest subnormal, 2^-24, is added, and for the normalised sum also what the normalisation makes of it. The reference
is computed in float64 from the same rounded inputs.

Variants: fused_add_bf16 and fused_add_fp16 call what a user of this FlashInfer gets. From 0.6 that is the CuTe DSL
kernel where nvidia-cutlass-dsl is installed (`implementation` says which one ran); cuda_fused_add_* then call the
module that nvcc builds, as FlashInfer does under FLASHINFER_USE_CUDA_NORM=1. graph_fused_add_bf16 is captured in a CUDA
graph, as in vLLM, and replayed three times with other inputs in the same memory.

Upstream: include/flashinfer/norm.cuh, csrc/norm.cu; flashinfer/norm/kernels/fused_add_rmsnorm.py (CuTe DSL);
vllm/models/minimax_m3/nvidia/model.py
"""

import functools
import math
import os
import sys

PROBE = {
    "id": "norm.gemma_fused_add_rmsnorm",
    "feature": "norm.gemma_rmsnorm",
    "module": "norm",
    "requires": {"sm": ">=75", "flashinfer": ">=0.5", "symbols": ["flashinfer.norm.gemma_fused_add_rmsnorm"]},
    "variants": {
        "fused_add_bf16": {"sm": ">=80"},
        "fused_add_fp16": {},
        "graph_fused_add_bf16": {"sm": ">=80"},
        "cuda_fused_add_bf16": {"sm": ">=80", "flashinfer": ">=0.6"},
        "cuda_fused_add_fp16": {"flashinfer": ">=0.6"},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc", "cute-dsl"],
    "checks": "numbers",
}

EPS = 1e-5
HIDDEN_SIZES = (111, 500, 4096, 16384)  # few: the CuTe DSL compiles a kernel for each
SPREAD_HIDDEN_SIZES = (500, 4096)  # also tried with rows that lie apart
BATCH_SIZES = (1, 19, 989)
MOST_ELEMENTS = 2**21  # of one tensor: a larger batch is cut, so that little GPU memory is needed
GRAPH_SHAPES = ((1, 4096), (19, 500))
REPLAYS = 3
ROW_SCALES = (1e-3, 1.0, 30.0)
GUARD = 64  # elements before and after a tensor; keeps it aligned to 128 bytes


def build(variant):
    if not (variant.startswith("cuda_") or _default_is_cuda()):
        return False  # the first call compiles the CuTe DSL kernel
    _cuda_module()
    return True


def run(variant):
    import torch

    generator = torch.Generator(_device()).manual_seed(22)
    rounding, smallest = _rounding(_dtype(variant))
    sums = _Errors(rounding + 2**-16, smallest)
    normalised = _Errors(2 * rounding + 2**-16, smallest)
    cases = _cases(variant)
    for shape, spread in cases:
        case = _Case(shape, spread, _dtype(variant), generator)
        if variant.startswith("graph_"):
            _check_graph(case, normalised, sums)
        else:
            case.check(_call(variant, case.x, case.residual, case.weight), normalised, sums)
    return {
        "implementation": _implementation(variant),
        "eps": EPS,
        "shapes": " ".join("x".join(map(str, shape)) + "/spread" * spread for shape, spread in cases),
        **normalised.measured(""),
        **sums.measured("residual_"),
    }


def _cases(variant):
    """Shapes, each with whether its rows lie apart."""
    if variant.startswith("graph_"):
        return [(shape, False) for shape in GRAPH_SHAPES]
    dense = [((batch, hidden), False) for hidden in HIDDEN_SIZES for batch in _batches(hidden)]
    return dense + [
        ((batch, hidden), True) for hidden in SPREAD_HIDDEN_SIZES for batch in _batches(hidden) if batch > 1
    ]


def _batches(hidden):
    return [min(batch, MOST_ELEMENTS // hidden) for batch in BATCH_SIZES]


class _Case:
    """The tensors of one call, and what they have to hold after it."""

    def __init__(self, shape, spread, dtype, generator):
        self.shape, self.spread, self.dtype, self.generator = shape, spread, dtype, generator
        self.x_buffer, self.x = _placed(_random(shape, generator), spread, dtype)
        self.residual_buffer, self.residual = _placed(_random(shape, generator), spread, dtype)
        self.weight = _random_weight(shape[1], dtype, generator)
        self.where = f"{tuple(shape)}, strides {self.x.stride()}"
        self.expect()

    def expect(self):
        self.kept_weight = self.weight.clone()
        self.total = self.x.double() + self.residual.double()
        mean = self.total.square().mean(-1, keepdim=True)
        self.factor = (mean + EPS).rsqrt() * (self.weight.double() + 1)

    def renew(self):
        """Other inputs in the same memory."""
        self.x.copy_(_random(self.shape, self.generator))
        self.residual.copy_(_random(self.shape, self.generator))
        self.weight.copy_(_random_weight(self.shape[1], self.dtype, self.generator))
        self.expect()

    def check(self, returned, normalised, sums):
        import torch

        assert returned is None, f"{self.where}: returned {type(returned).__name__} instead of None"
        sums.check(self.residual, self.total, f"{self.where}: residual")
        normalised.check(self.x, self.total * self.factor, f"{self.where}: input", 1 + self.factor.abs())
        assert torch.equal(self.weight, self.kept_weight), f"{self.where}: the weight was changed"
        for buffer, tensor in ((self.x_buffer, self.x), (self.residual_buffer, self.residual)):
            tensor.fill_(math.nan)
            assert buffer.isnan().all(), f"{self.where}: something was written outside of the rows"


def _check_graph(case, normalised, sums):
    """The call that vLLM makes, in a CUDA graph."""
    import flashinfer.norm

    replay = _capture(lambda: flashinfer.norm.gemma_fused_add_rmsnorm(case.x, case.residual, case.weight, EPS))
    where = case.where
    for turn in range(REPLAYS):
        case.renew()
        case.where = f"{where}, replay {turn + 1} of a CUDA graph"
        replay()
        case.check(None, normalised, sums)


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


def _call(variant, x, residual, weight):
    """The call that the variant is about."""
    import flashinfer.norm
    from flashinfer.utils import device_support_pdl

    if variant.startswith("cuda_"):
        return _cuda_module().gemma_fused_add_rmsnorm(x, residual, weight, EPS, device_support_pdl(x.device))
    return flashinfer.norm.gemma_fused_add_rmsnorm(x, residual, weight, EPS)


@functools.cache
def _cuda_module():
    """The module that nvcc builds, loaded."""
    from flashinfer.jit.norm import gen_norm_module

    return gen_norm_module().build_and_load()


def _default_is_cuda():
    """Whether the nvcc module is called whatever the GPU: before 0.6, or without nvidia-cutlass-dsl."""
    import flashinfer.norm

    return getattr(flashinfer.norm, "_USE_CUDA_NORM", True)


def _implementation(variant):
    import flashinfer.norm

    if variant.startswith("cuda_") or _default_is_cuda():
        return "cuda"
    if hasattr(flashinfer.norm, "_use_cuda_norm"):  # from 0.7 it depends on the GPU, too
        return "cuda" if flashinfer.norm._use_cuda_norm(_device()) else "cute-dsl"  # noqa: SLF001 - nothing public tells
    return "cute-dsl"


def _random(shape, generator):
    """Normal random numbers, each row in its own scale."""
    import torch

    device = generator.device
    scales = torch.tensor(ROW_SCALES, device=device)[torch.arange(shape[0], device=device) % len(ROW_SCALES)]
    return torch.randn(shape, generator=generator, device=device) * scales[:, None]


def _random_weight(hidden, dtype, generator):
    """Normal random numbers, every fifth near -1."""
    import torch

    weight = torch.randn(hidden, generator=generator, device=generator.device)
    weight[3::5] = weight[3::5] / 64 - 1
    return weight.to(dtype)


def _placed(values, spread, dtype):
    """A buffer of NaN, and the values inside it; spread: their rows lie twice as far apart."""
    import torch

    rows, hidden = values.shape
    width = hidden * 2 if spread else hidden
    buffer = torch.full((GUARD + rows * width + GUARD,), math.nan, dtype=dtype, device=values.device)
    return buffer, buffer[GUARD : GUARD + rows * width].view(rows, width)[:, :hidden].copy_(values)


class _Errors:
    """The largest errors so far; a relative and an absolute part make up what is allowed."""

    def __init__(self, relative, absolute):
        self.relative, self.absolute = relative, absolute
        self.max_absolute = self.max_relative = self.max_share = 0.0
        self.elements = 0

    def check(self, got, expected, where, growth=1):
        """Raises AssertionError when an element is off or NaN; growth multiplies the absolute part."""
        error = (got.double() - expected).abs()
        share = error / (self.relative * expected.abs() + self.absolute * growth)
        bad = ~(share <= 1)  # true for NaN as well
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(
                f"{where}: {int(bad.sum())} of {bad.numel()} elements are wrong, the first at {at}: "
                f"got {got[at].item():.6g}, expected {expected[at].item():.6g} within {self.relative:.3g} relative"
            )
        self.max_absolute = max(self.max_absolute, error.max().item())
        normal = expected.abs().clamp(min=self.absolute * growth * 2**11)  # below it steps are absolute, not relative
        self.max_relative = max(self.max_relative, (error / normal).max().item())
        self.max_share = max(self.max_share, share.max().item())
        self.elements += bad.numel()

    def measured(self, prefix):
        return {
            f"{prefix}max_abs_error": self.max_absolute,
            f"{prefix}max_rel_error": self.max_relative,
            f"{prefix}tolerance_rel": self.relative,
            f"{prefix}share_of_tolerance": self.max_share,
            f"{prefix}elements": self.elements,
        }


def _rounding(dtype):
    """Half a unit in the last place, relative, and the smallest step near zero."""
    import torch

    if dtype == torch.bfloat16:
        return 2**-8, 2.0**-100
    return 2**-11, 2.0**-24


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
