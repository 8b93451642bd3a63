"""Does flashinfer.mamba.selective_state_update give the right outputs and states, eagerly and in a CUDA graph?

Called as vLLM calls it with --mamba-backend flashinfer for the decoding steps of Mamba-2 layers: bf16 inputs that are
slices of fused tensors; one A, D and dt_bias for a head, stretched with strides of zero; softplus, no z; states that
are updated in place, in slots of a cache whose pages hold something else besides; slots named by a column of a block
table, and slot 0 for rows that only pad the batch. Two steps in a row, the second of which writes to other slots than
it reads, as where blocks of states are kept. graph_* are captured once and replayed three times with other inputs,
states, slots and numbers of padding rows in the same memory.

Shapes: 8 heads of 64 over 2 groups, states of 128 numbers for each; batches of 5, for which a plain kernel is taken,
and of 40, for which it is one that moves states by TMA (from two blocks for each multiprocessor on). States in float32
and in bf16. One step is so long that softplus is left out (above 20). Slots that are not named, the rest of each page
and the inputs of rows that pad hold NaN; the memory must stay as it was but for the slots that are written, and nothing
is promised for the output of a row that pads. Outputs hold NaN before, as do the rows around them.

Tolerance: 1.01 * 2^-8 |output| for the rounding to bf16, as much of a state in bf16, and what float32 may err by, added
up: a step by 2^-20 (1 + step), since softplus is log(1 + exp) by approximations that err by 2^-21.4; the decay by that
times A and by 3 + 1.2 |A step| units of 2^-23, as __expf does; each of the sums and products by 2^-23 of its parts, ten
of which follow each other in the sum over 128 numbers. The reference is float64, from the states before each step.

Upstream: csrc/selective_state_update.cu, include/flashinfer/mamba/kernel_selective_state_update_stp.cuh;
vllm/model_executor/layers/mamba/ops/ssu_dispatch.py, mamba_mixer2.py
"""

import importlib
import math
import os
import sys

