"""The checks of attention.mixed_groups, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBE = Path(__file__).parents[2] / "probes" / "attention_mixed_groups.py"
SMALLER = {
    "HEADS": {"sinks": (8, 2), "plain": (4, 2)},
    "STEPS": (((4, 200), (4, 17), (4, 132)), ((4, 301), (70, 70), (4, 16))),
    "WORKSPACE_BYTES": 16,
}
FAULTS = (
    "second_plan_taken_for_both",
    "first_window_taken_for_both",
    "sinks_of_last_call",
    "sink_dropped",
    "sink_log2",
    "window_ignored",
    "window_one_longer",
    "window_one_shorter",
    "window_missed_by_one_head",
    "wrong_last_page",
    "last_key_lost",
    "heads_swapped",
    "coarse",
    "last_row_off_by_4_percent",
    "last_row_unwritten",
    "nan_element",
    "written_behind",
    "out_ignored",
    "query_changed",
)
SAID = r"elements are wrong|before or behind|another tensor than out|changed its query"


@pytest.fixture
def probe(paged):
    paged("prefill", "BatchPrefillWithPagedKVCacheWrapper", "get_batch_prefill_module")
    paged("attention", "BatchAttentionWithAttentionSinkWrapper")
    return loading.load("attention_mixed_groups", **SMALLER)


@pytest.mark.parametrize("variant", ["fa2_sinks_first", "fa2_plain_first", "fa3_sinks_first", "fa3_plain_first"])
def test_right_kernels_pass_and_use_an_eighth_of_the_tolerance(variant, probe):
    import flashinfer._paged

    probe.build(variant)
    built = set(flashinfer._paged.BUILDS)
    measured = probe.run(variant)
    assert 0.125 < measured["share_of_tolerance"] < 1
    assert set(flashinfer._paged.BUILDS) == built  # what is built is what is asked for
    assert len(built) == 2
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values())


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("variant", ["fa2_sinks_first", "fa2_plain_first"])
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=SAID) as caught:
        probe.run(variant)
    assert caught.traceback[-1].path == PROBE
