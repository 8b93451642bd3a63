"""Are merged attention states right, alone and in MultiLevelCascadeAttentionWrapper, where some of them are empty too?

Variants: merge_state, merge_state_in_place and merge_states merge outputs by their log-sum-exps (base 2), of which some
are -inf beside finite ones, as those of a request without keys are; empty_* have rows in which all or the first of the
states are empty, or half of many: they have to give zeros and -inf, or what the others give. Up to 0.6.7 math::inf is
50000, and merge_states says -50000 or a little more of nothing: accepted and measured (empty_lse), since no exponential
of it beside a score differs from zero; states that say so of themselves are merged too. graph_merge_state_in_place is
captured in a CUDA graph and replayed three times with other states in the same memory. levels_d128 is the wrapper with
two levels as vLLM plans it: a common prefix, without a mask, and what is each request's own, causal.

Shapes: bf16, float32 log-sum-exps; 37 rows of 32 heads of 128, 8 of 64 and 4 of 256; 2, 3 and 70 states (more states
than rows go to another kernel). An empty state's output is finite and arbitrary: its weight is zero. levels_d128: 8
query heads over 2 KV heads of 128, prefixes of 48 and 1040 tokens, requests of 1 to 700 tokens behind them, NHD and
HND, pages of 16 tokens in shuffled order, NaN in spare pages and behind the last token.

Tolerance: merged states |out - ref| <= 1.01 * 2^-8 |ref| + 2^-16 sum_i w_i |v_i| + 1e-6, since only the result is
rounded to bf16 and weights are approximate exponentials of float32; log-sum-exps 2^-16 (1 + |ref|). Where there are as
many states as rows, each row of threads merges every fourth to sixteenth state and rounds what that comes to to bf16 in
shared memory, before these are merged (MergeStatesLargeNumIndexSetsKernel, threadblock_sync_state): 2^-8 sum_i w_i
|v_i| more, which bounds the rounding of all parts. levels_d128: 2^-7 (2 sum_i p_i |v_i| + |ref|) + 1e-5: p is rounded
in the product with v and in the sum that divides it, the output of each level once and the merged one once. The
references are float64.

Upstream: include/flashinfer/attention/cascade.cuh, include/flashinfer/attention/state.cuh, flashinfer/cascade.py;
vllm/v1/attention/backends/flashinfer.py
"""

import functools
import itertools
import math
import os
import sys

PROBE = {
    "id": "attention.cascade",
    "feature": "attention.cascade",
    "module": "cascade",
    "requires": {
        "sm": ">=80",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.cascade.merge_state",
            "flashinfer.cascade.merge_state_in_place",
            "flashinfer.cascade.merge_states",
            "flashinfer.cascade.MultiLevelCascadeAttentionWrapper",
        ],
    },
    "variants": {
        "merge_state": {},
        "merge_state_in_place": {},
        "graph_merge_state_in_place": {},
        "merge_states": {},
        "empty_merge_state": {},
        "empty_merge_state_in_place": {},
        "empty_merge_states": {},
        "levels_d128": {},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "subset": {"units": "no_mask_or_causal", "if_short": True},  # of prefill's, which the wrapper takes
    "checks": "numbers",
}

ROWS = 37
SHAPES = ((32, 128), (8, 64), (4, 256))  # heads and their size
STATES = (2, 3, 70)
MANY = 3  # of more states the kernel merges parts, each of which may be empty
REPLAYS = 3
SIZE, HEADS, PAGE = 128, (8, 2), 16  # of the wrapper: query and KV heads
PREFIXES = (48, 1040)  # tokens that all requests have in common, whole pages
REQUESTS = (  # queries and keys of each request behind the prefix
    ((1, 1), (1, 16), (1, 17), (1, 300)),
    ((37, 37), (1, 310), (128, 513), (5, 700)),
)
SPARE_PAGES = 5
WORKSPACE_BYTES = 128 * 2**20
UNIT = 2.0**-8  # unit roundoff of bf16
SMALL = 2.0**-16  # of exponentials and sums in float32
EMPTY = -5e4  # the log-sum-exp of a request without keys up to 0.6.7
NOTHING = -4.9e4  # a log-sum-exp below it stands for no key at all


def build(variant):
    import flashinfer.page
    import torch
    from flashinfer.cascade import get_cascade_module
    from flashinfer.prefill import get_batch_prefill_module

    get_cascade_module()
    if not variant.startswith("levels"):
        return
    bf16, backends = torch.bfloat16, _backends()
    window = soft_cap = fp16_qk = False
    for backend in backends:
        get_batch_prefill_module(backend, bf16, bf16, bf16, torch.int32, SIZE, SIZE, 0, window, soft_cap, fp16_qk)
    if "fa3" in backends and hasattr(flashinfer.page, "block_sparse_indices_to_vector_sparse_offsets"):
        flashinfer.page.get_page_module()  # of FlashInfer 0.5, where fa3 turns page numbers into offsets with it


