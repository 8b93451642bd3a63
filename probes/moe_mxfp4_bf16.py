"""Does cutlass_fused_moe compute experts with MXFP4 weights and bf16 activations right, in the layout it reads here?

It is called as vLLM calls it for gpt-oss: uint8 weights with two e2m1 in a byte (the lower half first), one e8m0 scale
for 32 of a row, use_w4_group_scaling; fc1 holds the linear half (up) first and the gate second. Where FlashInfer has
interleave_moe_weights_for_sm90_mixed_gemm (0.6.10 and newer), it lays out the weights, and its companion the scales, as
the installed version reads them. Older ones take weights as they are and scales as vLLM interleaves them. A wrong
layout gives wrong numbers and no error once K is more than 128.

*_gpt_oss have biases and gpt-oss's activation: clamp(gate, max 7) * sigmoid(1.702 gate) * (clamp(up, -7, 7) + 1); the
others silu(gate) * up. tactic_0 runs both GEMMs with their first tactic; untuned leaves the choice to FlashInfer, as in
a server that did not tune; all_tactics runs every tactic of GEMM 1 and then every one of GEMM 2, the other one with its
first (one that refuses is counted and no failure: a tuner passes over it). graph is captured with the first tactics and
replayed three times with other inputs and other routing, as vLLM decodes.

many_tokens leaves the choice to FlashInfer, too, with more tokens than the largest bucket of its tuner: 8209 where a
call says nothing (8192), and 300 with tune_max_num_tokens=256, which vLLM 0.17.1 and 0.20.2 set to the size of their
largest graph.

A tactic is chosen through the op's own interface: while the probe calls, AutoTuner.choose_one returns it.

Shapes: 1, 37 and 300 tokens of 640, top 1 and top 4 of 7 experts of 384 (odd multiples of 128, as gpt-oss's 2880 in
vLLM), one expert without a token and one with half of them, more than a tile of 128. Scales of neighbouring blocks
differ. Router weights differ for each token and do not add up to 1. bf16 in and out; the output holds NaN before.

Tolerance: element by element 4 sqrt(S) + (k + 1) u A + 1e-5, where u = 2^-8 is the unit roundoff of bf16. S adds up
the squares of what roundings inside may change: gate and up are rounded (u |gate|, u |up|, before or after the bias,
each through the slope of the activation) and so is their product (u |product|), each times its weight of fc2 and of the
router. They are rounding errors, spread over +-c: a sum of them passes 4 sqrt(sum of c^2) with a probability below
1e-10. A adds up the absolute values of the k addends, before or after their bias: what GEMM 2 gives is rounded before,
and each partial sum after it where GEMM 2 adds in bf16. The weights themselves are exact in bf16. The reference is
float64, on the numbers that the MXFP4 stand for.

Upstream: flashinfer/fused_moe/core.py (cutlass_fused_moe), flashinfer/fused_moe/prepare.py (since 0.6.10),
csrc/fused_moe/cutlass_backend/cutlass_fused_moe_kernels.cuh
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "moe.mxfp4_bf16",
    "feature": "moe.mxfp4_bf16",
    "module": "fused_moe_90",
    "requires": {
        "sm": ">=90,<91",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.fused_moe.cutlass_fused_moe",
            "flashinfer.fused_moe.core.get_cutlass_fused_moe_module",
        ],
    },
    "variants": {
        "tactic_0": {},
        "untuned": {},
        "graph": {},
        "tactic_0_gpt_oss": {},
        "untuned_gpt_oss": {},
        "graph_gpt_oss": {},
        "many_tokens_gpt_oss": {},
        "all_tactics": {},
    },
    "subset": {
        "units": "mxfp4_bf16",
        "variants": [
            "tactic_0",
            "untuned",
            "graph",
            "tactic_0_gpt_oss",
            "untuned_gpt_oss",
            "graph_gpt_oss",
            "many_tokens_gpt_oss",
        ],
    },  # that part of the module is enough
    "gpus": 1,
    "timeout_s": 300,
    "build_timeout_s": 5400,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

ARCH = "90"  # as cutlass_fused_moe names the device when it asks for its module
TOKENS = (1, 37, 300)
TOP_K = (1, 4)
TUNE_MAX = 8192  # the largest bucket where a call says nothing
MANY = ((8209, 2, TUNE_MAX), (300, 4, 256))  # tokens, top k, largest bucket
GRAPH_CASES = ((1, 4), (37, 4))  # tokens and top k
HIDDEN, INTERMEDIATE, EXPERTS = 640, 384, 7
EMPTY, CROWDED = 5, 2  # the expert that no token goes to, and the one that most go to
UNIT = 2.0**-8
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
GROUP = 32  # numbers of a row for each scale
ALPHA, BETA, LIMIT = 1.702, 1.0, 7.0


def build(variant):  # noqa: ARG001 - one module for all of them
    from flashinfer.fused_moe.core import get_cutlass_fused_moe_module

    get_cutlass_fused_moe_module(ARCH)  # cached by this argument: the call finds it there


def run(variant):
    is_gpt_oss = variant.endswith("_gpt_oss")
    experts, tally = _Experts(is_gpt_oss=is_gpt_oss), _Tally()
    kind = variant.removesuffix("_gpt_oss")
    if kind == "graph":
        return _check_graph(experts, tally)
    cases = [_Batch(*case) for case in MANY] if kind == "many_tokens" else _usual()
    if kind == "all_tactics":
        return _check_all_tactics(experts, cases, tally)
    with _Tactics(None if kind in ("untuned", "many_tokens") else (0, 0)) as tactics:
        _check_cases(experts, cases, tally, variant)
    return {**tactics.measured(), "layout": experts.layout, **tally.measured()}


def _usual():
    return [_Batch(tokens, top_k) for top_k in TOP_K for tokens in TOKENS]


def _check_cases(experts, cases, tally, where):
    for batch in cases:
        buffer, kept = batch.poisoned(), batch.copies()
        _call(experts, batch, buffer[1:-1])
        batch.assert_equal(kept, f"{where}, {batch}")
        tally.add(f"{where}, {batch}", buffer[1:-1], experts, batch)
        assert buffer[[0, -1]].isnan().all(), f"{where}, {batch}: something was written outside of the output"


def _check_all_tactics(experts, cases, tally):
    with _Tactics((0, 0)) as first:
        _check_cases(experts, cases, tally, "tactics 0 and 0")
    refused = []
    counts = first.counts()
    for numbers in [*((n, 0) for n in range(1, counts[0])), *((0, n) for n in range(1, counts[1]))]:
        where = f"tactics {numbers[0]} and {numbers[1]}"
        try:
            with _Tactics(numbers):
                _check_cases(experts, cases, tally, where)
        except RuntimeError as error:
            refused.append(f"{where}: {str(error).strip().splitlines()[0][:200]}")
            with _Tactics((0, 0)):  # raises where that was the end of the device
                _check_cases(experts, cases[:1], tally, f"tactics 0 and 0 after {where}")
    said = {"first_refused": refused[0]} if refused else {}
    return {
        **first.measured(),
        "tactics": "all",
        "refused": len(refused),
        **said,
        "layout": experts.layout,
        **tally.measured(),
    }


def _check_graph(experts, tally):
    with _Tactics((0, 0)) as tactics:
        for tokens, top_k in GRAPH_CASES:
            held = _Batch(tokens, top_k)
            out = held.poisoned()[1:-1]
            replay = _capture(lambda held=held, out=out: _call(experts, held, out))
            for turn in range(3):
                held.take(_Batch(tokens, top_k, seed=turn + 1))
                out.fill_(math.nan)
                replay()
                tally.add(f"replay {turn + 1} of a CUDA graph with new inputs, {held}", out, experts, held)
    return {**tactics.measured(), "layout": experts.layout, "graphs": len(GRAPH_CASES), **tally.measured()}


class _Experts:
    """The weights, the linear half of fc1 first: as the call takes them, and the numbers that they stand for."""

    def __init__(self, *, is_gpt_oss):
        import torch

        generator = torch.Generator(_device()).manual_seed(7)

        def normal(*shape):
            return torch.randn(shape, generator=generator, device=generator.device)

        def weights(rows, columns, deviation):
            factors = torch.exp2(normal(EXPERTS, rows, columns // GROUP, 1).round())  # neighbouring scales differ
            grouped = normal(EXPERTS, rows, columns // GROUP, GROUP) * factors
            return _quantised(grouped * deviation / math.sqrt(columns))

        self.values1, codes1, scales1 = weights(2 * INTERMEDIATE, HIDDEN, 1.5)
        self.values2, codes2, scales2 = weights(HIDDEN, INTERMEDIATE, 0.5)
        self.fc1, self.scales1, self.layout = _laid_out(codes1, scales1)
        self.fc2, self.scales2, _ = _laid_out(codes2, scales2)
        self.bias1 = self.bias2 = self.alpha = self.beta = self.limit = None
        if is_gpt_oss:
            self.bias1 = normal(EXPERTS, 2 * INTERMEDIATE).bfloat16()
            self.bias2 = normal(EXPERTS, HIDDEN).bfloat16()
            each = torch.ones(EXPERTS, device=generator.device)
            self.alpha, self.beta, self.limit = ALPHA * each, BETA * each, LIMIT * each

    def reference(self, batch, *, swapped=False):
        """Output, and how far a right kernel may be from it; with swapped, of gate and up the wrong way round."""
        import torch

        x = batch.x.double()
        out, square, size = (torch.zeros(batch.x.shape, dtype=torch.float64, device=_device()) for _ in range(3))
        for expert in range(EXPERTS):
            rows, places = (batch.experts == expert).nonzero(as_tuple=True)
            weights = batch.weights[rows, places, None].double()
            hidden, rounded = self._hidden(x[rows], expert)
            up, gate = hidden.chunk(2, 1)
            up_error, gate_error = rounded.chunk(2, 1)
            if swapped:
                up, gate, up_error, gate_error = gate, up, gate_error, up_error
            product, error = (_swiglu if self.alpha is None else _gpt_oss)(up, gate, up_error, gate_error)
            fc2 = self.values2[expert].double().T
            addend = weights * (product @ fc2)
            biased = addend if self.bias2 is None else addend + weights * self.bias2[expert].double()
            out.index_add_(0, rows, biased)
            square.index_add_(0, rows, weights**2 * (error @ fc2**2))
            size.index_add_(0, rows, addend.abs().maximum(biased.abs()))
        return out, 4 * square.sqrt() + (batch.top_k + 1) * UNIT * size + 1e-5

    def _hidden(self, x, expert):
        """Both halves of the first GEMM with their bias, and how much their rounding may change."""
        hidden = x @ self.values1[expert].double().T
        if self.bias1 is None:
            return hidden, UNIT * hidden.abs()
        biased = hidden + self.bias1[expert].double()
        return biased, UNIT * biased.abs().maximum(hidden.abs())


def _swiglu(up, gate, up_error, gate_error):
    """silu(gate) * up, and the squares of what the roundings may change of it, added up."""
    sigmoid = gate.sigmoid()
    product = gate * sigmoid * up
    slope = sigmoid * (1 + gate * (1 - sigmoid)) * up  # by gate
    return product, (UNIT * product) ** 2 + (gate * sigmoid * up_error) ** 2 + (slope * gate_error) ** 2


def _gpt_oss(up, gate, up_error, gate_error):
    """gpt-oss's activation, likewise; the clamps only make an error smaller."""
    up, gate = up.clamp(-LIMIT, LIMIT), gate.clamp(max=LIMIT)
    sigmoid = (ALPHA * gate).sigmoid()
    product = gate * sigmoid * (up + BETA)
    slope = sigmoid * (1 + ALPHA * gate * (1 - sigmoid)) * (up + BETA)  # by gate
    return product, (UNIT * product) ** 2 + (gate * sigmoid * up_error) ** 2 + (slope * gate_error) ** 2


