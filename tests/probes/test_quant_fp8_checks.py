"""The checks of the FP8 rounding probe, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import pytest
from loading import PROBES, load

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

WRONG = r"are wrong|beside an output|was changed|strides"
FP8 = ("rows", "graph_rows", "columns", "tma_columns", "ue8m0_columns", "group_96")
VARIANTS = (*FP8, "int8")
FAULTS = (
    "last_row_unwritten", "rounded_toward_zero", "scale_of_next_group", "sign_lost", "neighbour_element",
    "scales_swapped", "columns_taken_for_rows", "reciprocals",
)  # fmt: skip
SCALE_FAULTS = ("half_a_group_looked_at", "largest_is_wrong")
COLUMNS = tuple(variant for variant in VARIANTS if variant.endswith("columns"))


@pytest.fixture
def probe(faults):
    return load("quant_fp8", ROWS=(1, 37, 101))


def test_every_variant_is_tested_here(probe):
    assert tuple(probe.PROBE["variants"]) == VARIANTS


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_right_rounding_passes_and_is_measured(variant, probe):
    measured = probe.run(variant)
    assert all(isinstance(value, (int, float, str)) for value in measured.values()), measured
    assert measured["undecided"] < measured["elements"] / 100


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in VARIANTS for fault in FAULTS),
        # Rounded up to a power of two, these may not differ.
        *((variant, fault) for variant in VARIANTS if variant != "ue8m0_columns" for fault in SCALE_FAULTS),
        *((variant, "eps_ignored") for variant in VARIANTS if variant not in ("graph_rows", "ue8m0_columns")),
        *((variant, "scale_in_its_last_bits") for variant in VARIANTS),
        *((variant, "nan_element") for variant in FP8),
        *((variant, "scales_row_by_row") for variant in COLUMNS),
        ("tma_columns", "columns_not_padded"),
        ("ue8m0_columns", "exponent_rounded_down"),
        ("ue8m0_columns", "ties_away_from_zero"),
        ("int8", "cut_off"),
        ("rows", "written_behind"),
        ("rows", "input_changed"),
        ("graph_rows", "graph_keeps_x"),
        ("graph_rows", "graph_does_nothing"),
    ],
)
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=WRONG) as caught:
        probe.run(variant)
    assert Path(caught.traceback[-1].path).parent == PROBES
