"""The checks of the GEMM probes, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import pytest
from loading import load

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBES = Path(__file__).parents[2] / "probes"
WRONG = r"elements are wrong|outside of out|was changed|not the tensor given|strides"
BMM = ("auto_bf16", "graph_bf16", "cublas_fp16", "batched_bf16", "e5m2_bf16")
BMM_FAULTS = (
    "k_tail_dropped", "column_swapped", "scale_of_a_twice", "scale_inverted", "last_rows_scaled", "rounded_coarsely",
    "row_repeated", "last_row_unwritten", "nan_element",
)  # fmt: skip
EAGER_FAULTS = ("written_behind", "backend_ignores_out", "input_rounded", "column_major_out")
GRAPH_FAULTS = ("graph_keeps_input", "graph_keeps_weight", "graph_keeps_scales", "graph_does_nothing")

BLOCK = (
    "swap_ab", "graph_swap_ab", "rows_32_up", "bf16_weight", "row_scales", "fp8_input", "fp8_input_column_major",
)  # fmt: skip
BLOCK_FAULTS = (
    "scale_of_next_block", "last_block_of_first_rows_dropped", "rounded_coarsely", "row_repeated", "last_row_unwritten",
    "nan_element",
)  # fmt: skip
ROUNDING_FAULTS = ("saturates", "rounded_toward_zero")


@pytest.fixture
def bmm(faults):
    return load("gemm_bmm_fp8")


@pytest.fixture
def block(faults):
    return load("gemm_fp8_block_sm90")


def assert_caught(probe, variant, match=WRONG):
    with pytest.raises(AssertionError, match=match) as caught:
        probe.run(variant)
    assert Path(caught.traceback[-1].path).parent == PROBES


def test_every_variant_of_bmm_fp8_is_tested_here(bmm):
    assert tuple(bmm.PROBE["variants"]) == BMM


@pytest.mark.parametrize("variant", BMM)
def test_a_right_bmm_fp8_passes_and_is_measured(variant, bmm):
    bmm.build(variant)
    measured = bmm.run(variant)
    assert all(isinstance(value, (int, float, str)) for value in measured.values()), measured
    assert 0.125 < measured["worst_of_tolerance"] < 1


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in BMM for fault in BMM_FAULTS),
        *(("auto_bf16", fault) for fault in EAGER_FAULTS),
        *(("graph_bf16", fault) for fault in GRAPH_FAULTS),
        ("batched_bf16", "weight_of_batch_0"),
        ("e5m2_bf16", "e5m2_as_e4m3"),
    ],
)
def test_a_fault_of_bmm_fp8_is_caught(variant, fault, bmm, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    assert_caught(bmm, variant)


def test_every_variant_of_the_block_scale_gemm_is_tested_here(block):
    assert tuple(block.PROBE["variants"]) == tuple(block.ROWS) == BLOCK


@pytest.mark.parametrize("variant", BLOCK)
def test_a_right_block_scale_gemm_passes_and_is_measured(variant, block):
    block.build(variant)
    measured = block.run(variant)
    assert all(isinstance(value, (int, float, str)) for value in measured.values()), measured
    assert 0.125 < measured["worst_of_tolerance"] < 1


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in BLOCK for fault in BLOCK_FAULTS),
        *((variant, fault) for variant in BLOCK[:4] for fault in ROUNDING_FAULTS),
        *(("swap_ab", fault) for fault in ("written_behind", "backend_ignores_out", "input_rounded")),
        *(("graph_swap_ab", fault) for fault in GRAPH_FAULTS),
        *(
            (variant, "scale_row_of_block_before")
            for variant in ("swap_ab", "graph_swap_ab", "rows_32_up", "fp8_input")
        ),
        ("bf16_weight", "largest_of_first_rows"),
        ("row_scales", "row_scales_as_block_scales"),
        ("fp8_input", "scales_read_column_by_column"),
    ],
)
def test_a_fault_of_the_block_scale_gemm_is_caught(variant, fault, block, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    assert_caught(block, variant)