PROBE = {
    "id": "ssm.mamba",
    "feature": "ssm.mamba",
    "module": "selective_state_update",
    "requires": {"sm": ">=90,<91", "flashinfer": ">=0.6.7"},
    "variants": {"f32_state": {}, "bf16_state": {}, "graph_f32_state": {}, "graph_bf16_state": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

HEADS, GROUPS, DIM, STATE = 8, 2, 64, 128
BATCHES = ((5, 1), (40, 3))  # rows, and how many of them only pad the batch
GRAPH_STEPS = (0, 2, 3)  # rows that pad
SPARE_SLOTS = 3
NULL = 0  # the slot of rows that pad
GAP = 64  # elements of a page before and after its state, which keep it aligned to 128 bytes
ROUNDOFF = 2.0**-8  # of bf16, which has 8 significant bits
STEP_ERROR = 2.0**-20
FLOAT = 2.0**-23


def build(variant):
    import torch
    from flashinfer.jit.mamba import gen_selective_state_update_sm90_module

    bf16, f32, i32 = torch.bfloat16, torch.float32, torch.int32
    state = _state_dtype(variant)
    module = gen_selective_state_update_sm90_module(state, bf16, bf16, f32, i32, None, DIM, STATE, 1, i32, torch.int64)
    module.build_and_load()


def run(variant):
    found = _Found()
    check = _check_graph if variant.startswith("graph_") else _check_steps
    for rows, padding in BATCHES:
        check(rows, padding, _state_dtype(variant), found)
    return found.measured()


def _state_dtype(variant):
    import torch

    return torch.bfloat16 if "bf16" in variant else torch.float32


def _check_steps(rows, padding, dtype, found):
    generator = _generator(rows)
    layer = _Layer(generator)
    cache = _Cache(2 * rows + SPARE_SLOTS, dtype, generator)
    first, second = (_Step(rows, padding, cache, generator) for _ in range(2))
    second.write.copy_(first.write)
    for place in (first.write, second.read):
        place.copy_(first.read)
    cache.fill(first)
    for number, step in enumerate((first, second)):
        found.where = f"{rows} rows, step {number + 1}"
        _check_step(layer, cache, step, found)


def _check_step(layer, cache, step, found):
    expected = _Expected(layer, cache, step)
    inputs = (*layer.tensors(), *step.tensors())
    kept = [tensor.clone() for tensor in inputs]
    around, out = _outputs(len(step.real))
    returned = _call(layer, cache, step, out)
    assert returned.data_ptr() == out.data_ptr(), f"{found.where}: the result is not in out"
    found.compare(expected, cache, step, around, out)
    for tensor, before in zip(inputs, kept, strict=True):
        assert _is_same(tensor, before), f"{found.where}: an input of {tuple(tensor.shape)} was changed"


def _check_graph(rows, _, dtype, found):
    generator = _generator(rows)
    layer = _Layer(generator)
    cache = _Cache(2 * rows + SPARE_SLOTS, dtype, generator)
    held = _Step(rows, 0, cache, generator)
    cache.fill(held)
    around, out = _outputs(rows)
    replay = _capture(lambda: _call(layer, cache, held, out))
    for turn, padding in enumerate(GRAPH_STEPS):
        step = _Step(rows, padding, cache, generator)
        held.take(step)
        cache.fill(held)
        around.fill_(math.nan)
        expected = _Expected(layer, cache, held)
        replay()
        found.where = f"{rows} rows, replay {turn + 1} of a CUDA graph with new inputs"
        found.compare(expected, cache, held, around, out)
    found.graphs += 1


def _call(layer, cache, step, out):
    from flashinfer.mamba import selective_state_update

    return selective_state_update(
        cache.state,
        step.x,
        step.step,
        layer.decay,
        step.b,
        step.c,
        D=layer.skip,
        z=None,
        dt_bias=layer.bias,
        dt_softplus=True,
        state_batch_indices=step.read,
        dst_state_batch_indices=step.write,
        cu_seqlens=None,
        num_accepted_tokens=None,
        cache_steps=0,
        pad_slot_id=NULL,
        out=out,
        rand_seed=None,
        philox_rounds=10,
    )


class _Layer:
    """A, D and dt_bias, stretched as the layer stretches them."""

    def __init__(self, generator):
        import torch

        device = generator.device
        a = -torch.logspace(0, math.log10(16), HEADS, device=device)
        self.decay = a[:, None, None].expand(-1, DIM, STATE)
        self.skip = torch.randn(HEADS, generator=generator, device=device).bfloat16()[:, None].expand(-1, DIM)
        bias = 6.5 * torch.rand(HEADS, generator=generator, device=device) - 6
        self.bias = bias.bfloat16()[:, None].expand(-1, DIM)

    def tensors(self):
        return self.decay[:, 0, 0], self.skip[:, 0], self.bias[:, 0]


class _Cache:
    """Pages that hold a state and something else, as where several kinds of states share a cache."""

    def __init__(self, slots, dtype, generator):
        import torch

        self.generator, self.slots = generator, slots
        size = HEADS * DIM * STATE
        self.memory = torch.empty((slots, GAP + size + GAP), dtype=dtype, device=generator.device)
        self.state = self.memory[:, GAP : GAP + size].view(slots, HEADS, DIM, STATE)

    def fill(self, step):
        """NaN everywhere, but for the states that a step reads and slot 0."""
        import torch

        self.memory.fill_(math.nan)
        self.state[NULL] = 7  # rows that pad would write NaN
        used = step.read[step.real, 0].long()
        shape = (len(used), HEADS, DIM, STATE)
        new = torch.randn(shape, generator=self.generator, device=self.memory.device)
        self.state[used] = new.to(self.state.dtype)


class _Step:
    """The inputs of one decoding step; rows that pad are the last."""

    def __init__(self, rows, padding, cache, generator):
        import torch

        device = generator.device
        self.real = torch.arange(rows, device=device) < rows - padding
        width = HEADS * DIM
        wide = torch.randn((rows, width + 2 * GROUPS * STATE), generator=generator, device=device)
        steps = 1.5 * torch.randn((rows, 16 + HEADS), generator=generator, device=device)
        steps[0, -1] = 27  # softplus is left out
        wide[~self.real] = math.nan
        steps[~self.real] = math.nan
        self.wide, self.steps = wide.bfloat16(), steps.bfloat16()
        self.x = self.wide[:, :width].view(rows, HEADS, DIM)
        self.b, self.c = (part.view(rows, GROUPS, STATE) for part in self.wide[:, width:].chunk(2, dim=1))
        self.step = self.steps[:, 16:, None].expand(-1, -1, DIM)
        order = 1 + torch.randperm(cache.slots - 1, generator=generator, device=device)
        self.table = torch.full((2, rows, 3), NULL, dtype=torch.int32, device=device)
        self.table[0, :, 0], self.table[1, :, 0] = order[:rows], order[rows : 2 * rows]
        self.table[:, ~self.real] = NULL
        self.read, self.write = self.table[0, :, :1], self.table[1, :, :1]

    def tensors(self):
        return self.wide, self.steps, self.table

    def take(self, other):
        """The contents of another step, in the memory of this one."""
        self.real = other.real
        for mine, new in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(new)


class _Expected:
    """Outputs and states of the rows that do not pad, in float64, each with how far a right kernel may be from it."""

    def __init__(self, layer, cache, step):
        self.before = cache.memory.clone()
        ratio, real = HEADS // GROUPS, step.real
        x = step.x[real].double()
        b, c = (part[real].double().repeat_interleave(ratio, 1)[:, :, None, :] for part in (step.b, step.c))
        a, skip = layer.decay[:, 0, 0].double(), layer.skip[:, 0].double()
        size = _softplus(step.step[real, :, 0].double() + layer.bias[:, 0].double())
        off = STEP_ERROR * (1 + size)
        decay_off = (a.abs() * off + (4 + 1.2 * (a * size).abs()) * FLOAT)[..., None, None]
        size, off = size[..., None, None], off[..., None, None]
        carried = cache.state[step.read[real, 0].long()].double() * (a[:, None, None] * size).exp()
        unit = x[..., None] * b
        added = size * unit
        self.state = carried + added
        self.state_bound = carried.abs() * decay_off + unit.abs() * (off + 2 * FLOAT * size)
        self.state_bound += FLOAT * (carried.abs() + added.abs()) + 1e-30
        straight = skip[:, None] * x
        self.output = (self.state * c).sum(-1) + straight
        self.output_bound = (self.state_bound * c.abs()).sum(-1)
        self.output_bound += 10 * FLOAT * ((self.state * c).abs().sum(-1) + straight.abs())
        self.output_bound += 1.01 * ROUNDOFF * self.output.abs()
        if str(cache.state.dtype) == "torch.bfloat16":
            self.state_bound += 1.01 * ROUNDOFF * self.state.abs()


def _softplus(values):
    import torch

    return torch.nn.functional.softplus(values, threshold=40)


def _outputs(rows):
    """NaN, with a row more on both sides; and the rows themselves."""
    import torch

    around = torch.full((rows + 2, HEADS, DIM), math.nan, dtype=torch.bfloat16, device=_device())
    return around, around[1:-1]


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.where, self.calls, self.elements, self.graphs = "", 0, 0, 0
        self.worst = {"output": 0.0, "state": 0.0}
        self.padding = set()

    def compare(self, expected, cache, step, around, out):
        """Outputs, states, and that nothing else was written."""
        self._compare("output", out[step.real], expected.output, expected.output_bound)
        assert around[0].isnan().all(), f"{self.where}: something was written before the outputs"
        assert around[-1].isnan().all(), f"{self.where}: something was written behind the outputs"
        written = step.write[step.real, 0].long()
        states = cache.state[written]
        self._compare("state", states, expected.state, expected.state_bound)
        if str(states.dtype) == "torch.float32":
            coarse = (states == states.bfloat16().float()).flatten(2).all(-1)
            assert not coarse.any(), f"{self.where}: states of {int(coarse.sum())} heads were rounded to bf16"
        rest = cache.memory.clone()
        rest[written, GAP:-GAP] = expected.before[written, GAP:-GAP]
        assert _is_same(rest, expected.before), (
            f"{self.where}: memory that belongs to no state of this step was changed"
        )
        self.calls += 1
        self.padding |= {_described(row) for row in out[~step.real]}

    def _compare(self, name, got, expected, bound):
        share = (got.double() - expected).abs() / bound
        wrong = ~(share <= 1)  # NaN is wrong
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} elements of the {name} are wrong, the first at "
                f"{at} (row, head, ...): got {got[at].item():.6g}, expected {expected[at].item():.6g} "
                f"within {bound[at].item():.2g}"
            )
        self.elements += got.numel()
        self.worst[name] = max(self.worst[name], share.max().item())

    def measured(self):
        return {
            "calls": self.calls,
            "graphs": self.graphs,
            "elements": self.elements,
            "wrong_elements": 0,
            "worst_of_tolerance": round(self.worst["output"], 3),
            "worst_state_of_tolerance": round(self.worst["state"], 3),
            "padding_rows": " or ".join(sorted(self.padding)),
        }


def _described(row):
    if row.isnan().any():
        return "NaN"
    return "other numbers" if row.any() else "zeros"


def _is_same(one, other):
    """Bit by bit but for the kinds of NaN."""
    import torch

    return torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.mamba").stand_in_for_a_graph(call)
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


def _generator(seed):
    import torch

    return torch.Generator(_device()).manual_seed(seed)


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
