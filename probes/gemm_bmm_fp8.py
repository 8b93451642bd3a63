"""Does flashinfer.gemm.bmm_fp8 multiply FP8 matrices right, each with the scale of its tensor?

auto_bf16 is called as vLLM calls it: one matrix of a batch, e4m3, the weight column-major, one float32 scale for each
tensor, out left to FlashInfer and backend "auto", which on SM90 is cuBLASLt untuned. The others ask for cuBLAS: out in
fp16, a batch of 3 with the scales of the batch, and an e5m2 input against an e4m3 weight (cuBLASLt takes no two e5m2).
graph_bf16 is auto_bf16 captured and replayed three times with other inputs and other scales.

Shapes: 1, 37 and 300 rows, 272 deep, 336 wide (multiples of 16, as cuBLASLt asks, and of no tile). Rows of the input
and columns of the weight differ in scale, so that none is like its neighbours. Where an out is passed, it holds NaN,
and so do 64 elements on both sides of it, which must stay. Inputs and scales must stay as they were.

Tolerance: element by element u |y| + n 2^-14 2 Q, where u is half a unit in the last place (bf16 2^-8, fp16 2^-11) and
Q the root of the sum of the squares of the products that y adds up, which no sum or partial sum exceeds by much. The
tensor core cuts every addend off 13 bits below the largest of them, half of that on average, and n = K + K / 32 counts
the products and, each 32 of them, the sum so far. It is the bound where all of them err the same way; where their signs
differ, as here, they use a fifth of it. The reference is float64, on the numbers that the FP8 stand for.

Upstream: include/flashinfer/gemm/bmm_fp8.cuh, csrc/bmm_fp8.cu
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "gemm.bmm_fp8",
    "feature": "gemm.bmm_fp8",
    "module": "gemm",
    "requires": {"sm": ">=89", "flashinfer": ">=0.5", "symbols": ["flashinfer.gemm.bmm_fp8"]},
    "variants": {"auto_bf16": {}, "graph_bf16": {}, "cublas_fp16": {}, "batched_bf16": {}, "e5m2_bf16": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 600,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

ROWS = (1, 37, 300)
GRAPH_ROWS = (1, 37)
DEPTH, WIDTH = 272, 336
GUARD = 64  # elements before and after an output; keeps it aligned to 128 bytes
UNITS = {"bf16": 2.0**-8, "fp16": 2.0**-11}
CUT_OFF = 2.0**-14  # of the largest addend: what a tensor core loses of each on average


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.jit.gemm import gen_gemm_module

    gen_gemm_module().build_and_load()


def run(variant):
    tally = _Tally()
    if variant == "graph_bf16":
        return _check_graph(tally)
    for rows in ROWS:
        case = _Case(variant, rows)
        kept = case.copies()
        tally.add(f"{rows} rows, no out", _call(case, None), case)
        buffer, out = case.poisoned()
        result = _call(case, out)
        assert result.data_ptr() == out.data_ptr(), f"{rows} rows: the result is not the tensor given as out"
        tally.add(f"{rows} rows, out given", out, case)
        out.fill_(math.nan)
        assert buffer.isnan().all(), f"{rows} rows: something was written outside of out"
        case.assert_equal(kept, f"{rows} rows")
    return tally.measured()


def _check_graph(tally):
    for rows in GRAPH_ROWS:
        held = _Case("graph_bf16", rows)
        results = []
        replay = _capture(lambda held=held, results=results: results.append(_call(held, None)))
        for turn in range(3):
            held.take(_Case("graph_bf16", rows, seed=turn + 1))
            results[-1].fill_(math.nan)
            replay()
            tally.add(f"replay {turn + 1} of a CUDA graph with new inputs, {rows} rows", results[-1], held)
    return {"graphs": len(GRAPH_ROWS), **tally.measured()}


def _call(case, out):
    """The arguments by position, as vLLM passes them."""
    import flashinfer.gemm

    return flashinfer.gemm.bmm_fp8(case.a, case.b, case.a_scale, case.b_scale, case.dtype, out, case.backend)


class _Case:
    """What one call takes, and what it should give."""

    def __init__(self, variant, rows, seed=0):
        import torch

        generator = torch.Generator(_device()).manual_seed(1000 * seed + rows)
        device = generator.device
        self.batch = 3 if variant.startswith("batched") else 1
        self.backend = "auto" if variant in ("auto_bf16", "graph_bf16") else "cublas"
        self.dtype = torch.float16 if variant.endswith("fp16") else torch.bfloat16
        a_type = torch.float8_e5m2 if variant.startswith("e5m2") else torch.float8_e4m3fn

        def normal(count, dtype):
            scale = torch.exp2(torch.arange(self.batch * count, device=device).view(self.batch, count, 1) % 5 - 2.0)
            values = torch.randn((self.batch, count, DEPTH), generator=generator, device=device)
            return (values * scale).to(dtype)

        self.a = normal(rows, a_type)
        self.b = normal(WIDTH, torch.float8_e4m3fn).transpose(-2, -1)  # column-major
        self.a_scale = torch.tensor(0.0125 * (1 + seed), device=device)
        self.b_scale = torch.tensor([0.75 / (1 + 2 * seed)], device=device)

    def reference(self):
        """Output, and how far a right kernel may be from it."""
        a, b, scale = self.a.double(), self.b.double(), self.a_scale.double() * self.b_scale.double()
        sizes = (a.square() @ b.square()).sqrt()
        addends = DEPTH + DEPTH / 32
        cut_off = addends * CUT_OFF * 2 * sizes * scale
        out = a @ b * scale
        return out, UNITS[self.unit] * out.abs() + cut_off

    @property
    def unit(self):
        import torch

        return "fp16" if self.dtype == torch.float16 else "bf16"

    def inputs(self):
        return {"A": self.a, "B": self.b, "A_scale": self.a_scale, "B_scale": self.b_scale}

    def copies(self):
        return {name: tensor.clone() for name, tensor in self.inputs().items()}

    def assert_equal(self, kept, where):
        import torch

        for name, tensor in self.inputs().items():
            assert torch.equal(tensor.float(), kept[name].float()), f"{where}: {name} was changed"

    def take(self, other):
        """The contents of another case, in the memory of this one."""
        for name, tensor in self.inputs().items():
            tensor.copy_(other.inputs()[name])

    def poisoned(self):
        """A buffer of NaN, and the output inside it."""
        import torch

        shape = (self.batch, self.a.shape[1], WIDTH)
        count = math.prod(shape)
        buffer = torch.full((GUARD + count + GUARD,), math.nan, dtype=self.dtype, device=_device())
        return buffer, buffer[GUARD : GUARD + count].view(shape)


class _Tally:
    """Compares outputs with references and keeps count."""

    def __init__(self):
        self.elements, self.cases, self.worst, self.largest = 0, 0, 0.0, 0.0

    def add(self, where, out, case):
        expected, bound = case.reference()
        assert out.shape == expected.shape, f"{where}: shape {tuple(out.shape)}, expected {tuple(expected.shape)}"
        assert out.dtype == case.dtype, f"{where}: {out.dtype}, expected {case.dtype}"
        assert out.is_contiguous(), f"{where}: strides {out.stride()}, which vLLM cannot view as a matrix"
        error = (out.double() - expected).abs()
        bad = ~(error <= bound)  # NaN is wrong
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(
                f"{where}: {int(bad.sum())} of {out.numel()} elements are wrong, the first at {at}: "
                f"got {out[at].item():.6g}, expected {expected[at].item():.6g} within {bound[at].item():.2g}"
            )
        self.elements += out.numel()
        self.cases += 1
        self.largest = max(self.largest, float(error.max()))
        self.worst = max(self.worst, float((error / bound).max()))

    def measured(self):
        return {
            "cases": self.cases,
            "shapes": f"{DEPTH} deep, {WIDTH} wide",
            "elements": self.elements,
            "max_abs_error": self.largest,
            "worst_of_tolerance": round(self.worst, 3),
            "wrong_elements": 0,
        }


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.gemm").stand_in_for_a_graph(call)
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
