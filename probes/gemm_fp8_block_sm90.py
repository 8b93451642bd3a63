"""Does flashinfer.gemm.fp8_blockscale_gemm_sm90 multiply in FP8 right, with every scale in its block?

swap_ab and graph_swap_ab are called as vLLM calls it: a bf16 input, which the call itself rounds to e4m3 with one scale
for 128 columns of a row, and an e4m3 weight with one float32 scale for 128 x 128, below 32 rows, where the kernel
exchanges the operands. graph_swap_ab is captured and replayed three times with other inputs, scales included.
rows_32_up is the other kernel. The rest is what the call accepts besides and vLLM does not ask for: a bf16 weight,
which it rounds with one scale for 128 x 128; a weight with one scale for 128 columns of each row (row_scales); an e4m3
input with scales [M, K / 128], as documented (fp8_input) or of the same shape column by column
(fp8_input_column_major).

DeepGEMM's kernels are compiled by NVRTC at the first call of a shape.

Shapes: 1, 7, 28 and 31 rows, and 37 and 300, 384 deep, 320 wide (two blocks of 128 and a half). Scales differ by half
or more from block to block, rows of a bf16 weight from 16 to 16 rows. One row has a block of zeros. Where an out is
passed, it holds NaN, and so do 64 elements on both sides of it, which must stay, as the inputs must.

Tolerance: element by element u |y| + sum over blocks (n 2^-14 2 Q) + T. u = 2^-8 is the unit roundoff of bf16. In a
block of 128 the tensor core cuts every addend off 13 bits below the largest, half of that on average: n = 128 + 4
counts the products and, each 32 of them, the sum so far; Q is the root of the sum of the squares of the products, which
no partial sum exceeds by much. Between blocks float32 adds up. The reference rounds to e4m3 as the kernel does: 448
over the largest of a block times each number in float32, to nearest, ties to even. Where that number is within 2^-20
of a tie, an approximate division may round to the other side: T adds up what these would change. All else is float64.

Upstream: flashinfer/gemm/gemm_base.py (fp8_blockscale_gemm_sm90), csrc/fp8_blockscale_gemm_sm90_binding.cu,
csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/fp8_blockscale_gemm/fp8_blockscale_gemm_kernel.cuh
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "gemm.fp8_block_sm90",
    "feature": "gemm.fp8_block_sm90",
    "module": "fp8_blockscale_gemm_90",
    "requires": {"sm": ">=90,<91", "flashinfer": ">=0.6"},
    "variants": {
        "swap_ab": {},
        "graph_swap_ab": {},
        "rows_32_up": {},
        "bf16_weight": {},
        "row_scales": {},
        "fp8_input": {},
        "fp8_input_column_major": {},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc", "nvrtc"],
    "checks": "numbers",
}

ROWS = {  # e4m3 inputs: multiples of 4, for which both layouts of the scales are equally large
    "swap_ab": (1, 7, 31),
    "graph_swap_ab": (1, 31),
    "rows_32_up": (37, 300),
    "bf16_weight": (31, 300),
    "row_scales": (31, 300),
    "fp8_input": (28, 300),
    "fp8_input_column_major": (28, 300),
}
DEPTH, WIDTH, BLOCK = 384, 320, 128
GUARD = 64  # elements before and after an output; keeps it aligned to 128 bytes
UNIT, LARGEST_E4M3 = 2.0**-8, 448.0
CUT_OFF = 2.0**-14  # of the largest addend: what a tensor core loses of each on average
UNDECIDED = 2.0**-20  # relative: so close to a tie, an approximate division decides


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.jit.gemm import gen_fp8_blockscale_gemm_sm90_module

    gen_fp8_blockscale_gemm_sm90_module().build_and_load()


def run(variant):
    tally = _Tally()
    if variant == "graph_swap_ab":
        return _check_graph(variant, tally)
    for rows in ROWS[variant]:
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


def _check_graph(variant, tally):
    for rows in ROWS[variant]:
        held = _Case(variant, rows)
        results = []
        replay = _capture(lambda held=held, results=results: results.append(_call(held, None)))
        for turn in range(3):
            held.take(_Case(variant, rows, seed=turn + 1))
            results[-1].fill_(math.nan)
            replay()
            tally.add(f"replay {turn + 1} of a CUDA graph with new inputs, {rows} rows", results[-1], held)
    return {"graphs": len(ROWS[variant]), **tally.measured()}


def _call(case, out):
    import flashinfer.gemm
    import torch

    return flashinfer.gemm.fp8_blockscale_gemm_sm90(
        input=case.input,
        weight=case.weight,
        input_scale=case.input_scale,
        weight_scale=case.weight_scale,
        out=out,
        out_dtype=torch.bfloat16,
    )


class _Case:
    """What one call takes, and what it should give."""

    def __init__(self, variant, rows, seed=0):
        import torch

        self.generator = torch.Generator(_device()).manual_seed(1000 * seed + rows)
        x = self._normal(rows) * _spread(self._factors(rows, seed), 1)
        if rows > 1:
            x[-1, -BLOCK:] = 0
        weight = self._normal(WIDTH)
        self.input, self.input_scale = x.bfloat16(), None
        if variant.startswith("fp8_input"):
            x, scale = _divided(x, 1)
            self.input, self.input_scale = x.to(torch.float8_e4m3fn), scale
        if variant == "fp8_input_column_major":
            self.input_scale = scale.T.contiguous().T
        self.weight, self.weight_scale = self._weight(weight, variant, seed)

    def _normal(self, rows):
        import torch

        return torch.randn((rows, DEPTH), generator=self.generator, device=self.generator.device)

    def _factors(self, rows, seed):
        """Powers of two from 1/8 to 8, other ones for each block than for its neighbours."""
        import torch

        device = self.generator.device
        row, column = torch.arange(rows, device=device)[:, None], torch.arange(DEPTH // BLOCK, device=device)
        return torch.exp2((3 * row + 2 * column + seed) % 7 - 3.0)

    def _weight(self, weight, variant, seed):
        """The weight and its scales, or None."""
        import torch

        if variant == "bf16_weight":
            return (weight * _spread(self._factors(-(-WIDTH // 16), seed), 16)).bfloat16(), None
        height = 1 if variant == "row_scales" else BLOCK
        weight = weight * _spread(self._factors(-(-WIDTH // height), seed), height)
        weight, scale = _divided(weight, height)
        return weight.to(torch.float8_e4m3fn), scale

    def reference(self):
        """Output, and how far a right kernel may be from it."""
        x, x_tie = _operand(self.input, self.input_scale, 1)
        weight, weight_tie = _operand(self.weight, self.weight_scale, BLOCK)
        out = x @ weight.T
        bound = UNIT * out.abs() + x_tie @ weight.abs().T + x.abs() @ weight_tie.T
        for start in range(0, DEPTH, BLOCK):
            block = slice(start, start + BLOCK)
            size = (x[:, block].square() @ weight[:, block].square().T).sqrt()
            bound += (BLOCK + BLOCK / 32) * CUT_OFF * 2 * size
        return out, bound

    def inputs(self):
        named = {
            "input": self.input,
            "weight": self.weight,
            "input_scale": self.input_scale,
            "weight_scale": self.weight_scale,
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}

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

        rows = self.input.shape[0]
        count = rows * WIDTH
        buffer = torch.full((GUARD + count + GUARD,), math.nan, dtype=torch.bfloat16, device=_device())
        return buffer, buffer[GUARD : GUARD + count].view(rows, WIDTH)


def _spread(of_blocks, height):
    """The value of its block for each element; blocks are 128 columns of so many rows, the last ones cut off."""
    rows = WIDTH if height > 1 else len(of_blocks)
    return of_blocks.repeat_interleave(BLOCK, 1).repeat_interleave(height, 0)[:rows]


def _divided(values, height):
    """The values over their scales, and the scales, which make 448 of the largest value of each block."""
    import torch

    missing = -len(values) % height
    padded = torch.nn.functional.pad(values.abs(), (0, 0, 0, missing))
    largest = padded.view(-1, height, DEPTH // BLOCK, BLOCK).amax((1, 3))
    scale = torch.where(largest > 0, largest / LARGEST_E4M3, 1.0)
    return values / _spread(scale, height), scale


def _operand(given, scale, height):
    """The numbers that the kernel multiplies, and what a tie decided the other way would change of each."""
    import torch

    if scale is not None:
        height = 1 if len(scale) == len(given) else height
        wide = given.double() * _spread(scale.double(), height)
        return wide, torch.zeros_like(wide)
    _, scale = _divided(given.float(), height)
    up = _spread(torch.where(scale == 1, 1.0, 1 / scale), height)  # a block of zeros has the scale 1
    value = given.float() * up
    rounded = value.clamp(-LARGEST_E4M3, LARGEST_E4M3).to(torch.float8_e4m3fn).double()
    size = value.double().abs()
    step = torch.exp2(size.clamp(min=2.0**-6).log2().floor() - 3)
    undecided = ((size / step) % 1 - 0.5).abs() * step <= UNDECIDED * size
    return rounded / up.double(), undecided * step / up.double()


class _Tally:
    """Compares outputs with references and keeps count."""

    def __init__(self):
        self.elements, self.cases, self.worst, self.largest = 0, 0, 0.0, 0.0

    def add(self, where, out, case):
        expected, bound = case.reference()
        assert out.shape == expected.shape, f"{where}: shape {tuple(out.shape)}, expected {tuple(expected.shape)}"
        assert str(out.dtype) == "torch.bfloat16", f"{where}: {out.dtype}, expected bfloat16"
        assert out.is_contiguous(), f"{where}: strides {out.stride()}"
        error = (out.double() - expected).abs()
        bad = ~(error <= bound)  # NaN is wrong
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(
                f"{where}: {int(bad.sum())} of {out.numel()} elements are wrong, in {int(bad.any(1).sum())} of "
                f"{len(out)} rows and {int(bad.any(0).sum())} of {WIDTH} columns, the first at {at}: got "
                f"{out[at].item():.6g}, expected {expected[at].item():.6g} within {bound[at].item():.2g}"
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
