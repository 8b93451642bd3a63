"""Does flashinfer.gemm.mm_bf16 multiply BF16 matrices right, in each of the backends that SM90 is offered?

These are cuBLASLt (from 0.6.16), TinyGEMM (from 0.6.11) and cuDNN (from 0.6.8, bmm_bf16 from 0.6.12); auto takes cuDNN
where its frontend is installed, else cuBLASLt, and raises without nvidia-cutlass-dsl, which no kernel of SM90 needs.
cuTile's kernels, which compile dozens of themselves to choose one, are not run. The call is that of vLLM: the weight
column-major, bias, pdl, out_dtype and backend by name, out left to FlashInfer (once it is given, too). pdl stays False:
TinyGEMM hangs where what runs before it does not know of it. graph_ variants are captured and replayed three times with
other inputs.

Shapes: 1, 37 and 300 rows, 272 deep, 336 wide (multiples of 16, as TinyGEMM asks, and of no tile); TinyGEMM also takes
8 rows 4368 deep, which go through its ring of buffers more than once; bmm_bf16 a batch of 3. Rows of the input and
columns of the weight differ in scale, so that none is like its neighbours, and the bias is as large as the products.
Where an out is passed, it holds NaN, and so do 64 elements on both sides of it, which must stay. Inputs must stay.

Tolerance: element by element u |y| + (K / 16 + 1) 2^-23 (Q + |y|), where u is half a unit in the last place (bf16 2^-8,
fp16 2^-11, float32 2^-24) and Q the root of the sum of the squares of the products that y adds up. A tensor core adds
16 products in one step to a sum in float32, which it cuts off, so that each step loses at most 2^-23 of a sum that is
hardly ever above Q + |y|; one that adds one by one and rounds stays below that, too. The reference is float64.

Upstream: flashinfer/gemm/gemm_base.py, csrc/mm_bf16_cublaslt.cu, csrc/tinygemm2.cu
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "gemm.bf16",
    "feature": "gemm.bf16",
    "module": "mm_bf16_cublaslt",
    "requires": {"sm": ">=90,<91", "flashinfer": ">=0.6.8"},
    "variants": {
        "cublaslt_bf16": {"flashinfer": ">=0.6.16"},
        "graph_cublaslt_bf16": {"flashinfer": ">=0.6.16"},
        "cublaslt_bias_bf16": {"flashinfer": ">=0.6.16"},
        "cublaslt_fp16": {"flashinfer": ">=0.6.16"},
        "cublaslt_float32": {"flashinfer": ">=0.6.16"},
        "tinygemm_bf16": {"flashinfer": ">=0.6.11"},
        "graph_tinygemm_bf16": {"flashinfer": ">=0.6.11"},
        "tinygemm_bias_bf16": {"flashinfer": ">=0.6.11"},
        "cudnn_bf16": {"flashinfer": ">=0.6.8", "packages": {"nvidia-cudnn-frontend": ""}},
        "cudnn_bias_bf16": {"flashinfer": ">=0.7", "packages": {"nvidia-cudnn-frontend": ""}},
        "cudnn_batched_bf16": {"flashinfer": ">=0.6.12", "packages": {"nvidia-cudnn-frontend": ""}},
        "auto_bf16": {"flashinfer": ">=0.6.16", "packages": {"nvidia-cutlass-dsl": ""}},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 600,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

DEPTH, WIDTH = 272, 336
SIZES = ((1, DEPTH), (37, DEPTH), (300, DEPTH))  # rows, depth
DEEP = (8, 4368)  # TinyGEMM's ring holds 4096
GUARD = 64  # elements before and after an output; keeps it aligned to 128 bytes
UNITS = {"bf16": 2.0**-8, "fp16": 2.0**-11, "float32": 2.0**-24}
CUT_OFF = 2.0**-23  # of a sum in float32: what one step loses at most


def build(variant):
    backend = _backend(variant)
    if backend == "cudnn":
        return False  # nothing is compiled
    if backend in ("cublaslt", "auto"):
        from flashinfer.jit.gemm import gen_mm_bf16_cublaslt_module

        gen_mm_bf16_cublaslt_module().build_and_load()
    if backend in ("tinygemm", "auto"):
        from flashinfer.jit import gen_tinygemm2_module

        gen_tinygemm2_module().build_and_load()
    return None


def run(variant):
    tally = _Tally()
    if variant.startswith("graph"):
        return _check_graph(variant, tally)
    for rows, depth in _sizes(variant):
        case = _Case(variant, rows, depth)
        kept = case.copies()
        tally.add(f"{case}, no out", _call(case, None), case)
        buffer, out = case.poisoned()
        result = _call(case, out)
        assert result.data_ptr() == out.data_ptr(), f"{case}: the result is not the tensor given as out"
        tally.add(f"{case}, out given", out, case)
        out.fill_(math.nan)
        assert buffer.isnan().all(), f"{case}: something was written outside of out"
        case.assert_equal(kept)
    return tally.measured()


def _check_graph(variant, tally):
    sizes = _sizes(variant)[::2]
    for rows, depth in sizes:
        held = _Case(variant, rows, depth)
        results = []
        replay = _capture(lambda held=held, results=results: results.append(_call(held, None)))
        for turn in range(3):
            held.take(_Case(variant, rows, depth, seed=turn + 1))
            results[-1].fill_(math.nan)
            replay()
            tally.add(f"replay {turn + 1} of a CUDA graph with new inputs, {held}", results[-1], held)
    return {"graphs": len(sizes), **tally.measured()}


def _call(case, out):
    import flashinfer.gemm

    if case.batch:
        return flashinfer.gemm.bmm_bf16(case.a, case.b, out=out, out_dtype=case.dtype, backend=case.backend)
    return flashinfer.gemm.mm_bf16(
        case.a, case.b, bias=case.bias, pdl=False, out=out, out_dtype=case.dtype, backend=case.backend
    )


def _backend(variant):
    return variant.removeprefix("graph_").partition("_")[0]


def _sizes(variant):
    return (*SIZES, DEEP) if _backend(variant) == "tinygemm" else SIZES


class _Case:
    """What one call takes, and what it should give."""

    def __init__(self, variant, rows, depth, seed=0):
        import torch

        generator = torch.Generator(_device()).manual_seed(1000 * seed + rows)
        device = generator.device
        self.name = f"{rows} rows, {depth} deep"
        self.backend = _backend(variant)
        self.batch = (3,) if "_batched_" in variant else ()
        self.unit = variant.rpartition("_")[2]
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "float32": torch.float32}[self.unit]

        def normal(count):
            total = math.prod(self.batch) * count
            scale = torch.exp2(torch.arange(total, device=device).view(*self.batch, count, 1) % 5 - 2.0)
            values = torch.randn((*self.batch, count, depth), generator=generator, device=device)
            return (values * scale).bfloat16()

        self.a = normal(rows)
        self.b = normal(WIDTH).transpose(-2, -1)  # column-major
        self.bias = None
        if "_bias_" in variant:
            self.bias = (math.sqrt(depth) * torch.randn(WIDTH, generator=generator, device=device)).bfloat16()

    def __str__(self):
        return self.name

    def reference(self):
        """Output, and how far a right kernel may be from it."""
        a, b = self.a.double(), self.b.double()
        squares = a.square() @ b.square()
        out = a @ b
        if self.bias is not None:
            squares, out = squares + self.bias.double().square(), out + self.bias.double()
        steps = a.shape[-1] / 16 + 1
        return out, UNITS[self.unit] * out.abs() + steps * CUT_OFF * (squares.sqrt() + out.abs())

    def inputs(self):
        named = {"a": self.a, "b": self.b, "bias": self.bias}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def copies(self):
        return {name: tensor.clone() for name, tensor in self.inputs().items()}

    def assert_equal(self, kept):
        import torch

        for name, tensor in self.inputs().items():
            assert torch.equal(tensor, kept[name]), f"{self}: {name} was changed"

    def take(self, other):
        """The contents of another case, in the memory of this one."""
        for name, tensor in self.inputs().items():
            tensor.copy_(other.inputs()[name])

    def poisoned(self):
        """A buffer of NaN, and the output inside it."""
        import torch

        shape = (*self.batch, self.a.shape[-2], WIDTH)
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
        assert out.is_contiguous(), f"{where}: strides {out.stride()}, which vLLM cannot view as rows"
        error = (out.double() - expected).abs()
        bad = ~(error <= bound)  # NaN is wrong
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(
                f"{where}: {int(bad.sum())} of {out.numel()} elements are wrong, by {float((error / bound).max()):.3g} "
                f"times the tolerance at most, the first at {at}: got {out[at].item():.6g}, expected "
                f"{expected[at].item():.6g} within {bound[at].item():.2g}"
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
