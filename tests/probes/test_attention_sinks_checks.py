"""The checks of attention_sinks, on the CPU against a stand-in: right kernels pass, each fault is caught."""

import sys
import types
from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBE = Path(__file__).parents[2] / "probes" / "attention_sinks.py"
SMALLER = {
    "PREFILL": ((1, 1), (15, 15), (0, 20), (17, 130), (3, 200)),
    "SPLIT": ((3, 1500),),
    "SPLIT_DECODE": ((1, 1500),),
    "GRAPH_STEPS": ((1, 16, 17, 40), (20, 1, 64, 15), (3, 2, 1, 70), (69, 31, 5, 16)),
    "WORKSPACE": 9 * 2**20,
}
SINK_FAULTS = (
    "sink_dropped",
    "sink_scaled",
    "sink_times_log2e",
    "sink_over_log2e",
    "sinks_rotated",
    "sinks_reversed",
    "first_sink_for_all",
    "sink_of_kv_head",
    "sink_in_each_part",
)
FAULTS = (
    *SINK_FAULTS,
    "scale_ignored",
    "page_table_ignored",
    "page_ends_read",
    "last_token_lost",
    "kv_heads_interleaved",
    "nan_element",
    "not_written",
    "written_behind",
    "out_ignored",
)
WRAPPER_FAULTS = (*FAULTS, "causal_ignored", "lse_natural", "lse_without_sink")
WINDOW_FAULTS = ("window_ignored", "window_too_short", "window_too_long", "sink_dropped", "sink_in_each_part")
CASES = {
    "fa2_d64": WRAPPER_FAULTS,
    "fa2_d64_window": WINDOW_FAULTS,
    "fa2_d128": SINK_FAULTS,
    "fa3_d64": ("sink_dropped",),
    "xqa_d64": FAULTS,
    "xqa_d64_window": WINDOW_FAULTS,
    "xqa_d128": SINK_FAULTS,
    "graph_xqa_d64": (
        "graph_keeps_table",
        "graph_keeps_lengths",
        "graph_does_nothing",
        "sink_dropped",
        "written_behind",
    ),
    "graph_fa2_d64": ("graph_keeps_plan", "graph_does_nothing", "sink_dropped", "sinks_rotated", "not_written"),
}


@pytest.fixture
def probe(faults, monkeypatch):
    return loading.load("attention_sinks", **SMALLER)


@pytest.mark.parametrize("variant", ["fa2_d64", "fa2_d64_window", "fa2_d128", "fa3_d64", "fa3_d64_window", "fa3_d128"])
def test_a_right_wrapper_passes(variant, probe):
    measured = probe.run(variant)
    assert measured["cases"] == 2 * 2 * 2 * 3  # layouts, page sizes, heads, batches
    assert measured["largest_error_of_bound"] < 0.75
    assert not measured["module_key_names_head_size"]
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values())


@pytest.mark.parametrize("variant", ["xqa_d64", "xqa_d64_window", "xqa_d128"])
def test_a_right_decode_passes(variant, probe):
    measured = probe.run(variant)
    assert measured["cases"] == 2 * 2 * len(probe.XQA[variant])
    assert measured["soft_cap"] == "not offered"


@pytest.mark.parametrize("variant", ["graph_xqa_d64", "graph_fa2_d64", "graph_fa3_d64"])
def test_a_right_replay_passes(variant, probe):
    measured = probe.run(variant)
    assert (measured["graphs"], measured["cases"]) == (2, 6)
    assert 0.1 < measured["largest_error_of_bound"] < 0.75


@pytest.mark.parametrize("fault", ["query", "sinks"])
@pytest.mark.parametrize("variant", ["graph_xqa_d64", "graph_fa2_d64"])
def test_a_graph_that_keeps_what_it_was_captured_with_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", f"graph_keeps_{fault}")
    with pytest.raises(AssertionError, match=r"replay 1 of a CUDA graph .* elements are wrong"):
        probe.run(variant)


