"""What the checks of the append to MLA caches let through and what they catch, on the CPU."""

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

SMALLER = {"APPENDED": (1, 0, 0, 37, 64, 20, 3, 70), "BEFORE": 64}
FAULTS = (
    "last_token_lost",
    "key_lost",
    "tail_dropped",
    "rounded",
    "nan_element",
    "neighbour_overwritten",
    "tokens_changed",
    "returns_cache",
    "position_off_by_one",
    "first_request_for_all",
    "wrong_page",
    "page_table_ignored",
    "strides_ignored",
)
GRAPH_FAULTS = (
    "graph_keeps_positions",
    "graph_keeps_indptr",
    "graph_keeps_page_table",
    "graph_keeps_tokens",
    "graph_does_nothing",
    "last_token_lost",
)
CAUGHT = {
    "page64": FAULTS,
    "page16": FAULTS,
    "page1": tuple(fault for fault in FAULTS if fault != "neighbour_overwritten"),
    "graph_page64": GRAPH_FAULTS,
    "fp8_page64": FAULTS,
}


@pytest.fixture
def probe(monkeypatch):
    return loading.load("kv_append_mla", **SMALLER)


@pytest.mark.parametrize("variant", CAUGHT)
def test_right_kernels_pass(variant, probe, fake):
    assert list(probe.PROBE["variants"]) == list(CAUGHT)
    probe.build(variant)
    measured = probe.run(variant)
    assert measured["wrong_bytes"] == 0
    assert measured["bytes"] > 0


@pytest.mark.parametrize(
    ("variant", "fault"), [(variant, fault) for variant, faults in CAUGHT.items() for fault in faults]
)
def test_a_fault_is_caught(variant, fault, probe, fake, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError) as caught:
        probe.run(variant)
    assert str(caught.value)
