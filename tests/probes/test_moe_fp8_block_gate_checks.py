"""The probe of the gate, against a stand-in: it tells an open gate from a closed one and never builds anything."""

import loading
import pytest

pytest.importorskip("torch")


@pytest.fixture
def probe():
    return loading.load("moe_fp8_block_gate")


def test_an_open_gate_is_open_and_nothing_is_built(probe, faults):
    from flashinfer.fused_moe import core

    builder = core.get_cutlass_fused_moe_module
    assert probe.run() == {"gate": "open", "gate_version": "13.0"}
    assert core.get_cutlass_fused_moe_module is builder
    assert core.BUILT == []


def test_a_closed_gate_raises_in_its_own_words(probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "gate_closed")
    with pytest.raises(NotImplementedError, match="not for this CUDA"):
        probe.run()


def test_a_call_that_never_asks_for_the_module_is_no_open_gate(probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "module_not_asked_for")
    with pytest.raises(RuntimeError, match="does not fit this version"):
        probe.run()
