"""The checks of attention.fp8_kv, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBE = Path(__file__).parents[2] / "probes" / "attention_fp8_kv.py"
SMALLER = {
    "PROMPTS": (((3, 77), (1, 18), (2, 129), (0, 21), (33, 150), (1, 400)),),
    "STEPS": ((1, 16, 17, 128, 129), (400, 3, 144, 16, 1), (130, 16, 1, 300, 31)),
    "HEADS": ((4, 2), (2, 2)),
    "WORKSPACE_BYTES": 16,
}
FAULTS = (
    "k_scale_ignored",
    "v_scale_ignored",
    "scales_swapped",
    "v_scale_in_a_copy",
    "values_saturate",
    "scale_ignored",
    "wrong_last_page",
    "last_key_lost",
    "key_and_value_swapped",
    "kv_heads_interleaved",
    "heads_swapped",
    "coarse",
    "last_row_off_by_4_percent",
    "nan_element",
    "last_row_unwritten",
    "written_behind",
    "out_ignored",
    "query_changed",
    "lse_natural",
)
OF_BF16 = ("coarse", "last_row_off_by_4_percent", "query_changed")  # below what e4m3 itself errs by, or not of e4m3
GRAPH_FAULTS = (
    "graph_does_nothing",
    "graph_keeps_query",
    "graph_keeps_page_table",
    "graph_keeps_lengths",
    "k_scale_ignored",
    "v_scale_ignored",
)
CASES = [
    *(("auto_bf16q_d128", fault) for fault in FAULTS),
    *(("tc_bf16q_d128", fault) for fault in FAULTS if fault != "lse_natural"),
    *(("graph_tc_bf16q_d128", fault) for fault in GRAPH_FAULTS),
    *(("fa3_fp8q_d128", fault) for fault in (*FAULTS, "q_scale_ignored") if fault not in OF_BF16),
    *(("fa3_fp8q_window_d128", fault) for fault in ("window_ignored", "window_one_longer", "window_one_shorter")),
]
VARIANTS = ["auto_bf16q_d128", "tc_bf16q_d128", "graph_tc_bf16q_d128", "fa3_fp8q_d128", "fa3_fp8q_window_d128"]
SAID = r"are wrong|before or behind|another (tensor|LSE) than|changed its"


@pytest.fixture
def probe(paged):
    paged("prefill", "BatchPrefillWithPagedKVCacheWrapper", "get_batch_prefill_module")
    paged("decode", "BatchDecodeWithPagedKVCacheWrapper", "fast_decode_plan")
    paged("utils", "determine_attention_backend", is_there=False)
    return loading.load("attention_fp8_kv", **SMALLER)


@pytest.mark.parametrize("variant", VARIANTS)
def test_right_kernels_pass_and_use_an_eighth_of_the_tolerance(variant, probe):
    import flashinfer._paged

    probe.build(variant)
    measured = probe.run(variant)
    assert 0.125 < measured["share_of_tolerance"] < 1
    assert len(set(flashinfer._paged.BUILDS)) == 1  # what is built is what plan() asks for
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values())


def test_every_variant_is_tested_here(probe):
    assert list(probe.PROBE["variants"]) == VARIANTS


@pytest.mark.parametrize(("variant", "fault"), CASES)
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=SAID) as caught:
        probe.run(variant)
    assert caught.traceback[-1].path == PROBE


def test_a_module_that_auto_takes_and_that_does_not_compile_raises(probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "mixed_types_refused")
    with pytest.raises(RuntimeError, match="Ninja build failed"):
        probe.build("auto_bf16q_d128")
    probe.build("tc_bf16q_d128")  # decoding takes fa2
