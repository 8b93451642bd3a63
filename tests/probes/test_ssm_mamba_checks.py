"""The checks of the probe of the selective state update, on the CPU against a stand-in: each fault is caught."""

from pathlib import Path

import pytest
from loading import load

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBES = Path(__file__).parents[2] / "probes"
VARIANTS = ("f32_state", "bf16_state", "graph_f32_state", "graph_bf16_state")
SMALL = {"HEADS": 4, "DIM": 8, "STATE": 32, "BATCHES": ((5, 1), (9, 2))}
EVERYWHERE = (
    "groups_interleaved", "bias_ignored", "softplus_ignored", "step_cut_at_20", "slot_as_row", "decay_not_applied",
    "last_input_dropped", "heads_permuted", "skip_ignored", "null_slot_written", "state_not_updated",
    "write_slot_ignored", "reads_where_it_writes", "row_unwritten", "rows_swapped", "state_element_off",
    "state_transposed", "next_page_written", "page_overrun", "written_behind", "neighbour_element", "zero_element",
    "inf_element", "ignores_output",
)  # fmt: skip
GRAPH_FAULTS = (
    "graph_does_nothing", "graph_keeps_x", "graph_keeps_step", "graph_keeps_b", "graph_keeps_c", "graph_keeps_read",
    "graph_keeps_write",
)  # fmt: skip


@pytest.fixture
def probe(faults):
    return load("ssm_mamba", **SMALL)


def assert_caught(probe, variant):
    with pytest.raises(AssertionError) as caught:
        probe.run(variant)
    assert Path(caught.traceback[-1].path).parent == PROBES


def test_every_variant_is_tested_here(probe):
    assert tuple(probe.PROBE["variants"]) == VARIANTS


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_right_kernel_passes_and_is_measured(variant, probe):
    probe.build(variant)
    measured = probe.run(variant)
    assert all(isinstance(value, (int, float, str)) for value in measured.values()), measured
    assert 0.125 < measured["worst_of_tolerance"] < 1
    assert 0.125 < measured["worst_state_of_tolerance"] < 1


def test_a_right_kernel_passes_with_the_shapes_that_a_gpu_gets(faults):
    measured = load("ssm_mamba", BATCHES=((5, 1),)).run("f32_state")
    assert 0.125 < measured["worst_of_tolerance"] < 1
    assert 0.125 < measured["worst_state_of_tolerance"] < 1


def test_what_is_built_is_what_is_called(probe, faults):
    import flashinfer.jit.mamba

    probe.build("bf16_state")
    state, inputs, weights, decay, index, *sizes = flashinfer.jit.mamba.BUILT[-1]
    assert (state, inputs, weights) == (torch.bfloat16,) * 3
    assert (decay, index) == (torch.float32, torch.int32)
    assert sizes == [SMALL["DIM"], SMALL["STATE"], 1, torch.int32, torch.int64]


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in VARIANTS for fault in EVERYWHERE),
        *((variant, "input_changed") for variant in VARIANTS[:2]),
        *((variant, fault) for variant in VARIANTS[2:] for fault in GRAPH_FAULTS),
        ("f32_state", "state_in_bf16"),
        ("graph_f32_state", "state_in_bf16"),
    ],
)
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    assert_caught(probe, variant)
