"""The checks of the probe of the gated delta rule, on the CPU against a stand-in: each fault is caught."""

from pathlib import Path

import pytest
from loading import load

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBES = Path(__file__).parents[2] / "probes"
VARIANTS = ("grouped", "equal_heads", "dsl_grouped", "dsl_equal_heads")
SMALL = {"grouped": ((2, 4, (65, 1, 70)), (1, 3, (9, 3, 1))), "equal_heads": ((2, 2, (65, 1, 64)),)}
EVERYWHERE = (
    "stale_state", "first_state_dropped", "first_state_transposed", "state_transposed", "state_head_permuted",
    "state_unwritten", "state_element_off", "state_in_bf16", "head_permuted", "gate_not_applied",
    "gate_taken_as_logarithm", "gate_of_token_before", "beta_not_applied", "sequences_mixed", "keys_not_taken_back",
    "delta_rule_left_out", "own_token_not_read", "last_token_dropped", "last_token_unwritten", "scale_off",
    "decay_within_chunk_left_out", "neighbours_key", "input_changed", "state_in_place", "ignores_output",
    "written_behind", "written_behind_state", "neighbour_element", "zero_element", "inf_element",
)  # fmt: skip


@pytest.fixture
def probe(faults):
    return load("ssm_gdn", CASES=SMALL, SIZE=32)


def test_every_variant_is_tested_here(probe):
    assert tuple(probe.PROBE["variants"]) == VARIANTS


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_right_kernel_passes_and_is_measured(variant, probe):
    assert probe.build(variant) is (False if variant.startswith("dsl_") else None)
    measured = probe.run(variant)
    assert all(isinstance(value, (int, float)) for value in measured.values()), measured
    assert 0.125 < measured["worst_of_tolerance"] < 1
    assert 0.125 < measured["worst_state_of_tolerance"] < 1


def test_a_right_kernel_passes_with_the_shapes_that_a_gpu_gets(faults):
    measured = load("ssm_gdn", CASES={"grouped": ((2, 4, (65, 1, 200)),)}).run("grouped")
    assert 0.125 < measured["worst_of_tolerance"] < 0.8
    assert 0.125 < measured["worst_state_of_tolerance"] < 0.8


@pytest.mark.parametrize(
    ("variant", "fault"),
    [*((variant, fault) for variant in VARIANTS[:2] for fault in EVERYWHERE), ("grouped", "heads_interleaved")],
)
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError) as caught:
        probe.run(variant)
    assert Path(caught.traceback[-1].path).parent == PROBES
