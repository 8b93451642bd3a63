"""The checks of attention_decode_xqa, on the CPU against a stand-in: right kernels pass, each fault is caught."""

import sys
import types
from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBE = Path(__file__).parents[2] / "probes" / "attention_decode_xqa.py"
EAGER = ("xqa_d64", "xqa_d128", "xqa_d256")
GRAPH = "graph_xqa_d128"
FAULTS = (
    "last_key_dropped",
    "wrong_page",
    "table_of_request_before",
    "table_ignored",
    "hnd_as_nhd",
    "heads_interleaved",
    "scale_ignored",
    "parts_weighted_alike",
    "part_lost",
    "last_request_unwritten",
    "written_behind_last",
    "nan_element",
    "rounded_coarsely",
    "key_and_value_swapped",
    "rest_of_page_read",
    "strides_ignored",
)
WINDOW_FAULTS = ("window_ignored", "window_too_short", "window_too_long")
GRAPH_FAULTS = ("graph_keeps_query", "graph_keeps_lengths", "graph_keeps_table", "graph_does_nothing")
WRONG = r"elements are wrong|behind the last|not in out"


@pytest.fixture
def fake(faults, monkeypatch):
    """The stand-in, with XQA as the installed package has it."""
    import flashinfer._decode_xqa_plain as kernels
    import flashinfer.decode

    for name in ("trtllm_batch_decode_with_kv_cache", "xqa_batch_decode_with_kv_cache"):
        monkeypatch.setattr(flashinfer.decode, name, getattr(kernels, name), raising=False)
    monkeypatch.setitem(sys.modules, "flashinfer.xqa", kernels)
    return faults


@pytest.fixture
def probe(monkeypatch):
    return loading.load("attention_decode_xqa", WORKSPACE_BYTES=16)


def test_every_variant_is_tested_here(probe):
    assert tuple(probe.PROBE["variants"]) == tuple(probe.CASES) == (*EAGER, GRAPH)


@pytest.mark.parametrize("variant", [*EAGER, GRAPH])
def test_right_kernels_pass_and_are_measured(variant, fake, probe):
    probe.build(variant)
    measured = probe.run(variant)
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values()), measured
    assert 0.05 < measured["worst_of_tolerance"] < 1
    assert measured["empty_request"] == ("split: NaN" if variant == GRAPH else "split: NaN, whole: zeros")


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *(("xqa_d64", fault) for fault in (*FAULTS, "out_ignored")),
        *(("xqa_d256", fault) for fault in FAULTS),
        *((GRAPH, fault) for fault in (*FAULTS, *GRAPH_FAULTS)),
    ],
)
def test_a_fault_is_caught(variant, fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=WRONG) as caught:
        probe.run(variant)
    assert caught.traceback[-1].path == PROBE


@pytest.mark.parametrize("fault", WINDOW_FAULTS)
def test_a_wrong_window_is_caught(fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=r"window_left 127.*elements are wrong"):
        probe.run("xqa_d128")


@pytest.mark.parametrize("fault", ["graph_keeps_query", "graph_keeps_lengths", "graph_keeps_table"])
def test_what_a_graph_kept_shows_in_the_first_replay(fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match="replay 1 of a CUDA graph"):
        probe.run(GRAPH)


@pytest.mark.parametrize("fault", ["last_key_dropped", "parts_weighted_alike", "part_lost", *WINDOW_FAULTS])
def test_a_fault_is_seen_in_the_longest_request_alone(fault, fake, probe, monkeypatch):
    window_left = 127 if fault in WINDOW_FAULTS else -1
    monkeypatch.setattr(fake, "ACTIVE", fault)
    monkeypatch.setattr(probe, "SHORT", (1,))
    monkeypatch.setattr(probe, "LONG", (3000,))
    monkeypatch.setitem(probe.CASES, "xqa_d64", ((16, 8, 1, window_left),))
    with pytest.raises(AssertionError, match=r"in requests of \[3000\] tokens"):
        probe.run("xqa_d64")


@pytest.mark.parametrize("names", [6, 7, 8, 9])
def test_modules_are_built_with_the_parameters_that_there_are(names, fake, probe, monkeypatch):
    import flashinfer._decode_xqa_plain as kernels

    asked = list(kernels.get_xqa_module.__code__.co_varnames[:names])
    built = []
    namespace = {"built": built}
    defaults = [f"{name}=False" if name == "use_ragged_q" else name for name in asked]
    exec(f"def get_xqa_module({', '.join(defaults)}): built.append(({', '.join(asked)}))", namespace)
    module = types.ModuleType("flashinfer.xqa")
    module.get_xqa_module = namespace["get_xqa_module"]
    monkeypatch.setitem(sys.modules, "flashinfer.xqa", module)
    probe.build("xqa_d256")
    bf16 = torch.bfloat16
    assert set(built) == {(bf16, bf16, 16, 256, 8, False, bf16, 1, False)[:names]}
