"""Does cutlass_fused_moe compute experts in FP8 with block scales right, each scale in its place?

It is called as vLLM calls it for DeepSeek: bf16 input, e4m3 weights with one float32 scale for each block of 128 x 128,
use_deepseek_fp8_block_scale; fc1 and its scales hold the linear half (up) first and the gate second. The call rounds
its input and silu(gate) * up to e4m3 itself, with one scale for 128 columns of a token. There are no tactics: the op
has one configuration, and DeepGEMM, which NVRTC compiles at the first call (another kernel serves where
TRTLLM_DG_ENABLED is 0 or the installed version does not find DeepGEMM's sources; 0.5 asks pip where they are). graph is
captured and replayed three times with other inputs and other routing, as vLLM decodes.

many_tokens has more tokens than the largest bucket of the op's tuner: 300 with tune_max_num_tokens=256, which vLLM
0.17.1 and 0.20.2 set to the size of their largest graph. Thousands would be other kernels of DeepGEMM to compile.

FlashInfer's own gate is asked before anything is built: a call that it refuses raises at once what a server would.

Shapes: 1, 37 and 300 tokens of 640, top 1 and top 4 of 7 experts of 384 (odd multiples of 128), one expert without a
token and one with half of them, more than a tile of 128. The scales of a block differ by half or more from those of the
next block, the next row of blocks, the next expert and the other half of fc1. Router weights differ for each token and
do not add up to 1. bf16 out; the output holds NaN before.

Tolerance: element by element 4 sqrt(S) + (k + 1) u A + 1e-5, where u = 2^-8 is the unit roundoff of bf16. S adds up
the squares of what roundings inside may change: the input is rounded to e4m3 (a sixteenth of each number, or half the
smallest step, times its weight of fc1), gate and up to bf16 (u |gate|, u |up|; both go through the slope of the
activation), silu(gate) * up to bf16 and then to e4m3 (u and a sixteenth of it, or half the smallest step), and all of
that is times its weight of fc2 and of the router. They are rounding errors, spread over +-c: a sum of them passes
4 sqrt(sum of c^2) with a probability below 1e-10; those of the input, which all of a token's columns share, come with
weights that are independent. What the tensor core drops in its FP8 sums (2^-13 of the largest addend, 128 at a time) is
a small part of that. A adds up the absolute values of the k addends, which are rounded. The reference is float64, on
the numbers that the e4m3 stand for and on the bf16 input.

Upstream: flashinfer/fused_moe/core.py (cutlass_fused_moe),
csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/fp8_blockscale_gemm/fp8_blockscale_gemm_kernel.cuh
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "moe.fp8_block",
    "feature": "moe.fp8_block",
    "module": "fused_moe_90",
    "requires": {
        "sm": ">=90,<91",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.fused_moe.cutlass_fused_moe",
            "flashinfer.fused_moe.core.get_cutlass_fused_moe_module",
        ],
    },
    "variants": {"eager": {}, "graph": {}, "many_tokens": {}},
    "subset": {"units": "fp8_block"},  # that part of the module is enough
    "gpus": 1,
    "timeout_s": 300,
    "build_timeout_s": 5400,
    "compiles": ["nvcc", "nvrtc"],
    "checks": "numbers",
}

ARCH = "90"  # as cutlass_fused_moe names the device when it asks for its module
TOKENS = (1, 37, 300)
TOP_K = (1, 4)
TUNE_MAX = 8192  # the largest bucket where a call says nothing
MANY = ((300, 4, 256),)  # tokens, top k, largest bucket
GRAPH_CASES = ((1, 4), (37, 4))  # tokens and top k
HIDDEN, INTERMEDIATE, EXPERTS, BLOCK = 640, 384, 7, 128
EMPTY, CROWDED = 5, 2  # the expert that no token goes to, and the one that most go to
UNIT, UNIT_E4M3, LARGEST_E4M3 = 2.0**-8, 2.0**-4, 448.0
STEP_E4M3 = 2.0**-9  # the distance of e4m3's smallest numbers


class _GateOpenError(Exception):
    """Raised in place of the build that follows the gate."""


def build(variant):  # noqa: ARG001 - one module for all of them
    import torch
    from flashinfer.fused_moe import core

    if _device().type == "cpu" or torch.cuda.is_available():  # the gate asks for the GPU
        _pass_gate(core)
    core.get_cutlass_fused_moe_module(ARCH)  # cached by this argument: the call finds it there


def _pass_gate(core):
    def build_nothing(*_, **__):
        raise _GateOpenError

    original = core.get_cutlass_fused_moe_module
    core.get_cutlass_fused_moe_module = build_nothing
    try:
        batch = _Batch(1, 1)
        _call(_Experts(), batch, batch.poisoned()[1:-1])
    except _GateOpenError:
        return
    finally:
        core.get_cutlass_fused_moe_module = original
    raise RuntimeError("cutlass_fused_moe returned without asking for its module: this probe does not fit this version")


def run(variant):
    experts, tally = _Experts(), _Tally()
    if variant == "graph":
        return _check_graph(experts, tally)
    usual = [(tokens, top_k) for top_k in TOP_K for tokens in TOKENS]
    for case in MANY if variant == "many_tokens" else usual:
        batch = _Batch(*case)
        buffer, kept = batch.poisoned(), batch.copies()
        _call(experts, batch, buffer[1:-1])
        batch.assert_equal(kept, f"{variant}, {batch}")
        tally.add(f"{variant}, {batch}", buffer[1:-1], experts, batch)
        assert buffer[[0, -1]].isnan().all(), f"{variant}, {batch}: something was written outside of the output"
    return tally.measured()


def _check_graph(experts, tally):
    for tokens, top_k in GRAPH_CASES:
        held = _Batch(tokens, top_k)
        out = held.poisoned()[1:-1]
        replay = _capture(lambda held=held, out=out: _call(experts, held, out))
        for turn in range(3):
            held.take(_Batch(tokens, top_k, seed=turn + 1))
            out.fill_(math.nan)
            replay()
            tally.add(f"replay {turn + 1} of a CUDA graph with new inputs, {held}", out, experts, held)
    return {"graphs": len(GRAPH_CASES), **tally.measured()}


class _Experts:
    """The weights, the linear half of fc1 first, and the scales of their blocks."""

    def __init__(self):
        import torch

        generator = torch.Generator(_device()).manual_seed(7)

        def normal(rows, columns, deviation):
            counts = (EXPERTS, rows // BLOCK, columns // BLOCK)
            expert, row, column = torch.cartesian_prod(*(torch.arange(n, device=generator.device) for n in counts)).T
            factors = torch.exp2((expert + row + 2 * column) % 4 - 2.0).reshape(counts)
            one = torch.randn((EXPERTS, rows, columns), generator=generator, device=generator.device)
            return _quantised(one * deviation / math.sqrt(columns) * _spread(factors))

        self.fc1, self.scales1 = normal(2 * INTERMEDIATE, HIDDEN, 1.5)
        self.fc2, self.scales2 = normal(HIDDEN, INTERMEDIATE, 1.0)

    def reference(self, batch, *, swapped=False):
        """Output, and how far a right kernel may be from it; with swapped, of gate and up the wrong way round."""
        import torch

        x = batch.x.double()
        out, square, size = (torch.zeros(batch.x.shape, dtype=torch.float64, device=_device()) for _ in range(3))
        for expert in range(EXPERTS):
            rows, places = (batch.experts == expert).nonzero(as_tuple=True)
            weights = batch.weights[rows, places, None].double()
            fc1 = (self.fc1[expert].double() * _spread(self.scales1[expert])).T
            hidden, x_error = x[rows] @ fc1, _e4m3_rounding(x[rows]) ** 2 @ fc1**2
            up, gate = hidden.chunk(2, 1)
            up_error, gate_error = (x_error + (UNIT * hidden) ** 2).chunk(2, 1)
            if swapped:
                up, gate, up_error, gate_error = gate, up, gate_error, up_error
            product, error = _swiglu(up, gate, up_error, gate_error)
            fc2 = (self.fc2[expert].double() * _spread(self.scales2[expert])).T
            addend = weights * (product @ fc2)
            out.index_add_(0, rows, addend)
            square.index_add_(0, rows, weights**2 * (error @ fc2**2))
            size.index_add_(0, rows, addend.abs())
        return out, 4 * square.sqrt() + (batch.top_k + 1) * UNIT * size + 1e-5


def _swiglu(up, gate, up_error, gate_error):
    """silu(gate) * up, and the squares of what the roundings may change of it, added up; errors are squares."""
    sigmoid = gate.sigmoid()
    product = gate * sigmoid * up
    slope = sigmoid * (1 + gate * (1 - sigmoid)) * up  # by gate
    rounding = _e4m3_rounding(product) ** 2 + (UNIT * product) ** 2
    return product, rounding + (gate * sigmoid) ** 2 * up_error + slope**2 * gate_error


def _e4m3_rounding(x):
    """How far e4m3 with one scale for 128 columns of a row, the largest at 448, may be from each number."""
    import torch

    blocks = x.abs().unflatten(1, (-1, BLOCK))
    half_a_step = blocks.amax(2, keepdim=True) / LARGEST_E4M3 * STEP_E4M3 / 2
    return torch.maximum(UNIT_E4M3 * blocks, half_a_step).flatten(1)


def _quantised(weights):
    """e4m3 [E, rows, columns] and scales [E, rows / 128, columns / 128]."""
    import torch

    experts, rows, columns = weights.shape
    blocks = weights.reshape(experts, rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
    scales = blocks.abs().amax((2, 4)) / LARGEST_E4M3
    return (weights / _spread(scales)).to(torch.float8_e4m3fn), scales.contiguous()


def _spread(scales):
    """The scale of each weight."""
    return scales.repeat_interleave(BLOCK, -2).repeat_interleave(BLOCK, -1)


class _Batch:
    """Tokens, the experts that they go to, and with which weights."""

    def __init__(self, tokens, top_k, largest_bucket=TUNE_MAX, seed=0):
        import torch

        generator = torch.Generator(_device()).manual_seed(1000 * seed + 10 * tokens + top_k)
        self.tokens, self.top_k, self.largest_bucket = tokens, top_k, largest_bucket
        self.x = torch.randn((tokens, HIDDEN), generator=generator, device=generator.device).bfloat16()
        logits = torch.randn((tokens, EXPERTS), generator=generator, device=generator.device)
        logits[:, CROWDED] += 1.5
        logits[:, EMPTY] = -math.inf
        weights, experts = logits.softmax(-1).topk(top_k, -1)
        self.weights, self.experts = weights.contiguous(), experts.int().contiguous()
        self.computed = None

    def __str__(self):
        return f"{self.tokens} tokens, top {self.top_k}"

    def reference(self, experts):
        """Output and bound; computed once for all tactics."""
        if self.computed is None:
            self.computed = experts.reference(self)
        return self.computed

    def poisoned(self):
        """An output of NaN, with a row before and one after it that are nobody's."""
        import torch

        return torch.full((self.tokens + 2, HIDDEN), math.nan, dtype=torch.bfloat16, device=_device())

    def copies(self):
        return [tensor.clone() for tensor in (self.x, self.weights, self.experts)]

    def assert_equal(self, kept, where):
        import torch

        for name, mine, before in zip(
            ("input was", "router weights were", "experts were"), self.copies(), kept, strict=True
        ):
            assert torch.equal(mine.view(torch.uint8), before.view(torch.uint8)), f"{where}: the {name} changed"

    def take(self, other):
        """The contents of another batch, in the memory of this one."""
        self.computed = None
        for mine, theirs in ((self.x, other.x), (self.weights, other.weights), (self.experts, other.experts)):
            mine.copy_(theirs)


