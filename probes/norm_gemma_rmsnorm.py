"""Does flashinfer.norm.gemma_rmsnorm give x / sqrt(mean(x^2) + eps) * (weight + 1) for every element?

Shapes: rows of 111 to 16384 elements in batches of 1 to 989; 111 and 500 are no multiple of the kernels' vector width,
16384 takes more than one round of a block's threads. Rows differ in scale (0.001, 1 and 30), so that eps = 1e-5 decides
the result of every third row. Weights are normal random numbers, some of them near -1, where weight + 1 is small. The
output is passed in and filled with NaN, or left to FlashInfer, as vLLM does; input and output are dense, or rows that
lie twice as far apart. What lies between and around the rows of the output must stay NaN, and the input and the weight
must stay as they were.

Tolerance: relative, half a unit in the last place of the output dtype (bf16 has 8 significant bits: 2^-8; fp16 has 11:
2^-11), because the result is rounded once, plus 2^-16 for the float32 arithmetic before it (a sum over at most 64
elements per thread, a tree of sums, an approximate reciprocal square root, weight + 1: about 2^-20). For fp16 one
smallest subnormal, 2^-24, is added. The reference is computed in float64 from the same rounded inputs.

Variants: bf16 and fp16 call what a user of this FlashInfer gets. From 0.6 that is the CuTe DSL kernel where
nvidia-cutlass-dsl is installed (`implementation` says which one ran); cuda_bf16 and cuda_fp16 then call the module that
nvcc builds, as FlashInfer does under FLASHINFER_USE_CUDA_NORM=1. graph_bf16 is captured in a CUDA graph, as in vLLM,
and replayed three times with other inputs in the same memory.

Upstream: include/flashinfer/norm.cuh, csrc/norm.cu; flashinfer/norm/kernels/rmsnorm.py (CuTe DSL);
vllm/models/minimax_m3/nvidia/model.py
"""

import functools
import math
import os
import sys

