"""Does flashinfer.mxfp4_quantize round to MXFP4 right, and does each block's scale lie where its layout says?

Two numbers of e2m1 lie in a byte, the first in its low half; 32 of a row share a scale, the power of two (ue8m0) that
is not below the largest of them over 6. The scales lie swizzled in tiles of 128 x 4, as mxfp4_quantize leaves them, or
row by row (linear), for which fp4_quantize is asked. graph_swizzled is captured in a CUDA graph and replayed three
times with other inputs.

The outputs are what FlashInfer allocates: while it is called, torch.empty gives it memory that holds a pattern, with
256 bytes on both sides that must keep it. Each call is made with two patterns; bytes that were not written show in at
least one of them. FlashInfer compiles the kernel for older GPUs, too; the code in it is for SM100 and later.

Shapes: 1, 37 and 300 rows of 384 in bf16, 37 rows in fp16. Blocks differ in scale from their neighbours and from those
of the next row, so that no layout can be taken for another. The first row has all numbers of e2m1 and all halves
between them; one block is zero.

Tolerance: none, ties go to even: a power of two and its reciprocal are exact. But where the largest of a block over 6
is within 2^-20 of a power of two, an approximate reciprocal of 6 (2^-23) decides whether it is that one or the next;
the numbers have to be right by the scale that is there.

Upstream: flashinfer/fp4_quantization.py (flashinfer/quantization/ from 0.6),
csrc/nv_internal/tensorrt_llm/kernels/quantization.cuh, csrc/nv_internal/tensorrt_llm/thop/fp4Quantize.cpp
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "quant.mxfp4",
    "feature": "quant.mxfp4",
    "module": "fp4_quantization_90",
    "requires": {
        "sm": ">=90",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.fp4_quantization.mxfp4_quantize",
            "flashinfer.fp4_quantization.fp4_quantize",
        ],
    },
    "variants": {"swizzled": {}, "linear": {}, "graph_swizzled": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

ROWS, COLUMNS, BLOCK = (1, 37, 300), 384, 32
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # the halves between them
PATTERNS = (0x5A, 0xA5)
GUARD = 256  # bytes before and after an output; keeps it aligned
UNDECIDED = 2.0**-20  # relative: so close to a power of two, an approximate reciprocal decides
BIAS = 127  # of ue8m0


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.fp4_quantization import get_fp4_quantization_module

    get_fp4_quantization_module(_architecture())  # cached by this argument: the call finds it there


def run(variant):
    tally = _Tally(variant)
    if variant == "graph_swizzled":
        return _check_graph(variant, tally)
    for rows, dtype in (*((rows, "bf16") for rows in ROWS), (37, "fp16")):
        case = _Case(rows, dtype)
        kept = case.x.clone()
        for pattern in PATTERNS:
            with _Poison(pattern) as poison:
                values, scales = _call(variant, case)
            tally.add(str(case), values, scales, case, poison)
        assert _same(kept, case.x), f"{case}: the input was changed"
    return tally.measured()


def _check_graph(variant, tally):
    for rows in ROWS[:2]:
        held = _Case(rows, "bf16")
        poison, results = _Poison(PATTERNS[0]), []

        def call(held=held, poison=poison, results=results):
            with poison:
                results.append(_call(variant, held))

        replay = _capture(call)
        for turn in range(3):
            held.x.copy_(_Case(rows, "bf16", seed=turn + 1).x)
            poison.fill()
            replay()
            tally.add(f"replay {turn + 1} of a CUDA graph with new inputs, {held}", *results[-1], held, poison)
    return {"graphs": 2, **tally.measured()}


def _call(variant, case):
    from flashinfer.fp4_quantization import fp4_quantize, mxfp4_quantize

    if variant != "linear":
        return mxfp4_quantize(case.x)
    return fp4_quantize(case.x, None, sf_vec_size=BLOCK, sf_use_ue8m0=True, is_sf_swizzled_layout=False)


class _Case:
    """A tensor to round."""

    def __init__(self, rows, dtype, seed=0):
        import torch

        generator = torch.Generator(_device()).manual_seed(1000 * seed + rows)
        device = generator.device
        count = COLUMNS // BLOCK
        row, block = torch.arange(rows, device=device)[:, None], torch.arange(count, device=device)
        factors = torch.exp2((3 * row + 2 * block + seed) % 7 - 3.0)
        x = torch.randn((rows, count, BLOCK), generator=generator, device=device)
        numbers = torch.tensor([*TIES, 4.0, *E2M1], device=device)
        x[0, ::2] = torch.cat([numbers, -numbers])
        x[0, ::4] = torch.cat([numbers, -numbers]).clamp(-5, 5)  # the scale is sure to be a half of the above
        if rows > 1:
            x[-1, 3] = 0
        self.name = f"{rows} rows of {dtype}"
        self.x = (x * factors[..., None]).flatten(1).to(torch.bfloat16 if dtype == "bf16" else torch.float16)

    def __str__(self):
        return self.name

    def blocks(self):
        return self.x.double().unflatten(1, (-1, BLOCK))

    def exponents(self):
        """The smallest and the largest biased exponent that each block may have; 0 for zeros alone."""
        import torch

        scale = self.blocks().abs().amax(2) / 6
        both = (torch.log2(scale * (1 + side)).ceil() + BIAS for side in (-UNDECIDED, UNDECIDED))
        return tuple(exponent.clamp(min=0) for exponent in both)

    def rounded(self, exponents):
        """Every number in e2m1 by these scales, and whether it was a tie."""
        import torch

        value = self.blocks() * torch.exp2(BIAS - exponents)[..., None]
        size = value.abs()
        step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
        rounded = (value / step).round().mul(step).clamp(-6, 6)  # round() takes a half to the even neighbour
        return rounded, ((size / step) % 1 == 0.5) & (size < 6)


class _Poison:
    """While it is entered, what torch.empty returns holds a pattern and lies between guards that hold it, too."""

    def __init__(self, pattern):
        self.pattern, self.buffers = pattern, []

    def __enter__(self):
        import torch

        self.original, torch.empty = torch.empty, self._empty
        return self

    def __exit__(self, *_):
        import torch

        torch.empty = self.original

    def _empty(self, *size, **options):
        import torch

        if set(options) - {"dtype", "device"}:
            return self.original(*size, **options)
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        dtype = options.get("dtype") or torch.get_default_dtype()
        count = math.prod(shape) * dtype.itemsize
        buffer = self.original((GUARD + count + GUARD,), dtype=torch.uint8, device=options.get("device"))
        self.buffers.append(buffer.fill_(self.pattern))
        return buffer[GUARD : GUARD + count].view(dtype).view(shape)

    def fill(self):
        for buffer in self.buffers:
            buffer.fill_(self.pattern)

    def assert_written(self, where, **outputs):
        """Raises AssertionError where nothing of an output was written, or something beside one."""
        for name, output in outputs.items():
            assert not (output == self.pattern).all(), f"{where}: not one byte of the {name} was written"
        for buffer in self.buffers:
            beside = (buffer[:GUARD] != self.pattern).any() | (buffer[-GUARD:] != self.pattern).any()
            assert not beside, f"{where}: something was written beside an output"


def _from_tiles(stored, rows):
    """Scales [padded rows, padded columns] from tiles of 128 rows by 4, in which rows 32 apart are side by side."""
    padded = -(-rows // 128) * 128
    return stored.view(padded // 128, -1, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(padded, -1)


def _same(one, other):
    import torch

    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))


class _Tally:
    """Compares values and scales with what they should be and keeps count."""

    def __init__(self, variant):
        self.variant = variant
        self.elements = self.scales = self.ties = self.undecided = 0

    def add(self, where, values, scales, case, poison):
        rows, columns = case.x.shape
        padded = rows if self.variant == "linear" else -(-rows // 128) * 128
        wanted = (rows, columns // 2), (padded, columns // BLOCK)
        for name, tensor, shape in (("values", values, wanted[0]), ("scales", scales, wanted[1])):
            assert tensor.shape == shape, f"{where}: {name} of shape {tuple(tensor.shape)}, expected {shape}"
            assert str(tensor.dtype) == "torch.uint8", f"{where}: {name} in {tensor.dtype}, expected uint8"
            assert tensor.is_contiguous(), f"{where}: {name} with strides {tensor.stride()}"
        poison.assert_written(where, values=values, scales=scales)
        found = self._check_scales(where, scales, case)
        self._check_values(where, values, found, case)

    def _check_scales(self, where, scales, case):
        """The biased exponent of each block."""
        rows = case.x.shape[0]
        laid_out = scales if self.variant == "linear" else _from_tiles(scales, rows)
        padding = int((laid_out[rows:] != 0).sum())
        assert not padding, f"{where}: {padding} of the scales that pad the tiles are not zero"
        found = laid_out[:rows].double()
        below, above = case.exponents()
        _assert_none(where, "scales", ~((found >= below) & (found <= above)), found, above)
        self.scales += found.numel()
        self.undecided += int((below != above).sum())
        return found

    def _check_values(self, where, values, exponents, case):
        import torch

        halves = torch.stack([values & 15, values >> 4], -1).flatten(1).long()
        found = torch.tensor(E2M1, device=values.device).double()[halves & 7] * (1 - 2 * (halves >> 3))
        rounded, ties = (part.flatten(1) for part in case.rounded(exponents))
        _assert_none(where, "elements", found != rounded, found, rounded)
        self.elements += found.numel()
        self.ties += int(ties.sum())

    def measured(self):
        return {
            "shapes": f"rows of {COLUMNS}, blocks of {BLOCK}",
            "elements": self.elements,
            "scales": self.scales,
            "exact_ties": self.ties,
            "undecided": self.undecided,
            "wrong_elements": 0,
        }


def _assert_none(where, what, bad, found, expected):
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        raise AssertionError(
            f"{where}: {int(bad.sum())} of {bad.numel()} {what} are wrong, in {int(bad.any(1).sum())} of {len(bad)} "
            f"rows, the first at {at}: got {found[at].item():.6g}, expected {expected[at].item():.6g}"
        )


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.fp4_quantization").stand_in_for_a_graph(call)
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


def _architecture():
    """As FlashInfer names it: of the GPU or, where there is none, of what it is told to compile for."""
    import torch

    if torch.cuda.is_available():
        return "{}{}".format(*torch.cuda.get_device_capability())
    return os.environ.get("FLASHINFER_CUDA_ARCH_LIST", "9.0a").split()[0].rstrip("af").replace(".", "")


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
