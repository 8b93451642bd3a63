"""Does flashinfer.gdn_prefill.chunk_gated_delta_rule give the right outputs and states of the gated delta rule?

Called as vLLM calls it for prompts of Qwen3-Next and its kin: several sequences in one batch, the gate as a factor and
not as its logarithm, normalised queries and keys in bf16, some states of sequences that began before and some of zeros,
float32 states [sequence, head, value, key] before and after, no scale (1 / sqrt(128)). vLLM decodes with kernels of its
own, and prompts are in none of its CUDA graphs. Up to FlashInfer 0.6.13 nvcc compiles the kernel (grouped,
equal_heads); from 0.6.14 CuTe DSL does at the first call (dsl_*), and a batch of few sequences is cut into parts.

Shapes: heads of 128; 2 heads of queries and keys over 4 and over 8 of values (grouped), 4 over 4 (equal_heads);
sequences of 1 to 200 tokens, among them 63, 64 and 65, since the kernel works on chunks of 64; 20 short ones of 8 heads
each, more than there are multiprocessors; one alone. A few tokens forget nearly everything (by e^-8 or e^-30), the last
token of a sequence has values four times as large. Each call is made twice: as vLLM makes it, with int32 lengths, and
with int64 lengths and outputs that hold NaN. NaN also lies around whatever is passed, and must stay; inputs must stay.

Tolerance: 4 times the root of the sum of the squares of what the roundings to bf16 may do, 2^-8 of a number each, and
1e-6. Rounded are, chunk by chunk: the state that is multiplied by queries and by keys, its product with the keys, the
values less that product, the inverse of the triangular matrix, the new values, the products of queries and keys, the
new values as they enter the state, the output. An error of a new value does in later tokens what the value itself does:
it goes through the same triangular matrices. Errors are independent and have 0.4 of their bound in the mean, so that 2
of the 4 are what the largest of a million comes to. The inverse is in float16, 8 times as exact. The reference is the
recurrence itself, in float64, token by token.

Upstream: csrc/prefill_kernel_delta_rule_sm90.cu and include/flashinfer/flat/hopper/collective/
flat_collective_tma_warpspecialized_delta_rule.hpp (to 0.6.13), flashinfer/gdn_kernels/delta_rule_dsl/delta_rule_sm90.py
(from 0.6.14); vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py
"""

import itertools
import math
import os
import sys

PROBE = {
    "id": "ssm.gdn",
    "feature": "ssm.gdn",
    "module": "gdn_prefill_sm90",
    "requires": {"sm": ">=90,<91", "flashinfer": ">=0.6"},
    "variants": {
        "grouped": {"flashinfer": "<0.6.14"},
        "equal_heads": {"flashinfer": "<0.6.14"},
        "dsl_grouped": {"flashinfer": ">=0.6.14", "packages": {"nvidia-cutlass-dsl": ""}},
        "dsl_equal_heads": {"flashinfer": ">=0.6.14", "packages": {"nvidia-cutlass-dsl": ""}},
    },
    "gpus": 1,
    "timeout_s": 180,
    "build_timeout_s": 900,
    "compiles": ["nvcc", "cute-dsl"],
    "subset": {"units": "as_vllm"},  # 2 of 32 kernels: bf16, both gates, a first state
    "checks": "numbers",
}

MIXED = (65, 1, 64, 200, 63, 130)  # tokens of each sequence
SHORT = (3, 17, 1, 9, 30) * 4
CASES = {  # heads of queries and keys, heads of values, lengths
    "grouped": ((2, 4, MIXED), (2, 8, SHORT), (2, 4, (150,))),
    "equal_heads": ((4, 4, MIXED), (4, 4, (70,))),
}
SIZE, CHUNK = 128, 64
GUARD = 64  # elements on both sides of a tensor, which keep it aligned to 128 bytes
ROUNDOFF = 2.0**-8  # of bf16, which has 8 significant bits
ROUNDINGS = 4.0  # how many of them, see above
FLOOR = 1e-6  # float32


def build(variant):
    """Compile the module with nvcc; CuTe DSL has nothing to compile before the call."""
    import flashinfer.gdn_prefill

    if variant.startswith("dsl_"):
        return False
    if hasattr(flashinfer.gdn_prefill, "get_gdn_prefill_module"):
        flashinfer.gdn_prefill.get_gdn_prefill_module()
    return None


def run(variant):
    found = _Found()
    for heads, value_heads, lengths in CASES[variant.removeprefix("dsl_")]:
        case = _Case(heads, value_heads, lengths)
        expected = case.expected()
        found.where = f"{heads} heads over {value_heads}, lengths {lengths[:8]}"
        _check_as_vllm(case, expected, found)
        _check_given_outputs(case, expected, found)
    return found.measured()


def _check_as_vllm(case, expected, found):
    import torch

    kept = case.copies()
    output, state = _call(case, torch.int32, None, None)
    found.compare("output", output, *expected["output"])
    found.compare("state", state, *expected["state"])
    case.assert_kept(kept, found.where)