def run(variant):
    found = _Found()
    if variant.startswith("levels"):
        _check_levels(found)
        return {"backend": _backends()[0], **found.measured()}
    if variant.startswith("graph_"):
        _check_graph(found)
        return found.measured()
    for (heads, size), count in itertools.product(SHAPES, STATES if variant.endswith("states") else (2,)):
        states = _States(heads, size, count, are_empty=variant.startswith("empty_"), seed=7)
        found.where = f"{count} states of {heads} heads of {size}"
        CHECKS[variant.removeprefix("empty_")](states, found)
    return found.measured()


def _backends():
    """What plan() takes where it is "auto", as in the wrapper.

    Without a GPU it is what each architecture takes that FlashInfer compiles for.
    """
    import torch
    from flashinfer.utils import determine_attention_backend

    fp16_qk = custom_mask = False
    if _device().type == "cpu" or torch.cuda.is_available():
        return [determine_attention_backend(_device(), 0, fp16_qk, custom_mask, torch.bfloat16, torch.bfloat16)]
    from flashinfer.utils import is_fa3_backend_supported

    of_sm90 = "fa3" if is_fa3_backend_supported(0, fp16_qk, custom_mask, torch.bfloat16, torch.bfloat16) else "fa2"
    return sorted({of_sm90 if major == 9 else "fa2" for major in _compiled_for()})


def _compiled_for():
    """The major capabilities that FlashInfer compiles for; where it is told none its build says so."""
    from flashinfer.jit.core import current_compilation_context

    return {major for major, _ in current_compilation_context.TARGET_CUDA_ARCHS} or {0}


def _check_merge_state(states, found):
    import flashinfer.cascade

    v_a, s_a, v_b, s_b = (tensor.contiguous() for tensor in states.pair())
    given = [tensor.clone() for tensor in (v_a, v_b, s_a, s_b)]
    _leave_nan_in_free_memory(v_a, s_a)
    v, s = flashinfer.cascade.merge_state(v_a, s_a, v_b, s_b)
    found.compare(v, s, states)
    for before, after in zip(given, (v_a, v_b, s_a, s_b), strict=True):
        assert before.equal(after), f"{found.where}: an input was changed"


def _check_merge_state_in_place(states, found):
    """With and without a mask, which leaves rows as they are."""
    import flashinfer.cascade
    import torch

    for mask in (None, torch.arange(ROWS, device=_device()) % 3 != 1):
        v, s, other_v, other_s = (tensor.clone() for tensor in states.pair())
        flashinfer.cascade.merge_state_in_place(v, s, other_v, other_s, mask)
        assert other_v.equal(states.v[:, 1]), f"{found.where}: the other state was changed"
        if mask is None:
            found.compare(v, s, states)
            continue
        rows = ~mask
        kept = v[rows].equal(states.v[rows, 0]) and s[rows].equal(states.s[rows, 0])
        assert kept, f"{found.where}: a row that the mask leaves out was changed"
        v[rows], s[rows] = states.expected[rows].to(v.dtype), states.lse[rows].float()
        found.compare(v, s, states)


def _check_merge_states(states, found):
    import flashinfer.cascade

    given = states.v.clone(), states.s.clone()
    _leave_nan_in_free_memory(states.v[:, 0], states.s[:, 0])
    v, s = flashinfer.cascade.merge_states(states.v, states.s)
    found.compare(v, s, states)
    assert given[0].equal(states.v), f"{found.where}: an input was changed"
    assert given[1].equal(states.s), f"{found.where}: an input was changed"


CHECKS = {
    "merge_state": _check_merge_state,
    "merge_state_in_place": _check_merge_state_in_place,
    "merge_states": _check_merge_states,
}


def _check_graph(found):
    """A graph that merges into v and s; each replay finds other states in the same memory."""
    import flashinfer.cascade

    heads, size = SHAPES[0]
    states = _States(heads, size, 2, are_empty=False, seed=20)
    v, s, other_v, other_s = memory = [tensor.clone() for tensor in states.pair()]
    replay = _capture(lambda: flashinfer.cascade.merge_state_in_place(v, s, other_v, other_s))
    for turn in range(REPLAYS):
        states = _States(heads, size, 2, are_empty=False, seed=21 + turn)
        for tensor, new in zip(memory, states.pair(), strict=True):
            tensor.copy_(new)
        replay()
        found.where = f"replay {turn + 1} of a CUDA graph with other states"
        found.compare(v, s, states)


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        call()
        return call
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


