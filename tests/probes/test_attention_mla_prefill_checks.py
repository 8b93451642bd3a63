"""The checks of attention_mla_prefill, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBE = Path(__file__).parents[2] / "probes" / "attention_mla_prefill.py"
VARIANTS = ("ragged_fa2", "ragged_fa3")
FAULTS = (
    "key_before_first",
    "last_keys_dropped",
    "rotary_ignored",
    "value_from_keys_half",
    "scale_ignored",
    "mask_shifted",
    "heads_swapped",
    "head_unwritten",
    "head_zero",
    "rounded_coarsely",
    "nan_element",
    "lse_natural",
    "lse_unwritten",
    "written_behind",
    "input_written",
    "out_ignored",
)
WRONG = r"elements are wrong|log-sum-exps are wrong|around the result|not in out|written to"


@pytest.fixture
def fake(faults, monkeypatch):
    import flashinfer._mla_prefill as kernels
    import flashinfer.prefill

    for name in ("get_batch_prefill_module", "BatchPrefillWithRaggedKVCacheWrapper"):
        monkeypatch.setattr(flashinfer.prefill, name, getattr(kernels, name))
    return faults


@pytest.fixture
def probe(monkeypatch):
    return loading.load("attention_mla_prefill", WORKSPACE_BYTES=16)


@pytest.mark.parametrize("variant", VARIANTS)
def test_right_kernels_pass_and_are_measured(variant, fake, probe):
    probe.build(variant)
    measured = probe.run(variant)
    assert measured["calls"] == 8
    assert 1 / 8 < measured["worst_of_tolerance"] < 1
    assert 1 / 8 < measured["worst_lse_of_tolerance"] < 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    monkeypatch.setattr(probe, "HEADS", (3,))
    with pytest.raises(AssertionError, match=WRONG) as caught:
        probe.run("ragged_fa2")
    assert caught.traceback[-1].path == PROBE


@pytest.mark.parametrize("fault", sorted({*FAULTS} - {"mask_shifted"}))
def test_a_fault_is_caught_in_a_context_alone(fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    tokens = probe._Tokens(3, probe.CONTEXT, causal=False)
    with pytest.raises(AssertionError, match=WRONG):
        probe._check("fa2", tokens, probe._Found())
