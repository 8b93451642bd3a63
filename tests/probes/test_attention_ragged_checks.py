"""The checks of attention.ragged, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBE = Path(__file__).parents[2] / "probes" / "attention_ragged.py"
SMALLER = {
    "HEADS": ((4, 2), (2, 2)),
    "BATCHES": (((3, 77), (1, 18), (0, 21), (40, 130)),),
    "WITHOUT_CONTEXT": ((3, 77), (5, 0), (2, 0)),
    "WORKSPACE_BYTES": 16,
}
FAULTS = (
    "ragged_shifted",
    "second_plan_taken_for_both",
    "scale_ignored",
    "wrong_last_page",
    "last_key_lost",
    "key_and_value_swapped",
    "kv_heads_interleaved",
    "heads_swapped",
    "coarse",
    "last_row_off_by_4_percent",
    "nan_element",
    "lse_natural",
    "query_changed",
)
EMPTY_FAULTS = ("empty_lse_is_zero", "empty_lse_is_minus_5000", "empty_is_nan", "ragged_shifted", "lse_natural")
CASES = [
    *(("fa2_d128", fault) for fault in FAULTS),
    *(("fa2_empty_d128", fault) for fault in EMPTY_FAULTS),
]


@pytest.fixture
def probe(paged):
    paged(
        "prefill",
        "BatchPrefillWithPagedKVCacheWrapper",
        "BatchPrefillWithRaggedKVCacheWrapper",
        "get_batch_prefill_module",
    )
    return loading.load("attention_ragged", **SMALLER)


@pytest.mark.parametrize("variant", ["fa2_d128", "fa3_d128", "fa2_empty_d128", "fa3_empty_d128"])
def test_right_kernels_pass_and_use_an_eighth_of_the_tolerance(variant, probe):
    import flashinfer._paged

    probe.build(variant)
    measured = probe.run(variant)
    assert 0.125 < measured["share_of_tolerance"] < 1
    assert len(set(flashinfer._paged.BUILDS)) == 1  # what is built is what plan() asks for
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values())


@pytest.mark.parametrize(("variant", "fault"), CASES)
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=r"are wrong|was changed") as caught:
        probe.run(variant)
    assert caught.traceback[-1].path == PROBE


def test_the_50000_of_older_kernels_is_nothing_too_and_is_told(probe, faults, monkeypatch):
    assert probe.run("fa2_empty_d128")["empty_lse"] == "-inf"
    assert "empty_lse" not in probe.run("fa2_d128")
    monkeypatch.setattr(faults, "ACTIVE", "empty_lse_is_minus_50000")
    assert probe.run("fa3_empty_d128")["empty_lse"] == "-50000"
