"""What the checks of the rotary embeddings let through and what they catch, on the CPU."""

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

MLA = ((1, 4, 1, 64, 64), (7, 8, 1, 64, 64))
SMALLER = {
    "MLA_CASES": MLA,
    "FUSED_CASES": ((1, 4, 2, 128, 128), (19, 5, 1, 64, 32), (7, 2, 2, 128, 64), (3, 2, 1, 512, 512)),
    "CACHED_CASES": ((9, 2, 1, 128, 96),),
    "GRAPH_CASES": (*MLA, (5, 4, 2, 128, 128)),
}
FAULTS = (
    "positions_ignored",
    "position_off_by_one",
    "last_position_wrong",
    "sign_of_sin",
    "other_style",
    "key_not_rotated",
    "last_token_lost",
    "last_head_lost",
    "nan_element",
    "one_element_off",
    "rest_changed",
    "written_before",
    "written_before_read",
    "returns_query",
)
CACHE_FAULTS = ("cache_in_bf16", "cos_and_sin_swapped", "magnitude_dropped", "cache_changed")
ANGLE_FAULTS = ("theta_ignored", "scale_ignored", "frequencies_of_whole_head", "angles_in_bf16")
GRAPH_FAULTS = ("graph_keeps_positions", "graph_keeps_input", "graph_does_nothing", "nan_element", "last_head_lost")
CAUGHT = {
    "cos_sin_neox": FAULTS + CACHE_FAULTS,
    "cos_sin_interleaved": FAULTS + CACHE_FAULTS,
    "cos_sin_fp16": FAULTS + CACHE_FAULTS,
    "graph_cos_sin_neox": GRAPH_FAULTS,
    "graph_cos_sin_interleaved": GRAPH_FAULTS,
    "pos_ids_neox": FAULTS + ANGLE_FAULTS,
    "pos_ids_interleaved": FAULTS + ANGLE_FAULTS,
}


@pytest.fixture
def probe(monkeypatch):
    return loading.load("rope_apply", **SMALLER)


@pytest.mark.parametrize("variant", CAUGHT)
def test_right_kernels_pass_and_use_the_tolerance(variant, probe, fake):
    assert list(probe.PROBE["variants"]) == list(CAUGHT)
    probe.build(variant)
    measured = probe.run(variant)
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values()), measured
    assert 1 / 8 <= measured["share_of_tolerance"] <= 1


@pytest.mark.parametrize(
    ("variant", "fault"), [(variant, fault) for variant, faults in CAUGHT.items() for fault in faults]
)
def test_a_fault_is_caught(variant, fault, probe, fake, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError) as caught:
        probe.run(variant)
    assert str(caught.value)