def _leave_nan_in_free_memory(*like):
    """The allocator hands out what was freed last: what a kernel does not write of its new outputs is then NaN."""
    import torch

    tensors = [torch.full_like(tensor.contiguous(), math.nan) for tensor in (*like, *like)]
    del tensors


def _check_levels(found):
    import flashinfer.cascade
    import torch

    for layout, prefix, requests in itertools.product(("NHD", "HND"), PREFIXES, REQUESTS):
        batch = _Batch(prefix, requests)
        pages = _Pages(batch, layout)
        wrapper = flashinfer.cascade.MultiLevelCascadeAttentionWrapper(2, _workspace(_device()), layout)
        wrapper.plan(
            qo_indptr_arr=[_ints([0, len(batch.query)]), batch.query_indptr],
            paged_kv_indptr_arr=[_ints([0, prefix // PAGE]), pages.indptr],
            paged_kv_indices_arr=[pages.common, pages.indices],
            paged_kv_last_page_len=[_ints([PAGE]), pages.last_page_len],
            num_qo_heads=HEADS[0],
            num_kv_heads=HEADS[1],
            head_dim=SIZE,
            page_size=PAGE,
            causal=True,
            sm_scale=batch.scale,
            window_left=-1,
            logits_soft_cap=None,
            q_data_type=torch.bfloat16,
            kv_data_type=torch.bfloat16,
        )
        _leave_nan_in_free_memory(batch.query)
        found.where = f"{layout}, prefix of {prefix}, requests {requests}"
        found.compare_out(wrapper.run(batch.query, pages.memory), batch.expected, batch.bound)


class _States:
    """Outputs v [rows, states, heads, size] with log-sum-exps s, and what they come to."""

    def __init__(self, heads, size, count, *, are_empty, seed):
        import torch

        generator = torch.Generator(_device()).manual_seed(seed)
        self.count = count
        self.v = torch.randn((ROWS, count, heads, size), generator=generator, device=_device()).bfloat16()
        self.s = 3 * torch.randn((ROWS, count, heads), generator=generator, device=_device()) + 8
        if count <= MANY:
            self.s[1, 1:] = -math.inf  # only the first is left
            self.s[2, -1], self.s[3, 1, 0] = -math.inf, -math.inf
        self.s[4, 1] = self.s[4, 0] + 60  # so far apart that the smaller one vanishes
        self.s[5] += 1000  # no exponential of the sum itself is finite
        if are_empty:
            self.s[6] = -math.inf
            self.s[7, :, -1] = -math.inf
            self.s[8, : count - 1] = -math.inf
            self.s[9, count // 2 :], self.s[10, ::2] = -math.inf, -math.inf
            self.v[11], self.s[11] = 0.0, EMPTY  # what older kernels make of nothing
        self.expected, self.spread, self.lse = self._merged()

    def pair(self):
        """Of two states, each with its log-sum-exp."""
        return [tensor[:, state] for state in (0, 1) for tensor in (self.v, self.s)]

    def _merged(self):
        import torch

        s, v = self.s.double(), self.v.double()
        lse = torch.logsumexp(s * math.log(2), 1) / math.log(2)
        weights = torch.exp2(s - lse[:, None]).nan_to_num(0.0)[..., None]  # nothing of nothing
        return (weights * v).sum(1), (weights * v.abs()).sum(1), lse


class _Batch:
    """Queries, and the keys and values of a common prefix and of each request behind it."""

    def __init__(self, prefix, requests):
        import torch

        self.prefix, self.requests = prefix, requests
        self.generator = torch.Generator(_device()).manual_seed(8)
        self.scale = 0.75 / math.sqrt(SIZE)
        self.query_indptr = _ints([0, *itertools.accumulate(queries for queries, _ in requests)])
        self.query = (3 * self._normal(int(self.query_indptr[-1]), HEADS[0])).bfloat16()
        tokens = prefix + sum(keys for _, keys in requests)
        self.key, self.value = (self._normal(tokens, HEADS[1]).bfloat16() for _ in range(2))
        done = [self._attend(*rows) for rows in self._rows()]
        self.expected, spread = (torch.cat(tensors) for tensors in zip(*done, strict=True))
        self.bound = 2 * UNIT * (2 * spread + self.expected.abs()) + 1e-5

    def _normal(self, rows, count):
        import torch

        return torch.randn((rows, count, SIZE), generator=self.generator, device=_device())

    def _rows(self):
        """Each request's queries, and all its keys: the prefix and what is its own."""
        query_end, key_end = 0, self.prefix
        for queries, keys in self.requests:
            query_end, key_end = query_end + queries, key_end + keys
            own = slice(key_end - keys, key_end)
            yield (
                self.query[query_end - queries : query_end],
                *(self._sight(one, own) for one in (self.key, self.value)),
            )

    def _sight(self, tensor, own):
        import torch

        return torch.cat((tensor[: self.prefix], tensor[own])).double().repeat_interleave(HEADS[0] // HEADS[1], 1)

    def _attend(self, query, key, value):
        import torch

        scores = torch.einsum("qhd,khd->qhk", query.double(), key) * self.scale
        last = torch.arange(len(key) - len(query), len(key), device=_device())[:, None]
        scores = scores.masked_fill((torch.arange(len(key), device=_device()) > last)[:, None], -math.inf)
        weights = scores.softmax(-1)
        return [torch.einsum("qhk,khd->qhd", weights, one) for one in (value, value.abs())]


class _Pages:
    """The tokens of a batch in shuffled pages: the common ones, and each request's own."""

    def __init__(self, batch, layout):
        import torch

        counts = [-(-keys // PAGE) for _, keys in batch.requests]
        common = batch.prefix // PAGE
        total = common + sum(counts) + SPARE_PAGES
        order = torch.randperm(total, generator=batch.generator, device=_device()).int()
        self.common, self.indices = order[:common], order[common : common + sum(counts)]
        self.indptr = _ints([0, *itertools.accumulate(counts)])
        self.last_page_len = _ints([(keys - 1) % PAGE + 1 for _, keys in batch.requests])
        inner = (PAGE, HEADS[1]) if layout == "NHD" else (HEADS[1], PAGE)
        self.memory = torch.full((total, 2, *inner, SIZE), math.nan, dtype=torch.bfloat16, device=_device())
        slots = list(range(batch.prefix))
        for first, (_, keys) in zip(self.indptr.tolist(), batch.requests, strict=False):
            slots += range((common + first) * PAGE, (common + first) * PAGE + keys)
        slots = torch.tensor(slots, device=_device())
        page, place = order.long()[slots // PAGE], slots % PAGE
        for half, new in zip(self.memory.unbind(1), (batch.key, batch.value), strict=True):
            (half if layout == "NHD" else half.transpose(1, 2))[page, place] = new


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.where = ""
        self.calls = self.elements = 0
        self.worst = self.worst_lse = 0.0
        self.of_nothing = None

    def compare(self, v, s, states):
        of_parts = UNIT if states.count >= ROWS else 0.0
        bound = 1.01 * UNIT * states.expected.abs() + (SMALL + of_parts) * states.spread + 1e-6
        self.compare_out(v, states.expected, bound)
        lse_bound = SMALL * (1 + states.lse.abs())
        nothing = (states.lse == -math.inf) & (s <= NOTHING)
        if nothing.any():
            self.of_nothing = s[nothing].max().item()
        s = s.masked_fill(nothing, -math.inf)
        self.worst_lse = max(self.worst_lse, self._share(s, states.lse, lse_bound, "log-sum-exps"))

    def compare_out(self, out, expected, bound):
        self.calls += 1
        self.worst = max(self.worst, self._share(out, expected, bound, "elements"))

    def _share(self, got, expected, bound, name):
        """The largest error as a share of its bound; NaN is never within it, and -inf is right where it is expected."""
        import torch

        assert got.shape == expected.shape, f"{self.where}: {name} of shape {tuple(got.shape)}"
        difference = torch.where(got.double() == expected, 0.0, (got.double() - expected).abs())
        share = torch.where(difference == 0, 0.0, difference / bound)
        wrong = ~(share <= 1)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} {name} are wrong, {int(got.isnan().sum())} "
                f"of them NaN, the first at {at}: got {got[at].item():.6g}, expected {expected[at].item():.6g}"
            )
        self.elements += got.numel()
        return share.max().item()

    def measured(self):
        of_nothing = {} if self.of_nothing is None else {"empty_lse": f"{self.of_nothing:g}"}
        return {
            "calls": self.calls,
            "elements": self.elements,
            "wrong_elements": 0,
            "share_of_tolerance": round(self.worst, 3),
            "share_of_lse_tolerance": round(self.worst_lse, 3),
            **of_nothing,
        }


def _ints(values):
    import torch

    return torch.tensor(values, dtype=torch.int32)


@functools.cache
def _workspace(device):
    """FlashInfer wants it zeroed before its first use."""
    import torch

    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


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