PROBE = {
    "id": "norm.gemma_rmsnorm",
    "feature": "norm.gemma_rmsnorm",
    "module": "norm",
    "requires": {"sm": ">=75", "flashinfer": ">=0.5", "symbols": ["flashinfer.norm.gemma_rmsnorm"]},
    "variants": {
        "bf16": {"sm": ">=80"},
        "fp16": {},
        "graph_bf16": {"sm": ">=80"},
        "cuda_bf16": {"sm": ">=80", "flashinfer": ">=0.6"},
        "cuda_fp16": {"flashinfer": ">=0.6"},
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
GUARD = 64  # elements before and after an output; keeps it aligned to 128 bytes


def build(variant):
    if not (variant.startswith("cuda_") or _default_is_cuda()):
        return False  # the first call compiles the CuTe DSL kernel
    _cuda_module()
    return True


def run(variant):
    import torch

    generator = torch.Generator(_device()).manual_seed(21)
    errors = _Errors(*_tolerance(_dtype(variant)))
    for shape, spread in _cases(variant):
        if variant.startswith("graph_"):
            _check_graph(shape, _dtype(variant), generator, errors)
        else:
            _check_case(variant, shape, spread, generator, errors)
    return {
        "implementation": _implementation(variant),
        "eps": EPS,
        "shapes": " ".join("x".join(map(str, shape)) + "/spread" * spread for shape, spread in _cases(variant)),
        **errors.measured(),
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


def _check_case(variant, shape, spread, generator, errors):
    import torch

    x, weight = _inputs(shape, _dtype(variant), generator, spread=spread)
    expected = _reference(x, weight)
    kept_x, kept_weight = x.clone(), weight.clone()
    where = f"input {tuple(shape)}, strides {x.stride()}"

    errors.check(_call(variant, x, weight, None), expected, f"{where}, no out")

    buffer, out = _poisoned(shape, spread, x.dtype, x.device)
    result = _call(variant, x, weight, out)
    assert result.data_ptr() == out.data_ptr(), f"{where}: the result is not the tensor given as out"
    errors.check(out, expected, f"{where}, out given")
    out.fill_(math.nan)
    assert buffer.isnan().all(), f"{where}: something was written outside of out"
    assert torch.equal(x, kept_x), f"{where}: the input was changed"
    assert torch.equal(weight, kept_weight), f"{where}: the weight was changed"


def _check_graph(shape, dtype, generator, errors):
    """The call that vLLM makes, in a CUDA graph; what it returned when captured holds the result of every replay."""
    import flashinfer.norm
    import torch

    x, weight = _inputs(shape, dtype, generator)
    replay, result = _capture(lambda: flashinfer.norm.gemma_rmsnorm(x, weight, EPS))
    for turn in range(REPLAYS):
        new_x, new_weight = _inputs(shape, dtype, generator)
        x.copy_(new_x)
        weight.copy_(new_weight)
        result.fill_(math.nan)
        replay()
        where = f"input {tuple(shape)}, replay {turn + 1} of a CUDA graph"
        errors.check(result, _reference(new_x, new_weight), where)
        assert torch.equal(x, new_x), f"{where}: the input was changed"


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


def _call(variant, x, weight, out):
    """The call that the variant is about; out may be None."""
    import flashinfer.norm
    import torch
    from flashinfer.utils import device_support_pdl

    if variant.startswith("cuda_"):
        out = torch.empty_like(x) if out is None else out
        _cuda_module().gemma_rmsnorm(out, x, weight, EPS, device_support_pdl(x.device))
        return out
    if out is None:
        return flashinfer.norm.gemma_rmsnorm(x, weight, EPS)
    return flashinfer.norm.gemma_rmsnorm(x, weight, eps=EPS, out=out)


@functools.cache
def _cuda_module():
    """The module that nvcc builds, loaded."""
    from flashinfer.jit.norm import gen_norm_module

    return gen_norm_module().build_and_load()


def _default_is_cuda():
    """Whether gemma_rmsnorm() calls the nvcc module whatever the GPU: before 0.6, or without nvidia-cutlass-dsl."""
    import flashinfer.norm

    return getattr(flashinfer.norm, "_USE_CUDA_NORM", True)


def _implementation(variant):
    import flashinfer.norm

    if variant.startswith("cuda_") or _default_is_cuda():
        return "cuda"
    if hasattr(flashinfer.norm, "_use_cuda_norm"):  # from 0.7 it depends on the GPU, too
        return "cuda" if flashinfer.norm._use_cuda_norm(_device()) else "cute-dsl"  # noqa: SLF001 - nothing public tells
    return "cute-dsl"


def _reference(x, weight):
    wide = x.double()
    return wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt() * (weight.double() + 1)


def _inputs(shape, dtype, generator, *, spread=False):
    """Normal random numbers, each row of x in its own scale, and a weight."""
    import torch

    device = generator.device
    scales = torch.tensor(ROW_SCALES, device=device)[torch.arange(shape[0], device=device) % len(ROW_SCALES)]
    values = torch.randn(shape, generator=generator, device=device) * scales.view(-1, *[1] * (len(shape) - 1))
    weight = torch.randn(shape[-1], generator=generator, device=device)
    weight[3::5] = weight[3::5] / 64 - 1
    _, x = _poisoned(shape, spread, dtype, device)
    return x.copy_(values), weight.to(dtype)


def _poisoned(shape, spread, dtype, device):
    """A buffer of NaN, and the tensor of this shape inside it; spread: its rows lie twice as far apart."""
    import torch

    full = (shape[0], shape[1] * 2, *shape[2:]) if spread else tuple(shape)
    count = math.prod(full)
    buffer = torch.full((GUARD + count + GUARD,), math.nan, dtype=dtype, device=device)
    return buffer, buffer[GUARD : GUARD + count].view(full)[:, : shape[1]]


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
