"""The checks of attention_mla, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBE = Path(__file__).parents[2] / "probes" / "attention_mla.py"
FAULTS = (  # each in one head of one row, or in one element
    "last_key_dropped",
    "slot_next_to_last",
    "wrong_page",
    "page_table_ignored",
    "scale_ignored",
    "rotary_ignored",
    "query_quiet_missing",
    "part_lost",
    "parts_weighted_alike",
    "sums_in_log2",
    "head_permuted",
    "head_unwritten",
    "head_zero",
    "rounded_coarsely",
    "tolerance_thrice",
    "nan_element",
    "written_behind_last",
)
LSE_FAULTS = ("lse_natural", "lse_written_behind", "lse_ignored")
INPUT_FAULTS = ("query_written", "cache_written")
GRAPH_FAULTS = ("graph_keeps_query", "graph_keeps_table", "graph_does_nothing")
WRONG = r"elements are wrong|log-sum-exps are wrong|behind the last|not in out|written to"


@pytest.fixture
def fake(faults, monkeypatch):
    import flashinfer.jit
    import flashinfer.mla

    monkeypatch.setattr(flashinfer.jit, "gen_batch_mla_module", flashinfer.mla.gen_batch_mla_module, raising=False)
    return faults


@pytest.fixture
def probe(monkeypatch):
    return loading.load("attention_mla", WORKSPACE_BYTES=16)


@pytest.fixture
def small(probe, monkeypatch):
    """Fewer requests, so that many faults can be tried."""
    monkeypatch.setattr(probe, "SHORT", ((1, 17), (1, 1)))
    monkeypatch.setattr(probe, "LONG", ((1, 130), (1, 600), (1, 64)))
    monkeypatch.setattr(probe, "MANY", ((1, 140), (1, 1)))
    monkeypatch.setattr(probe, "CAUSAL", ((4, 66), (0, 21), (3, 3)))
    return probe


@pytest.mark.parametrize("variant", ["fa2_h16", "fa3_h16", "fa3_nope_h16", "fa3_fp8_h16"])
def test_right_kernels_pass_and_are_measured(variant, fake, probe):
    probe.build(variant)
    measured = probe.run(variant)
    assert 1 / 8 < measured["worst_of_tolerance"] < 1
    assert measured["worst_lse_of_tolerance"] < 1
    assert measured["calls"] == 16


@pytest.mark.parametrize("variant", ["fa2_h128", "fa3_h128"])
def test_many_heads_pass(variant, fake, small):
    small.build(variant)
    assert 1 / 8 < small.run(variant)["worst_of_tolerance"] < 1


@pytest.mark.parametrize("variant", ["graph_fa2_h16", "graph_fa3_h16", "graph_fa3_fp8_h16"])
def test_right_graphs_pass_and_are_measured(variant, fake, probe):
    probe.build(variant)
    measured = probe.run(variant)
    assert 1 / 8 < measured["worst_of_tolerance"] < 1
    assert measured["plans"] == 6


@pytest.mark.parametrize("variant", ["fa2_h40", "fa3_h40"])
def test_a_boundary_inside_a_head_may_be_right_or_refused(variant, fake, probe, monkeypatch):
    probe.build(variant)
    assert probe.run(variant)["answer"] == "right"
    monkeypatch.setattr(fake, "ACTIVE", "boundary_refused")
    assert probe.run(variant)["answer"].startswith("refused: fa2 MLA causal tile boundary")
    monkeypatch.setattr(fake, "ACTIVE", "last_key_dropped")
    with pytest.raises(AssertionError, match="elements are wrong"):
        probe.run(variant)
    monkeypatch.setattr(fake, "ACTIVE", "refused_otherwise")
    with pytest.raises(ValueError, match="more than this device has"):
        probe.run(variant)


@pytest.mark.parametrize("variant", ["fa2_h16", "fa3_fp8_h16"])
@pytest.mark.parametrize("fault", [*FAULTS, *LSE_FAULTS, *INPUT_FAULTS, "out_ignored"])
def test_a_fault_is_caught(variant, fault, fake, small, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=WRONG) as caught:
        small.run(variant)
    assert caught.traceback[-1].path == PROBE


@pytest.mark.parametrize("fault", ["ckv_scale_ignored", "kpe_scale_ignored"])
def test_a_scale_that_is_ignored_is_caught(fault, fake, small, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match="elements are wrong"):
        small.run("fa3_fp8_h16")


def test_a_mask_that_is_shifted_is_caught(fake, small, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", "mask_shifted")
    with pytest.raises(AssertionError, match=r"\(4, 66\).*elements are wrong"):
        small.run("fa3_h16")


@pytest.mark.parametrize("fault", [*FAULTS, *GRAPH_FAULTS])
def test_a_fault_in_a_graph_is_caught(fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=WRONG) as caught:
        probe.run("graph_fa3_h16")
    assert caught.traceback[-1].path == PROBE


@pytest.mark.parametrize("fault", ["last_key_dropped", "part_lost", "wrong_page", "slot_next_to_last"])
def test_a_fault_is_seen_in_the_longest_request_alone(fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=r"\(1, 1000\).*elements are wrong"):
        probe._check_eager((16, 64, False), ((1, 1000),), probe._Found("fa3"))
