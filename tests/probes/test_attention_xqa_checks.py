"""The checks of attention_xqa, on the CPU against a stand-in: right kernels pass, each fault is caught."""

import sys
from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBE = Path(__file__).parents[2] / "probes" / "attention_xqa.py"
EAGER = ("direct_d128", "fp8_d128", "spec_d128", "ragged_d128")
GRAPHS = ("graph_fp8_d128", "graph_spec_d128")
FAULTS = (  # each in one head of one row, or in one element
    "last_key_dropped",
    "wrong_page",
    "heads_interleaved",
    "key_and_value_swapped",
    "scale_ignored",
    "value_scale_wrong",
    "head_unwritten",
    "head_zero",
    "head_permuted",
    "four_tolerances",
    "nan_element",
    "written_behind_last",
)
GRAPH_FAULTS = ("graph_keeps_query", "graph_keeps_lengths", "graph_keeps_table")
WRONG = r"elements are wrong|behind the last|not in out"


@pytest.fixture
def fake(faults, monkeypatch):
    import flashinfer
    import flashinfer._xqa_calls as kernels
    import flashinfer.decode

    kernels.KEPT.clear()
    kernels.BUILT.clear()
    monkeypatch.setattr(flashinfer, "xqa", kernels.xqa, raising=False)
    name = "xqa_batch_decode_with_kv_cache"
    monkeypatch.setattr(flashinfer.decode, name, getattr(kernels, name), raising=False)
    monkeypatch.setitem(sys.modules, "flashinfer.xqa", kernels)
    return faults


@pytest.fixture
def probe(monkeypatch):
    return loading.load("attention_xqa", WORKSPACE_BYTES=16)


def test_every_variant_is_tested_here(probe):
    assert {*probe.PROBE["variants"]} == {*EAGER, *GRAPHS}


@pytest.mark.parametrize("variant", [*EAGER, *GRAPHS])
def test_right_kernels_pass_and_are_measured(variant, fake, probe):
    measured = probe.run(variant)
    assert 0.03 < measured["worst_of_tolerance"] < 1
    assert measured.get("empty_request", "") == ("NaN" if variant == "graph_fp8_d128" else "")


@pytest.mark.parametrize("variant", EAGER)
@pytest.mark.parametrize("fault", [*FAULTS, "out_ignored"])
def test_a_fault_is_caught(variant, fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    monkeypatch.setattr(probe, "CACHES", probe.CACHES[:1])
    with pytest.raises(AssertionError, match=WRONG) as caught:
        probe.run(variant)
    assert caught.traceback[-1].path == PROBE


@pytest.mark.parametrize("variant", ["spec_d128", "ragged_d128"])
@pytest.mark.parametrize("fault", ["mask_shifted", "mask_ignored"])
def test_a_wrong_mask_is_caught(variant, fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match="elements are wrong"):
        probe.run(variant)


@pytest.mark.parametrize("fault", ["window_ignored", "window_too_long"])
def test_a_wrong_window_is_caught(fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=r"window_left 127.*elements are wrong"):
        probe.run("direct_d128")


@pytest.mark.parametrize("variant", GRAPHS)
@pytest.mark.parametrize("fault", GRAPH_FAULTS)
def test_what_a_graph_kept_shows_in_the_first_replay(variant, fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match="replay 1 of a CUDA graph"):
        probe.run(variant)


@pytest.mark.parametrize("fault", ["last_key_dropped", "wrong_page"])
@pytest.mark.parametrize("fp8", [False, True])
def test_a_fault_is_seen_in_the_longest_request_alone(fault, fp8, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    batch = probe._Batch(((1, 3000),), -1, probe._generator(11), fp8=fp8)
    with pytest.raises(AssertionError, match=r"\(1, 3000\).*elements are wrong"):
        probe._check_eager(batch, "fp8" if fp8 else "direct", probe._Found())


@pytest.mark.parametrize("fault", ["mask_shifted", "mask_ignored", "last_key_dropped"])
@pytest.mark.parametrize("head", [0, 2, 5, 11])
def test_a_draft_more_or_less_shows_in_one_head_alone(fault, head, fake, probe, monkeypatch):
    import flashinfer._xqa_calls as kernels

    monkeypatch.setattr(kernels, "HEAD", head)
    monkeypatch.setattr(fake, "ACTIVE", fault)
    batch = probe._Batch(((4, 1000),), -1, probe._generator(11), fp8=False)
    with pytest.raises(AssertionError, match="elements are wrong"):
        probe._check_eager(batch, "spec", probe._Found())


def test_modules_are_those_of_the_calls(fake, probe):
    import flashinfer._xqa_calls as kernels

    for variant in (*EAGER, *GRAPHS):
        probe.build(variant)
    bf16, fp8 = torch.bfloat16, torch.float8_e4m3fn
    shape, few, drafts = (16, 128, 8), (1, False), (4, False)
    assert [
        (bf16, *shape, False, *few),
        (bf16, *shape, True, *few),
        (fp8, *shape, False, *few),
        (bf16, *shape, False, *drafts),
        (bf16, *shape, False, 4, True),
        (fp8, *shape, False, *few),
        (bf16, *shape, False, *drafts),
    ] == kernels.BUILT