def _check_given_outputs(case, expected, found):
    import torch

    kept = case.copies()
    around_output, output = _guarded(torch.full_like(case.v, math.nan))
    around_state, state = _guarded(torch.full_like(case.state, math.nan))
    returned = _call(case, torch.int64, output, state)
    where = f"{found.where}, outputs given"
    for name, got, given in zip(("output", "state"), returned, (output, state), strict=True):
        assert got.data_ptr() == given.data_ptr(), f"{where}: the {name} is not the tensor that was given"
        found.compare(name, given, *expected[name])
    case.assert_kept(kept, where)
    for name, around, given in (("output", around_output, output), ("state", around_state, state)):
        given.fill_(math.nan)
        assert around.isnan().all(), f"{where}: something was written outside of the {name}"


def _call(case, dtype, output, output_state):
    from flashinfer.gdn_prefill import chunk_gated_delta_rule

    return chunk_gated_delta_rule(
        q=case.q,
        k=case.k,
        v=case.v,
        g=case.gate,
        beta=case.beta,
        initial_state=case.state,
        output_final_state=True,
        cu_seqlens=case.starts.to(dtype),
        output=output,
        output_state=output_state,
    )


class _Case:
    """What one call takes; each tensor has NaN around it."""

    def __init__(self, heads, value_heads, lengths):
        import torch

        self.lengths = lengths
        self.generator = torch.Generator(_device()).manual_seed(1000 * value_heads + len(lengths))
        starts = [0, *itertools.accumulate(lengths)]
        self.bounds = list(itertools.pairwise(starts))
        self.starts = torch.tensor(starts, device=_device())
        tokens, last = starts[-1], self.starts[1:] - 1
        q, k = (torch.nn.functional.normalize(self._normal(tokens, heads, SIZE), dim=-1) for _ in "qk")
        v = self._normal(tokens, value_heads, SIZE)
        v[last] *= 4
        state = 0.3 * self._normal(len(lengths), value_heads, SIZE, SIZE)
        state[1::3] = 0  # these sequences begin here
        self.around, views = {}, {}
        for name, tensor in {
            "q": q.bfloat16(),
            "k": k.bfloat16(),
            "v": v.bfloat16(),
            "gate": self._log_gate(tokens, value_heads).exp(),
            "beta": self._normal(tokens, value_heads).sigmoid(),
            "state": state,
        }.items():
            self.around[name], views[name] = _guarded(tensor)
        self.q, self.k, self.v = views["q"], views["k"], views["v"]
        self.gate, self.beta, self.state = views["gate"], views["beta"], views["state"]

    def _normal(self, *shape):
        import torch

        return torch.randn(shape, generator=self.generator, device=self.generator.device)

    def _log_gate(self, tokens, heads):
        """As the layer makes it: minus a rate of the head's own times a softplus; a few tokens forget nearly all."""
        import torch

        rates = torch.logspace(-2, 0, heads, device=self.generator.device)
        gate = -rates * torch.nn.functional.softplus(self._normal(tokens, heads))
        chance = self._normal(tokens, heads)
        return gate.where(chance < 2.05, -8.0).where(chance > -2.4, -30.0)

    def copies(self):
        return {name: around.clone() for name, around in self.around.items()}

    def assert_kept(self, kept, where):
        import torch

        for name, around in self.around.items():
            same = torch.equal(around.nan_to_num(7.0), kept[name].nan_to_num(7.0))
            assert same, f"{where}: {name} or what lies around it was changed"

    def expected(self):
        """Output and final state in float64, each with how far a right kernel may be from it."""
        import torch

        parts = [_Sequence(self, row, slice(*bounds)) for row, bounds in enumerate(self.bounds)]
        return {
            "output": tuple(torch.cat(some) for some in zip(*(one.output() for one in parts), strict=True)),
            "state": tuple(torch.stack(some) for some in zip(*(one.final() for one in parts), strict=True)),
        }


