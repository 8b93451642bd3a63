"""Does flashinfer.fp4_quantize round to NVFP4 right, and does each block's scale lie where its layout says?

Two numbers of e2m1 lie in a byte, the first in its low half; 16 of a row share a scale in e4m3, which is the largest of
them over 6, times the global scale. The scales lie row by row (linear), or swizzled in tiles of 128 x 4 or 8 x 4,
padded with zeros. interleave is block_scale_interleave, which brings linear scales into tiles of 128 x 4.
graph_swizzled is captured in a CUDA graph and replayed three times with other inputs and another global scale.

The outputs are what FlashInfer allocates: while it is called, torch.empty gives it memory that holds a pattern, with
256 bytes on both sides that must keep it. Each call is made with two patterns; bytes that were not written show in at
least one of them. FlashInfer compiles the kernel for older GPUs, too; the code in it is for SM100 and later.

Shapes: 1, 37 and 300 rows of 320 in bf16, 37 rows in fp16. The global scale is a power of two, or 448 * 6 over the
largest number, as vLLM has it. Blocks differ in scale from their neighbours and from those of the next row, so that no
layout can be taken for another. The first row has all numbers of e2m1 and all halves between them; one block is zero.

Tolerance: none, but for what an approximate reciprocal (2^-23) decides. A scale within 2^-20 of the half between two
e4m3 may be either of them; each number is rounded, ties to even, with the scale that is there, and one within 2^-20 of
a half between two e2m1 may be either, unless all scales are powers of two, where nothing is approximate.

Upstream: flashinfer/fp4_quantization.py (flashinfer/quantization/ from 0.6),
csrc/nv_internal/tensorrt_llm/kernels/quantization.cuh, csrc/nv_internal/tensorrt_llm/thop/fp4Quantize.cpp
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "quant.fp4",
    "feature": "quant.fp4",
    "module": "fp4_quantization_90",
    "requires": {
        "sm": ">=90",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.fp4_quantization.fp4_quantize",
            "flashinfer.fp4_quantization.block_scale_interleave",
        ],
    },
    "variants": {"swizzled_128x4": {}, "swizzled_8x4": {}, "linear": {}, "graph_swizzled": {}, "interleave": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

TILES = {"swizzled_128x4": 128, "graph_swizzled": 128, "swizzled_8x4": 8}  # rows of a tile of scales
ROWS, COLUMNS, BLOCK = (1, 37, 300), 320, 16
INTERLEAVED = ((300, 13), (37, 20), (3, 37, 18))  # shapes of linear scales
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # the halves between them
PATTERNS = (0x5A, 0xA5)
GUARD = 256  # bytes before and after an output; keeps it aligned
UNDECIDED = 2.0**-20  # relative: so close to a half, an approximate reciprocal decides


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.fp4_quantization import get_fp4_quantization_module

    get_fp4_quantization_module(_architecture())  # cached by this argument: the call finds it there


def run(variant):
    tally = _Tally(variant)
    if variant == "interleave":
        return _check_interleave(tally)
    if variant == "graph_swizzled":
        return _check_graph(variant, tally)
    for case in _cases():
        kept = case.x.clone(), case.global_scale.clone()
        for pattern in PATTERNS:
            with _Poison(pattern) as poison:
                values, scales = _call(variant, case)
            tally.add(str(case), values, scales, case, poison)
        assert _same(kept[0], case.x), f"{case}: the input was changed"
        assert _same(kept[1], case.global_scale), f"{case}: the global scale was changed"
    return tally.measured()


def _check_graph(variant, tally):
    for rows in ROWS[:2]:
        held = _Case(rows, "bf16", power=False)
        poison, results = _Poison(PATTERNS[0]), []

        def call(held=held, poison=poison, results=results):
            with poison:
                results.append(_call(variant, held))

        replay = _capture(call)
        for turn in range(3):
            held.take(_Case(rows, "bf16", power=turn == 1, seed=turn + 1))
            poison.fill()
            replay()
            tally.add(f"replay {turn + 1} of a CUDA graph with new inputs, {held}", *results[-1], held, poison)
    return {"graphs": 2, **tally.measured()}


def _check_interleave(tally):
    import torch
    from flashinfer.fp4_quantization import block_scale_interleave

    generator = torch.Generator(_device()).manual_seed(3)
    for shape in INTERLEAVED:
        scales = torch.randint(1, 255, shape, generator=generator, device=_device(), dtype=torch.uint8)
        for pattern in PATTERNS:
            with _Poison(pattern) as poison:
                swizzled = block_scale_interleave(scales)
            tally.add_interleaved(f"scales {shape}", swizzled, scales, poison)
    return tally.measured()


def _call(variant, case):
    from flashinfer.fp4_quantization import fp4_quantize

    return fp4_quantize(
        case.x,
        case.global_scale,
        sf_vec_size=BLOCK,
        sf_use_ue8m0=False,
        is_sf_swizzled_layout=variant != "linear",
        is_sf_8x4_layout=variant == "swizzled_8x4",
    )


def _cases():
    return [
        _Case(rows, dtype, power)
        for rows, dtype in (*((rows, "bf16") for rows in ROWS), (37, "fp16"))
        for power in (True, False)
    ]


class _Case:
    """A tensor to round and the global scale."""

    def __init__(self, rows, dtype, power, seed=0):
        import torch

        generator = torch.Generator(_device()).manual_seed(1000 * seed + rows)
        device = generator.device
        count = COLUMNS // BLOCK
        row, block = torch.arange(rows, device=device)[:, None], torch.arange(count, device=device)
        factors = torch.exp2((3 * row + 2 * block + seed) % 7 - 3.0)
        x = torch.randn((rows, count, BLOCK), generator=generator, device=device)
        halves = torch.tensor([*TIES, 6.0], device=device)
        x[0, ::2] = torch.cat([halves, -halves])
        x[0, 1] = torch.tensor([*E2M1, *(-number for number in E2M1)], device=device)
        if rows > 1:
            x[-1, 3] = 0
        self.name = f"{rows} rows of {dtype}, global scale {'a power of two' if power else 'of the largest'}"
        self.x = (x * factors[..., None]).flatten(1).to(torch.bfloat16 if dtype == "bf16" else torch.float16)
        largest = 448.0 * 6.0 / self.x.float().abs().max()
        self.global_scale = torch.full((1,), 4.0, device=device) if power else largest.reshape(1)

    def __str__(self):
        return self.name

    def take(self, other):
        """The contents of another case, in the memory of this one."""
        self.name = other.name
        self.x.copy_(other.x)
        self.global_scale.copy_(other.global_scale)

    def blocks(self):
        return self.x.double().unflatten(1, (-1, BLOCK))

    def scales(self):
        """The smallest and the largest scale that each block may have."""
        import torch

        scale = self.blocks().abs().amax(2) / 6 * self.global_scale.double()
        below, above = ((scale * (1 + side)).float().clamp(max=448.0) for side in (-UNDECIDED, UNDECIDED))
        return below.to(torch.float8_e4m3fn).double(), above.to(torch.float8_e4m3fn).double()

    def rounded(self, scales):
        """Every number in e2m1 by these scales, the distance to the next one where a tie may go there, and ties."""
        import torch

        up = torch.where(scales > 0, self.global_scale.double() / scales, 0.0)
        value = self.blocks() * up[..., None]
        size = value.abs()
        step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
        rounded = (value / step).round().mul(step).clamp(-6, 6)  # round() takes a half to the even neighbour
        distance = ((size / step) % 1 - 0.5).abs() * step
        exact = (torch.log2(scales) % 1 == 0) & (torch.log2(self.global_scale.double()) % 1 == 0)
        near = (distance <= UNDECIDED * size) & (size < 6)
        slack = (near & ~exact[..., None]) * step
        return rounded, slack, near & exact[..., None]


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


def _from_tiles(stored, rows, tile):
    """Scales [padded rows, padded columns] from tiles of 8 or 128 rows by 4; of 128, rows 32 apart are side by side."""
    padded = -(-rows // tile) * tile
    if tile == 8:
        tiles = stored.view(padded // 8, -1, 8, 4).permute(0, 2, 1, 3)
    else:
        tiles = stored.view(padded // 128, -1, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(padded, -1)


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
        tile = TILES.get(self.variant, 1)
        wanted = (rows, columns // 2), (-(-rows // tile) * tile, columns // BLOCK)
        for name, tensor, shape in (("values", values, wanted[0]), ("scales", scales, wanted[1])):
            assert tensor.shape == shape, f"{where}: {name} of shape {tuple(tensor.shape)}, expected {shape}"
            assert str(tensor.dtype) == "torch.uint8", f"{where}: {name} in {tensor.dtype}, expected uint8"
            assert tensor.is_contiguous(), f"{where}: {name} with strides {tensor.stride()}"
        poison.assert_written(where, values=values, scales=scales)
        found = self._check_scales(where, scales, case, tile)
        self._check_values(where, values, found, case)

    def _check_scales(self, where, scales, case, tile):
        """The scale of each block."""
        import torch

        rows = case.x.shape[0]
        laid_out = scales if tile == 1 else _from_tiles(scales, rows, tile)
        padding = int((laid_out[rows:] != 0).sum())
        assert not padding, f"{where}: {padding} of the scales that pad the tiles are not zero"
        found = laid_out[:rows].contiguous().view(torch.float8_e4m3fn).double()
        below, above = case.scales()
        _assert_none(where, "scales", ~((found >= below) & (found <= above)), found, above)  # NaN is wrong
        self.scales += found.numel()
        self.undecided += int((below != above).sum())
        return found

    def _check_values(self, where, values, scales, case):
        import torch

        halves = torch.stack([values & 15, values >> 4], -1).flatten(1).long()
        found = torch.tensor(E2M1, device=values.device).double()[halves & 7] * (1 - 2 * (halves >> 3))
        rounded, slack, ties = (part.flatten(1) for part in case.rounded(scales))
        _assert_none(where, "elements", ~((found - rounded).abs() <= slack), found, rounded)
        self.elements += found.numel()
        self.ties += int(ties.sum())
        self.undecided += int((slack > 0).sum())

    def add_interleaved(self, where, swizzled, scales, poison):
        shape = scales.shape if scales.dim() == 3 else (1, *scales.shape)
        padded = -(-shape[1] // 128) * 128, -(-shape[2] // 4) * 4
        count = shape[0] * math.prod(padded)
        assert swizzled.numel() == count, f"{where}: {swizzled.numel()} elements, expected {count}"
        poison.assert_written(where, scales=swizzled)
        for number, one in enumerate(scales.view(shape)):
            found = _from_tiles(swizzled.view(shape[0], -1)[number], shape[1], 128).long()
            expected = found.new_zeros(padded)
            expected[: shape[1], : shape[2]] = one
            _assert_none(f"{where}, matrix {number}", "elements", found != expected, found, expected)
        self.scales += count

    def measured(self):
        return {
            "shapes": f"rows of {COLUMNS}, blocks of {BLOCK}" if self.elements else str(INTERLEAVED),
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
