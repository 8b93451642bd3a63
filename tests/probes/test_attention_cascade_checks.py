"""The checks of attention.cascade, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBE = Path(__file__).parents[2] / "probes" / "attention_cascade.py"
SMALLER = {"REQUESTS": (((1, 1), (1, 17), (20, 90)),), "WORKSPACE_BYTES": 16}
MERGE_FAULTS = (
    "natural_base",
    "weights_alike",
    "last_state_lost",
    "last_row_off_by_4_percent",
    "large_lse_overflows",
    "nan_element",
)
IN_PLACE = ("in_place_does_nothing", "mask_ignored", "mask_ignored_by_lse", "lse_not_updated", "other_changed")
EMPTY = ("both_empty_is_nan", "empty_is_one", "lse_of_nothing_is_zero")
LEVELS = ("prefix_lost", "prefix_counted_twice", "prefix_is_causal", "natural_base", "wrong_last_page", "scale_ignored")
CASES = [
    *(("merge_state", fault) for fault in MERGE_FAULTS),
    *(("merge_states", fault) for fault in (*MERGE_FAULTS, "only_the_first_parts")),
    *(("merge_state_in_place", fault) for fault in (*MERGE_FAULTS, *IN_PLACE)),
    *(("graph_merge_state_in_place", fault) for fault in (*MERGE_FAULTS, "in_place_does_nothing", "lse_not_updated")),
    *((f"empty_{name}", fault) for name in ("merge_state", "merge_state_in_place", "merge_states") for fault in EMPTY),
    *(("levels_d128", fault) for fault in LEVELS),
]


@pytest.fixture
def probe(paged):
    paged("prefill", "get_batch_prefill_module")
    paged("utils", "determine_attention_backend", is_there=False)
    return loading.load("attention_cascade", **SMALLER)


def test_every_variant_is_tested_here(probe):
    assert set(probe.PROBE["variants"]) == {variant for variant, _ in CASES}


@pytest.mark.parametrize("variant", dict.fromkeys(variant for variant, _ in CASES))
def test_right_kernels_pass_and_use_an_eighth_of_the_tolerance(variant, probe):
    import flashinfer._paged

    probe.build(variant)
    measured = probe.run(variant)
    assert 0.125 < measured["share_of_tolerance"] < 1
    assert len(set(flashinfer._paged.BUILDS)) == (variant == "levels_d128")  # what is built is what plan() asks for
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values())


@pytest.mark.parametrize(("variant", "fault"), CASES)
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=r"are wrong|was changed") as caught:
        probe.run(variant)
    assert caught.traceback[-1].path == PROBE


def test_states_that_are_both_empty_are_asked_for_in_variants_of_their_own(probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "both_empty_is_nan")
    for variant in ("merge_state", "merge_state_in_place", "merge_states", "levels_d128"):
        probe.run(variant)


def test_the_50000_of_older_kernels_is_nothing_too_and_is_told(probe, faults, monkeypatch):
    assert probe.run("empty_merge_states")["empty_lse"] == "-inf"
    assert "empty_lse" not in probe.run("merge_states")
    monkeypatch.setattr(faults, "ACTIVE", "nothing_is_minus_50000")
    assert probe.run("empty_merge_states")["empty_lse"] == "-50000"


def test_no_more_is_allowed_where_no_part_is_rounded(probe, faults, monkeypatch):
    """Parts that are rounded to bf16 are wrong where there are fewer states than rows, which float32 merges."""
    monkeypatch.setattr(probe, "STATES", (36,))
    monkeypatch.setattr(faults, "ACTIVE", "parts_rounded_always")
    with pytest.raises(AssertionError, match="elements are wrong"):
        probe.run("merge_states")