def _call(experts, batch, out):
    import torch
    from flashinfer.fused_moe import cutlass_fused_moe

    cutlass_fused_moe(
        input=batch.x,
        token_selected_experts=batch.experts,
        token_final_scales=batch.weights,
        fc1_expert_weights=experts.fc1,
        fc2_expert_weights=experts.fc2,
        output_dtype=torch.bfloat16,
        quant_scales=[experts.scales1, experts.scales2],
        use_deepseek_fp8_block_scale=True,
        output=out,
        tp_size=1,
        tp_rank=0,
        ep_size=1,
        ep_rank=0,
        tune_max_num_tokens=batch.largest_bucket,
    )


class _Tally:
    """Compares outputs with references and keeps count."""

    def __init__(self):
        self.elements, self.cases, self.worst = 0, 0, 0.0

    def add(self, where, out, experts, batch):
        reference, bound = batch.reference(experts)
        error = (out.double() - reference).abs()
        bad = ~(error <= bound)  # NaN is wrong
        if bad.any():
            other, allowed = experts.reference(batch, swapped=True)
            assert not ((out.double() - other).abs() <= allowed).all(), (
                f"{where}: gate and up are swapped: the numbers are those of silu(up) * gate"
            )
            at = tuple(bad.nonzero()[0].tolist())
            raise AssertionError(
                f"{where}: {int(bad.sum())} of {out.numel()} elements are wrong, in {int(bad.any(1).sum())} of "
                f"{batch.tokens} tokens, the first at {at}: got {out[at].item():.6g}, expected "
                f"{reference[at].item():.6g} within {bound[at].item():.2g}"
            )
        self.elements += out.numel()
        self.cases += 1
        self.worst = max(self.worst, float((error / bound).max()))

    def measured(self):
        return {
            "cases": self.cases,
            "elements": self.elements,
            "largest_error_of_bound": round(self.worst, 3),
            "wrong_elements": 0,
        }


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.fused_moe.core").stand_in_for_a_graph(call)
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
