"""Does per_token_group_quant_8bit round groups to FP8 or INT8 right, and does each group's scale lie where it should?

A group of 128 numbers of a row (96 in group_96, which is no power of two) shares a float32 scale, its largest absolute
number (1e-10, if that is larger) over the largest of the type: e4m3, or int8. The scales lie row by row, or column by
column, also with columns padded to 16 bytes (tma), or rounded up to powers of two (ue8m0, still in float32).
graph_rows is captured in a CUDA graph and replayed three times with other inputs.

The kernel is one of cuda.tile, which compiles it at the first call: cuda-tile is a dependency of FlashInfer, its
compiler tileiras (nvidia-cuda-tileiras, or a CUDA toolkit from 13.1 on) is none, and without it the call raises. vLLM
has its own kernel.

The outputs are what FlashInfer allocates: while it is called, torch.empty and torch.empty_like give it memory that
holds a pattern, with 256 bytes on both sides that must keep it.

Shapes: 1, 37 and 300 rows of 768 in bf16, 37 rows in fp16 and in float32. Groups differ in scale from their neighbours
and from those of the next row, so that no layout can be taken for another. One group is zero.

Tolerance: scales 2^-22 of themselves (one division in float32, which may be an approximate one); of a power of two it
must be that one, but where the exact one is within 2^-20 of it, it may be the next. Numbers are exact by the scale that
is there; where the quotient is within 2^-20 of itself of a tie (with int8, which adds a half and cuts off, 2^-14), the
rounding of division and product decides. By powers of two the quotients are exact, and ties go to the even number.

Upstream: flashinfer/quantization/fp8_quantization.py,
flashinfer/quantization/kernels/cutile/per_token_group_quant_8bit_cutile.py
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "quant.fp8",
    "feature": "quant.fp8",
    "module": "",
    "requires": {
        "sm": ">=90",
        "flashinfer": ">=0.7",
        "symbols": ["flashinfer.quantization.fp8_quantization.per_token_group_quant_8bit"],
        "packages": {"cuda-tile": ">=1.4"},
    },
    "variants": {
        "rows": {},
        "graph_rows": {},
        "columns": {},
        "tma_columns": {},
        "ue8m0_columns": {},
        "group_96": {},
        "int8": {},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 300,
    "compiles": ["cutile"],
    "checks": "numbers",
}

ROWS, COLUMNS = (1, 37, 300), 768
GROUPS = {"group_96": 96}  # else 128
LEAST = 1e-10  # eps: what the largest of a group counts at least
SCALE_ERROR = 2.0**-22  # relative
UNDECIDED = 2.0**-20  # relative: so close to a tie, the rounding of the quotient decides
UNDECIDED_INT8 = 2.0**-14  # absolute: a half is added, and 128 + 0.5 in float32 is exact to 2^-16
PATTERN = 0x5A
GUARD = 256  # bytes before and after an output; keeps it aligned


def run(variant):
    tally = _Tally()
    if variant.startswith("graph"):
        return _check_graph(variant, tally)
    for rows, dtype in (*((rows, "bfloat16") for rows in ROWS), (37, "float16"), (37, "float32")):
        case = _Case(variant, rows, dtype)
        kept = case.x.clone()
        with _Poison() as poison:
            values, scales = _call(case)
        tally.add(str(case), values, scales, case)
        poison.assert_kept(str(case))
        assert _same(kept, case.x), f"{case}: the input was changed"
    return tally.measured()


def _check_graph(variant, tally):
    for rows in ROWS[:2]:
        held = _Case(variant, rows, "bfloat16")
        poison, results = _Poison(), []

        def call(held=held, poison=poison, results=results):
            with poison:
                results.append(_call(held))

        replay = _capture(call)
        for turn in range(3):
            held.x.copy_(_Case(variant, rows, "bfloat16", seed=turn + 1).x)
            poison.fill()
            replay()
            tally.add(f"replay {turn + 1} of a CUDA graph with new inputs, {held}", *results[-1], held)
            poison.assert_kept(str(held))
    return {"graphs": 2, **tally.measured()}


def _call(case):
    import flashinfer.quantization.fp8_quantization
    import torch

    return flashinfer.quantization.fp8_quantization.per_token_group_quant_8bit(
        case.x,
        case.group,
        dst_dtype=torch.int8 if case.is_int8 else torch.float8_e4m3fn,
        column_major_scales=case.is_columns,
        scale_tma_aligned=case.is_tma,
        scale_ue8m0=case.is_power,
    )


class _Case:
    """A tensor to round."""

    def __init__(self, variant, rows, dtype, seed=0):
        import torch

        generator = torch.Generator(_device()).manual_seed(1000 * seed + rows)
        device = generator.device
        self.name = f"{rows} rows of {dtype}"
        self.group = GROUPS.get(variant, 128)
        self.is_int8, self.is_columns = variant == "int8", variant.endswith("columns")
        self.is_tma, self.is_power = variant == "tma_columns", variant == "ue8m0_columns"
        self.largest = 127.0 if self.is_int8 else 448.0
        count = COLUMNS // self.group
        row, block = torch.arange(rows, device=device)[:, None], torch.arange(count, device=device)
        factors = torch.exp2((3 * row + 2 * block + seed) % 7 - 3.0)
        x = torch.randn((rows, count, self.group), generator=generator, device=device)
        if rows > 1:
            x[-1, 3] = 0
        self.x = (x * factors[..., None]).flatten(1).to(getattr(torch, dtype))

    def __str__(self):
        return self.name

    def groups(self):
        return self.x.double().unflatten(1, (-1, self.group))

    def scales(self):
        """The smallest and the largest that each scale may be, [rows, groups]."""
        import torch

        exact = self.groups().abs().amax(2).clamp(min=LEAST) / self.largest
        if not self.is_power:
            return exact * (1 - SCALE_ERROR), exact * (1 + SCALE_ERROR)
        exact = exact.clamp(min=1e-10)
        return tuple(torch.exp2(torch.log2(exact * (1 + side)).ceil()) for side in (-UNDECIDED, UNDECIDED))

    def rounded(self, scales):
        """The smallest and the largest that each number may be by these scales."""
        quotient = (self.groups() / scales[..., None]).flatten(1)
        if self.is_int8:
            sides = (quotient - UNDECIDED_INT8, quotient + UNDECIDED_INT8)
            return tuple((side + 0.5).floor().clamp(-128, 127) for side in sides)
        slack = 0.0 if self.is_power else UNDECIDED * quotient.abs()
        return tuple(_to_e4m3(side) for side in (quotient - slack, quotient + slack))


def _to_e4m3(value):
    """The nearest number of e4m3; of two the even one, as round() takes a half."""
    step = value.abs().clamp(min=2.0**-6).log2().floor().sub(3).exp2()
    return (value / step).round().mul(step).clamp(-448.0, 448.0)


class _Poison:
    """While it is entered, what torch.empty and torch.empty_like return holds a pattern and lies between guards."""

    def __init__(self):
        self.buffers = []

    def __enter__(self):
        import torch

        self.original, self.original_like = torch.empty, torch.empty_like
        torch.empty, torch.empty_like = self._empty, self._empty_like
        return self

    def __exit__(self, *_):
        import torch

        torch.empty, torch.empty_like = self.original, self.original_like

    def _empty(self, *size, **options):
        if set(options) - {"dtype", "device"}:
            return self.original(*size, **options)
        import torch

        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        dtype = options.get("dtype") or torch.get_default_dtype()
        count = math.prod(shape) * dtype.itemsize
        buffer = self.original((GUARD + count + GUARD,), dtype=torch.uint8, device=options.get("device"))
        self.buffers.append(buffer.fill_(PATTERN))
        return buffer[GUARD : GUARD + count].view(dtype).view(shape)

    def _empty_like(self, like, **options):
        if set(options) - {"dtype", "device"} or not like.is_contiguous():
            return self.original_like(like, **options)
        return self._empty(like.shape, **{"dtype": like.dtype, "device": like.device, **options})

    def fill(self):
        for buffer in self.buffers:
            buffer.fill_(PATTERN)

    def assert_kept(self, where):
        for buffer in self.buffers:
            beside = (buffer[:GUARD] != PATTERN).any() | (buffer[-GUARD:] != PATTERN).any()
            assert not beside, f"{where}: something was written beside an output"


def _same(one, other):
    import torch

    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))


class _Tally:
    """Compares values and scales with what they should be and keeps count."""

    def __init__(self):
        self.elements = self.scales = self.undecided = 0

    def add(self, where, values, scales, case):
        import torch

        rows, count = len(case.x), COLUMNS // case.group
        strides = (count, 1)
        if case.is_columns:
            strides = (1, -(-rows // 4) * 4 if case.is_tma else rows)
        dtype = torch.int8 if case.is_int8 else torch.float8_e4m3fn
        assert values.shape == case.x.shape, f"{where}: values of shape {tuple(values.shape)}"
        assert values.dtype == dtype, f"{where}: values in {values.dtype}, expected {dtype}"
        assert values.is_contiguous(), f"{where}: values with strides {values.stride()}"
        assert scales.shape == (rows, count), f"{where}: scales of shape {tuple(scales.shape)}"
        assert scales.dtype == torch.float32, f"{where}: scales in {scales.dtype}, expected float32"
        # The stride of a dimension of one says nothing.
        wrong = [got for got, wanted, size in zip(scales.stride(), strides, scales.shape) if size > 1 and got != wanted]  # noqa: B905 - Python 3.9
        assert not wrong, f"{where}: scales with strides {scales.stride()}, expected {strides}"
        least, most = case.scales()
        found = scales.double()
        _assert_none(where, "scales", ~((found >= least) & (found <= most)), found, most)
        low, high = case.rounded(found)
        stored = values.double()
        _assert_none(where, "elements", ~((stored >= low) & (stored <= high)), stored, low)  # NaN is wrong
        self.elements += values.numel()
        self.scales += scales.numel()
        self.undecided += int((low != high).sum())

    def measured(self):
        return {
            "shapes": f"rows of {COLUMNS}",
            "elements": self.elements,
            "scales": self.scales,
            "undecided": self.undecided,
            "wrong_elements": 0,
        }


def _assert_none(where, what, bad, found, expected):
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        raise AssertionError(
            f"{where}: {int(bad.sum())} of {bad.numel()} {what} are wrong, in {int(bad.any(1).sum())} of {len(bad)} "
            f"rows, the first at {at}: got {found[at].item():.9g}, expected {expected[at].item():.9g}"
        )


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.quantization.fp8_quantization").stand_in_for_a_graph(call)
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
        print(name, run(name))
