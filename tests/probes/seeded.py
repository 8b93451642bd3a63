"""Seeded faults: a kernel that is right but for at most one element of a hundred of one call.

`fake_flashinfer` beside it holds for each kernel a right stand-in, at the kernel's precision, and its faults. Here one
call is made twice, right and with a fault, and of the faulty outputs only a short run of elements is taken; all other
calls are right. So a fault that would spoil every element is as small as a lost tail, and the probe's own check has to
see it all the same. The call is drawn from those in which the fault does half as much as anywhere, the place from the
tenth of the elements that differ most: elsewhere it may do less than rounding does (a lost expert of little weight).
"""

import contextlib
import importlib
import random
from typing import NamedTuple

import loading
import torch

MOST = 100  # one element of so many


class Kernel(NamedTuple):
    """A probe's variant, what of the stand-in it calls, and the faults that change what the call gives."""

    probe: str
    variant: str
    entry: str  # module:function or module:Class.method
    smaller: dict
    faults: tuple


class Seen(NamedTuple):
    """What became of one seeded fault."""

    caught: str  # what the check said; "" when it saw nothing
    touched: int
    elements: int  # of all outputs of the run


KERNELS = (
    Kernel(
        "norm_rmsnorm",
        "bf16",
        "flashinfer.norm:rmsnorm",
        {"HIDDEN_SIZES": (64, 111, 500, 4096), "BATCH_SIZES": (1, 19), "SPREAD_HIDDEN_SIZES": (500,)},
        (
            "eps_ignored",
            "weight_ignored",
            "mean_over_too_many",
            "tail_dropped",
            "last_row_dropped",
            "not_written",
            "nan_element",
            "rounded_twice",
            "strides_ignored",
            "input_changed",
        ),
    ),
    Kernel(
        "norm_fused_add_rmsnorm",
        "bf16",
        "flashinfer.norm:fused_add_rmsnorm",
        {"HIDDEN_SIZES": (64, 111, 500, 4096), "BATCH_SIZES": (1, 19)},
        (
            "eps_ignored",
            "weight_ignored",
            "residual_not_added",
            "residual_not_written",
            "residual_nan_element",
            "input_not_written",
            "last_row_dropped",
            "nan_element",
        ),
    ),
    Kernel(
        "activation_silu_and_mul",
        "bf16",
        "flashinfer.activation:silu_and_mul",
        {"SIZES": (8, 888, 8200), "BATCH_SIZES": (1, 19)},
        (
            "gate_and_up_swapped",
            "sigmoid",
            "gelu",
            "up_ignored",
            "tail_dropped",
            "last_row_dropped",
            "nan_element",
            "rounded_twice",
        ),
    ),
    Kernel(
        "kv_append_paged",
        "nhd_page16",
        "flashinfer.page:append_paged_kv_cache",
        {"HEADS": ((1, 64), (5, 128))},
        (
            "key_and_value_swapped",
            "value_lost",
            "last_token_lost",
            "wrong_page",
            "page_table_ignored",
            "position_off_by_one",
            "first_request_for_all",
            "neighbour_overwritten",
            "heads_reversed",
            "rounded",
            "nan_element",
        ),
    ),
    Kernel(
        "attention_decode",
        "tc_d128",
        "flashinfer.decode:BatchDecodeWithPagedKVCacheWrapper.run",
        {"WORKSPACE_BYTES": 16},
        (
            "last_key_dropped",
            "wrong_page",
            "page_table_ignored",
            "hnd_as_nhd",
            "heads_interleaved",
            "parts_weighted_alike",
            "last_part_lost",
            "last_request_unwritten",
            "nan_element",
            "rounded_coarsely",
            "key_and_value_swapped",
            "rest_of_page_read",
            "query_strides_ignored",
            "lse_natural",
        ),
    ),
    Kernel(
        "attention_prefill",
        "fa2_d64",
        "flashinfer.prefill:_Wrapper._attend",
        {
            "BATCHES": {"short": ((3, 20), (1, 18)), "long": ((1, 40), (0, 21), (37, 37), (0, 0), (19, 33), (1, 300))},
            "WORKSPACE_BYTES": 1024,
        },
        (
            "no_causal_mask",
            "mask_at_top_left",
            "one_key_too_many",
            "diagonal_hidden",
            "last_key_dropped",
            "first_key_dropped",
            "heads_interleaved",
            "normalised_twice",
            "value_coarse",
            "value_scaled",
            "request_not_written",
            "natural_log",
            "lse_not_written",
            "nan_element",
            "last_columns_lost",
        ),
    ),
    Kernel(
        "attention_sinks",
        "xqa_d64",
        "flashinfer.decode:xqa_batch_decode_with_kv_cache",
        {"WORKSPACE": 2**16, "SPLIT_DECODE": ((1, 1500),)},
        ("sink_dropped", "sink_times_log2e", "sinks_rotated", "page_ends_read", "last_token_lost", "nan_element"),
    ),
    Kernel(
        "attention_sinks",
        "fa2_d64",
        "flashinfer.attention:BatchAttentionWithAttentionSinkWrapper.run",
        {
            "PREFILL": ((1, 1), (15, 15), (0, 20), (17, 130), (3, 200)),
            "SPLIT": ((3, 1500),),
            "SPLIT_DECODE": ((1, 1500),),
            "WORKSPACE": 9 * 2**20,
        },
        (
            "sink_dropped",
            "sink_scaled",
            "sink_times_log2e",
            "sink_over_log2e",
            "sinks_rotated",
            "sinks_reversed",
            "first_sink_for_all",
            "sink_of_kv_head",
            "last_token_lost",
            "kv_heads_interleaved",
            "nan_element",
            "not_written",
        ),
    ),
    *(
        Kernel(
            name,
            variant,
            "flashinfer.fused_moe.core:compute",
            sizes | {"TOKENS": (1, 37, 150)},
            (
                "expert_dropped",
                "router_ignored",
                "router_of_next_token",
                "last_choice_lost",
                "first_choice_for_all",
                "k_tail_dropped",
                "nan_element",
                "not_written",
                "last_token_dropped",
                "gate_up_swapped",
                *more,
            ),
        )
        for name, variant, sizes, more in (
            ("moe_bf16", "tactic_0", {"HIDDEN": 208, "INTERMEDIATE": 144}, ()),
            ("moe_fp8_per_tensor", "tactic_0", {"HIDDEN": 208, "INTERMEDIATE": 144}, ("fc1_scales_of_next_expert",)),
            (
                "moe_fp8_block",
                "eager",
                {"HIDDEN": 384, "INTERMEDIATE": 256},
                ("fc1_scales_of_next_block", "fc2_scales_transposed"),
            ),
            (
                "moe_mxfp4_bf16",
                "tactic_0",
                {"HIDDEN": 384, "INTERMEDIATE": 256},
                ("fc1_scales_of_next_block", "fc2_scales_of_next_rows"),
            ),
        )
    ),
)