class _Sequence:
    """One sequence in float64, as [head, token, ...]: the recurrence, and what roundings do to it."""

    def __init__(self, case, row, tokens):
        ratio = case.v.shape[1] // case.q.shape[1]
        self.q, self.k = (
            tensor[tokens].double().repeat_interleave(ratio, 1).transpose(0, 1) for tensor in (case.q, case.k)
        )
        self.v = case.v[tokens].double().transpose(0, 1)
        self.gate, self.beta = (tensor[tokens].double().T for tensor in (case.gate, case.beta))
        self.scale = 1 / math.sqrt(SIZE)
        self._recur(case.state[row].double())
        self._spread()

    def _recur(self, state):
        """Outputs, new values and the state after the last token; for roundings also what each chunk began with."""
        import torch

        outputs, news, begins = [], [], []
        for t in range(self.v.shape[1]):
            if t % CHUNK == 0:
                begins.append(state)
            key, decayed = self.k[:, t], state * self.gate[:, t, None, None]
            old = (decayed @ key[..., None]).squeeze(-1)
            new = self.beta[:, t, None] * (self.v[:, t] - old)
            state = decayed + new[..., None] * key[:, None, :]
            outputs.append(self.scale * (state @ self.q[:, t, :, None]).squeeze(-1))
            news.append(new)
        self.outputs, self.news, self.last = torch.stack(outputs, 1), torch.stack(news, 1), state
        self.begins = begins

    def _spread(self):
        """How much an error of each new value is found in each output and in the last state."""
        import torch

        total = self.gate.log().cumsum(-1)
        ones = torch.ones_like(total[:, :, None] * total[:, None, :]).tril()
        self.decay = (total[:, :, None] - total[:, None, :]).tril().exp() * ones
        self.lower = (self.beta[..., None] * self.decay * (self.k @ self.k.mT)).tril(-1)
        self.reads = self.scale * self.decay * (self.q @ self.k.mT)
        ahead = _inverse(self.lower)
        self.to_output = self.reads @ ahead
        self.into_state = self.decay[:, -1, :, None] * self.k
        self.to_state = ahead.mT @ self.into_state

    def _roundings(self):
        """Squares of the errors of new values and, directly, of outputs, in units of the roundoff."""
        import torch

        of_new, of_output = [], []
        for number, begin in enumerate(self.begins):
            chunk = slice(number * CHUNK, (number + 1) * CHUNK)
            key, query, new = self.k[:, chunk], self.q[:, chunk], self.news[:, chunk]
            decay = self.decay[:, chunk, number * CHUNK] * self.gate[:, number * CHUNK, None]
            decay = decay[..., None]
            old = decay * (key @ begin.mT)
            rest = self.v[:, chunk] - old
            beta = self.beta[:, chunk]
            squares = decay.square() * (key.square() @ begin.square().mT) + old.square() + rest.square()
            inverse = _inverse(self.lower[:, chunk, chunk]) * beta[:, None, :]
            of_new.append(beta[..., None].square() * squares + inverse.square() @ rest.square() + new.square())
            read = (self.scale * decay).square() * (query.square() @ begin.square().mT)
            of_output.append(read + self.reads[:, chunk, chunk].square() @ new.square())
        return torch.cat(of_new, 1), torch.cat(of_output, 1)

    def output(self):
        of_new, direct = self._roundings()
        squares = self.to_output.square() @ of_new + direct + self.outputs.square()
        return self.outputs.transpose(0, 1), _bound(squares).transpose(0, 1)

    def final(self):
        of_new, _ = self._roundings()
        squares = of_new.mT @ self.to_state.square() + self.news.square().mT @ self.into_state.square()
        return self.last, _bound(squares)


def _inverse(lower):
    """Of the unit matrix and what is strictly below its diagonal."""
    import torch

    unit = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    return torch.linalg.solve_triangular(lower + unit, unit, upper=False, unitriangular=True)


def _bound(squares):
    return ROUNDINGS * ROUNDOFF * squares.sqrt() + FLOOR


def _guarded(tensor):
    """A buffer with NaN around these values, and them inside it."""
    import torch

    count = tensor.numel()
    buffer = torch.full((GUARD + count + GUARD,), math.nan, dtype=tensor.dtype, device=tensor.device)
    inside = buffer[GUARD : GUARD + count].view(tensor.shape)
    inside.copy_(tensor)
    return buffer, inside


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.where, self.calls, self.elements = "", 0, 0
        self.worst = {"output": 0.0, "state": 0.0}
        self.largest = {"output": 0.0, "state": 0.0}

    def compare(self, name, got, expected, bound):
        wanted = "torch.bfloat16" if name == "output" else "torch.float32"
        assert got.shape == expected.shape, f"{self.where}: {name} of {tuple(got.shape)}, not {tuple(expected.shape)}"
        assert str(got.dtype) == wanted, f"{self.where}: {name} in {got.dtype}, not {wanted}"
        assert got.is_contiguous(), f"{self.where}: {name} with strides {got.stride()}"
        error = (got.double() - expected).abs()
        share = error / bound
        wrong = ~(share <= 1)  # NaN is wrong
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            axes = "token, head, value" if name == "output" else "sequence, head, value, key"
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} elements of the {name} are wrong, the first at "
                f"{at} ({axes}): got {got[at].item():.6g}, expected {expected[at].item():.6g} "
                f"within {bound[at].item():.2g}"
            )
        if name == "state":
            coarse = (got == got.bfloat16().float()).flatten(2).all(-1)
            assert not coarse.any(), f"{self.where}: states of {int(coarse.sum())} heads were rounded to bf16"
        self.calls += name == "output"
        self.elements += got.numel()
        self.worst[name] = max(self.worst[name], share.max().item())
        self.largest[name] = max(self.largest[name], error.max().item())

    def measured(self):
        return {
            "calls": self.calls,
            "elements": self.elements,
            "wrong_elements": 0,
            "max_abs_error": self.largest["output"],
            "worst_of_tolerance": round(self.worst["output"], 3),
            "max_abs_error_of_state": self.largest["state"],
            "worst_state_of_tolerance": round(self.worst["state"], 3),
        }


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
