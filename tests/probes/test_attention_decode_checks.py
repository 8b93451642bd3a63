"""The checks of the probe attention.decode, on the CPU against a stand-in: right kernels pass, each fault is caught."""

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

EAGER = ("cuda_d64", "cuda_d128", "cuda_d256", "tc_d64", "tc_d128", "tc_d256")
GRAPHS = ("graph_cuda_d128", "graph_tc_d128")
NOT_OFFERED = ("cuda_d80", "cuda_d192", "cuda_d45")
KERNEL_FAULTS = (
    "last_key_dropped",
    "wrong_page",
    "page_table_ignored",
    "hnd_as_nhd",
    "heads_interleaved",
    "scale_ignored",
    "parts_weighted_alike",
    "last_part_lost",
    "last_request_unwritten",
    "written_behind_last",
    "nan_element",
    "rounded_coarsely",
    "key_and_value_swapped",
    "rest_of_page_read",
    "query_strides_ignored",
)
EAGER_FAULTS = (*KERNEL_FAULTS, "lse_natural", "out_ignored", "strides_ignored")
GRAPH_FAULTS = (
    *KERNEL_FAULTS,
    "graph_keeps_query",
    "graph_keeps_lengths",
    "graph_keeps_last_page_len",
    "graph_keeps_page_table",
    "graph_keeps_plan",
    "graph_does_nothing",
    "fast_plan_does_nothing",
)


@pytest.fixture
def probe(monkeypatch):
    """A probe of its own for each test: it caches wrappers and what the compiler said."""
    return loading.load("attention_decode", WORKSPACE_BYTES=16)


def test_every_variant_is_tested_here(probe):
    assert tuple(probe.PROBE["variants"]) == (*EAGER, *GRAPHS, *NOT_OFFERED)


@pytest.mark.parametrize("variant", [*EAGER, *GRAPHS])
def test_right_kernels_pass_and_are_measured(variant, fake, probe):
    probe.build(variant)
    measured = probe.run(variant)
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values()), measured
    assert 0.05 < measured["worst_of_tolerance"] < 1
    assert measured["empty_request"] == "zeros"


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in ("cuda_d64", "tc_d64") for fault in EAGER_FAULTS),
        *(("graph_tc_d128", fault) for fault in GRAPH_FAULTS),
        *(("graph_cuda_d128", fault) for fault in GRAPH_FAULTS if fault not in KERNEL_FAULTS),
    ],
)
def test_a_fault_is_caught(variant, fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=r"elements are wrong|behind the last|log-sum-exps are wrong|not in out"):
        probe.run(variant)


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        ("graph_keeps_query", "replay 1 of a CUDA graph with new inputs"),
        ("graph_keeps_lengths", "after plan of"),
        ("graph_keeps_page_table", "after plan of"),
        ("graph_keeps_plan", "after plan of"),
        ("fast_plan_does_nothing", "after fast_decode_plan of"),
    ],
)
def test_what_a_graph_kept_shows_in_the_first_replay_after_the_change(fault, where, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=where):
        probe.run("graph_tc_d128")


@pytest.mark.parametrize("lengths", ["SHORT", "LONG"])
def test_a_lost_last_key_is_seen_in_the_longest_request_alone(lengths, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", "last_key_dropped")
    monkeypatch.setattr(probe, lengths, (max(getattr(probe, lengths)),))
    monkeypatch.setattr(probe, "SHORT" if lengths == "LONG" else "LONG", getattr(probe, lengths))
    with pytest.raises(AssertionError, match="elements are wrong"):
        probe.run("tc_d128")


def test_whatever_an_empty_request_gets_is_reported_and_not_judged(fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", "empty_is_nan")
    assert probe.run("tc_d64")["empty_request"] == "NaN"


@pytest.mark.parametrize("variant", NOT_OFFERED)
def test_a_head_size_that_is_refused_by_plan_passes(variant, fake, probe):
    probe.build(variant)
    assert probe.run(variant)["answer"] == f"refused: Unsupported head_dim: {variant[6:]}"


@pytest.mark.parametrize("variant", NOT_OFFERED)
def test_a_head_size_that_the_compiler_refuses_passes(variant, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", "compiler_refuses")
    probe.build(variant)
    assert probe.run(variant)["answer"] == "refused: decode.cuh(451): error: static assertion failed"


@pytest.mark.parametrize("variant", NOT_OFFERED)
def test_a_head_size_that_is_computed_right_passes(variant, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", "none")
    probe.build(variant)
    assert probe.run(variant)["answer"] == "right"


@pytest.mark.parametrize("fault", ["last_key_dropped", "scale_ignored", "nan_element"])
def test_a_head_size_that_is_computed_wrong_is_caught(fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    probe.build("cuda_d80")
    with pytest.raises(AssertionError, match="head size 80"):
        probe.run("cuda_d80")


@pytest.mark.parametrize("variant", ["cuda_d80", "cuda_d64", "tc_d64"])
@pytest.mark.parametrize("fault", ["compiler_lacks_header", "linker_fails", "no_compiler"])
def test_a_build_that_fails_for_another_reason_raises(variant, fault, fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(RuntimeError, match="Ninja build failed"):
        probe.build(variant)


def test_a_compiler_that_refuses_an_offered_head_size_raises(fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", "compiler_refuses")
    with pytest.raises(RuntimeError, match="static assertion"):
        probe.build("cuda_d64")


def test_an_illegal_access_is_no_refusal(fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", "illegal_access")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        probe.run("cuda_d80")


def test_a_call_that_does_not_fit_is_no_refusal(fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", "wrong_signature")
    with pytest.raises(TypeError, match="unexpected keyword"):
        probe.run("cuda_d80")


def test_a_refusal_of_an_offered_head_size_raises(fake, probe, monkeypatch):
    monkeypatch.setattr(fake, "ACTIVE", "plan_refuses")
    with pytest.raises(RuntimeError, match="Unsupported head_dim: 64"):
        probe.run("cuda_d64")