def load(kernel):
    """The probe as a module of its own, on sizes for a CPU."""
    return loading.load(kernel.probe, **kernel.smaller)


def clean(kernel, seed=0):
    """What a run without a fault measures, on inputs of this seed; AssertionError is a false alarm."""
    with _seeds_shifted(seed):
        return load(kernel).run(kernel.variant)


def seeded(kernel, fault, faults, seed=0):
    """One run with this fault in one call; faults: the module of the stand-in."""
    draw = random.Random(f"{kernel.probe} {fault} {seed}")
    scout = _Calls(faults, fault, draw)
    with _replaced(kernel.entry, scout):
        load(kernel).run(kernel.variant)
    assert scout.harm, f"{kernel.probe} {kernel.variant}: {fault} changes nothing"
    most = max(scout.harm.values())
    calls = _Calls(faults, fault, draw, at=draw.choice([at for at, harm in scout.harm.items() if harm >= most / 2]))
    caught = ""
    with _replaced(kernel.entry, calls):
        try:
            load(kernel).run(kernel.variant)
        except AssertionError as error:
            caught = str(error) or "an assertion"
    return Seen(caught, calls.touched, scout.elements)


class _Calls:
    """Makes each call of one entry twice, and gives the call number `at` its fault; None: looks only."""

    def __init__(self, faults, fault, draw, at=None):
        self.faults, self.fault, self.draw, self.at = faults, fault, draw, at
        self.number = self.touched = self.elements = 0
        self.harm = {}  # number of a call that differs: its largest difference

    def __call__(self, function, *args, **kwargs):
        number, self.number = self.number, self.number + 1
        if self.at is not None and number != self.at:
            return function(*args, **kwargs)
        given = _tensors((args, kwargs))
        before = [one.clone() for one in given]
        self.faults.ACTIVE = self.fault
        try:
            wrong = [one.clone() for one in (*given, *_tensors(function(*args, **kwargs)))]
        finally:
            self.faults.ACTIVE = ""
        for one, kept in zip(given, before, strict=True):
            one.copy_(kept)
        result = function(*args, **kwargs)
        right = [*given, *_tensors(result)]
        self._compare(number, right, wrong, before)
        return result

    def _compare(self, number, right, wrong, before):
        differ = [_differs(good, bad) for good, bad in zip(right, wrong, strict=True)]
        written = [_differs(good, old) for good, old in zip(right, before, strict=False)]
        outputs = sum(int(one.sum()) for one in written) or sum(one.numel() for one in right[len(before) :])
        self.elements += outputs
        if not any(one.any() for one in differ):
            return
        sizes = [_size(good, bad, one) for good, bad, one in zip(right, wrong, differ, strict=True)]
        self.harm[number] = max(float(size.max()) for size in sizes)
        if self.at is not None:
            which = self.draw.choice([place for place, size in enumerate(sizes) if size.max() == self.harm[number]])
            self._spoil(right[which], wrong[which], sizes[which], max(1, outputs // MOST))

    def _spoil(self, right, wrong, size, most):
        """A run of elements around one of the tenth that differ most."""
        good, bad = right.flatten(), wrong.flatten()
        places = size.nonzero().flatten()
        size = size[places]
        places = places[size >= size.sort().values[len(size) * 9 // 10]]
        middle = int(places[self.draw.randrange(len(places))])
        begin = max(0, min(middle - most // 2, good.numel() - most))
        taken = good.clone()
        taken[begin : begin + most] = bad[begin : begin + most]
        self.touched = int(_differs(good, taken).sum())
        right.copy_(taken.view(right.shape))


def _size(good, bad, differ):
    """How far each element is off, flat; 0 where it is not, infinite for NaN."""
    off = (good.double() - bad.double()).abs().nan_to_num(nan=torch.inf)
    return torch.where(differ, off, 0.0).flatten() if off.numel() else torch.zeros(1)


def _tensors(value):
    """Every tensor in nested arguments or results."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [found for one in value for found in _tensors(one)] if isinstance(value, (tuple, list)) else []


def _differs(one, other):
    if one.dtype.itemsize == 1:
        one, other = one.view(torch.uint8), other.view(torch.uint8)
    return (one != other) & ~((one != one) & (other != other))  # noqa: PLR0124 - NaN is like NaN


@contextlib.contextmanager
def _replaced(entry, calls):
    """The stand-in's function or method, called through `calls`."""
    module, _, path = entry.partition(":")
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)

    def through(*args, **kwargs):
        return calls(original, *args, **kwargs)

    setattr(owner, name, through)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def _seeds_shifted(by):
    """Probes draw from generators with seeds of their own; here others are taken."""
    original = torch.Generator

    class Shifted(original):
        def manual_seed(self, seed):
            return super().manual_seed(seed + 1000 * by)

    torch.Generator = Shifted
    try:
        yield
    finally:
        torch.Generator = original