def _quantised(grouped):
    """The numbers [E, rows, K] in bf16, their codes [E, rows, K / 2] and their scales [E, rows, K / 32], uint8."""
    import torch

    exponents = grouped.abs().amax(-1, keepdim=True).log2().floor() - 2  # the largest becomes 4 to 8, and 6 at most
    scaled = grouped / torch.exp2(exponents)
    levels = torch.tensor(E2M1, device=grouped.device)
    nearest = torch.bucketize(scaled.abs(), (levels[1:] + levels[:-1]) / 2)
    values = (levels[nearest] * scaled.sign() * torch.exp2(exponents)).flatten(2)
    codes = (nearest + 8 * (scaled < 0)).to(torch.uint8).flatten(2)
    return values.bfloat16(), codes[..., 0::2] | codes[..., 1::2] << 4, (exponents[..., 0] + 127).to(torch.uint8)


def _laid_out(codes, scales):
    """Weights and scales as the installed version reads them, and who laid them out."""
    import flashinfer.fused_moe

    if hasattr(flashinfer.fused_moe, "interleave_moe_weights_for_sm90_mixed_gemm"):  # a kernel of the same module
        codes = flashinfer.fused_moe.interleave_moe_weights_for_sm90_mixed_gemm(codes.contiguous(), "fp4")
        if hasattr(flashinfer.fused_moe, "interleave_moe_scales_for_sm90_mixed_gemm"):
            scales = flashinfer.fused_moe.interleave_moe_scales_for_sm90_mixed_gemm(scales.contiguous())
            return codes, scales, f"FlashInfer's, scales {'x'.join(map(str, scales.shape))}"
        raise RuntimeError("FlashInfer lays out weights but not scales: this probe does not fit this version")
    experts, rows, groups = scales.shape
    interleaved = scales.reshape(experts, rows, groups // 4, 4).permute(0, 2, 1, 3).contiguous()
    return (
        codes.contiguous(),
        interleaved.reshape(experts, groups // 4, 4 * rows),
        "vLLM's, for FlashInfer below 0.6.10",
    )


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
        fc1_expert_biases=experts.bias1,
        fc2_expert_biases=experts.bias2,
        swiglu_alpha=experts.alpha,
        swiglu_beta=experts.beta,
        swiglu_limit=experts.limit,
        use_w4_group_scaling=True,
        output=out,
        tp_size=1,
        tp_rank=0,
        ep_size=1,
        ep_rank=0,
        tune_max_num_tokens=batch.largest_bucket,
    )


class _Tactics:
    """While it is entered, GEMM 1 and 2 run with their tactics of these numbers; None leaves the choice as it is."""

    def __init__(self, numbers):
        self.numbers, self.valid, self.chosen = numbers, {}, {}

    def __enter__(self):
        import flashinfer.autotuner

        self.tuner = flashinfer.autotuner.AutoTuner
        self.original = self.tuner.choose_one
        entered = self

        def choose_one(tuner, custom_op, runners, tuning_config, inputs, **kwargs):
            runner, tactic = runners[0], None
            if entered.numbers is None:
                runner, tactic = entered.original(tuner, custom_op, runners, tuning_config, inputs, **kwargs)
            return runner, entered.choose(runner, tactic, inputs, kwargs["gemm_idx"])

        self.tuner.choose_one = choose_one
        return self

    def __exit__(self, *_):
        self.tuner.choose_one = self.original

    def choose(self, runner, tactic, inputs, gemm):
        if gemm not in self.valid:  # asked before a graph is captured
            self.valid[gemm] = list(runner.get_valid_tactics(inputs, None))
        if self.numbers is not None:
            tactic = _given(runner, self.valid[gemm][self.numbers[gemm - 1]], gemm)
        self.chosen[gemm] = tactic
        return tactic

    def counts(self):
        if set(self.valid) != {1, 2}:
            raise RuntimeError("cutlass_fused_moe asked for no tactics: this probe does not fit this version")
        return tuple(len(self.valid[gemm]) for gemm in (1, 2))

    def measured(self):
        counts = self.counts()
        return {
            "tactics": f"{self.chosen[1]} and {self.chosen[2]}",
            "gemm1_tactics": counts[0],
            "gemm2_tactics": counts[1],
        }


def _given(runner, tactic, gemm):
    """What has to be handed on for a tactic of get_valid_tactics() to be the one that runs.

    Both GEMMs' tactics are in one list, GEMM 1's first. Versions that cannot say which tactics fit a shape (0.5.3 to
    0.6.15, and some after) take an id of GEMM 2 that is below the number of its tactics as counted from its own first.
    """
    native = runner.fused_moe_runner
    if gemm == 2 and hasattr(native, "get_gemm1_tactic_count") and not hasattr(native, "get_valid_tactics_for_shape"):
        return tactic - native.get_gemm1_tactic_count()
    return tactic


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
                f"{where}: gate and up are swapped: the numbers are those of the other way round"
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