@pytest.mark.parametrize(
    ("variant", "fault"), [(variant, fault) for variant, faults in CASES.items() for fault in faults]
)
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError) as caught:
        probe.run(variant)
    assert caught.traceback[-1].path == PROBE


def test_hnd_given_the_nhd_layout_is_caught(probe, faults, monkeypatch):
    monkeypatch.setattr(probe, "HEADS", {64: ((16, 16),)})  # as many KV heads as tokens in a page: the shapes fit
    monkeypatch.setattr(probe, "PAGE_SIZES", (16,))
    monkeypatch.setattr(faults, "ACTIVE", "layout_ignored")
    with pytest.raises(AssertionError, match=r"HND.* elements are wrong"):
        probe.run("fa2_d64")


@pytest.mark.parametrize("variant", ["fa2_softcap_orders_d64", "fa3_softcap_orders_d64"])
def test_an_applied_soft_cap_passes_in_every_order(variant, probe):
    measured = probe.run(variant)
    assert measured["soft_cap"] == "applied"
    assert measured["order"] == "off, applied, off, applied, off"


def test_a_refused_soft_cap_is_said_and_no_failure(probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "soft_cap_refused")
    assert probe.run("fa2_softcap_orders_d64")["soft_cap"] == "refused: NotImplementedError: sinks with a soft cap"


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("soft_cap_ignored", "the soft cap is ignored: the numbers are those without it"),
        ("soft_cap_sticks", "the soft cap is ignored"),  # the module of the first plan(), which has none
        ("soft_cap_halved", "elements are wrong"),
        ("sink_dropped", "elements are wrong"),
    ],
)
def test_a_wrong_soft_cap_is_caught(fault, text, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=text):
        probe.run("fa2_softcap_orders_d64")


def test_a_module_with_a_soft_cap_that_is_used_for_a_call_without_one_is_caught(probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "soft_cap_sticks")
    monkeypatch.setattr(probe, "ORDERS", ((True, False),))
    with pytest.raises(AssertionError, match=r"after \(applied\).*with the soft cap of an earlier plan"):
        probe.run("fa2_softcap_orders_d64")


@pytest.mark.parametrize(
    ("variant", "key"),
    [
        ("fa2_d64", "batch_prefill_attention_sink_bf16_swa_False_fa2"),
        ("fa2_softcap_orders_d64", "batch_prefill_attention_sink_bf16_swa_False_fa2"),
        ("fa3_d64_window", "batch_prefill_attention_sink_bf16_swa_True_fa3"),
        ("fa3_d128", "batch_prefill_attention_sink_bf16_swa_False_fa3_head_dim_128"),
    ],
)
def test_the_module_that_is_built_is_the_one_that_runs(variant, key, probe):
    import flashinfer.attention

    probe.build(variant)
    assert list(flashinfer.attention.BUILT) == [key]
    probe.run(variant)
    assert set(flashinfer.attention.BUILT) == {key}


@pytest.mark.parametrize("names", [("page_size", "head_dim"), ("head_dim", "q_seq_len", "head_group_ratio")])
def test_xqa_modules_are_built_with_the_parameters_that_there_are(names, probe, monkeypatch):
    built = []
    namespace = {"built": built}
    exec(f"def get_xqa_module({', '.join(names)}, use_ragged_q=False): built.append(({', '.join(names)}))", namespace)
    module = types.ModuleType("flashinfer.xqa")
    module.get_xqa_module = namespace["get_xqa_module"]
    monkeypatch.setitem(sys.modules, "flashinfer.xqa", module)
    probe.build("xqa_d64")
    known = {"head_dim": 64, "q_seq_len": 1}
    expected = [{**known, "page_size": page, "head_group_ratio": queries // keys} for page, queries, keys in PAGES]
    assert built == [tuple(one[name] for name in names) for one in expected]


PAGES = ((16, 64, 8), (32, 64, 8), (16, 8, 8))
