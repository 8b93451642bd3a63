"""The checks of the MoE probes, on the CPU against a stand-in: right kernels pass, each fault is caught."""

import copy
import functools
import re
from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBES = Path(__file__).parents[2] / "probes"
SMALLER = {  # the same checks on sizes for a CPU: tails, more than one block of K, more than a tile of tokens
    "moe_bf16": {"HIDDEN": 208, "INTERMEDIATE": 144},
    "moe_fp8_per_tensor": {"HIDDEN": 208, "INTERMEDIATE": 144},
    "moe_fp8_block": {"HIDDEN": 384, "INTERMEDIATE": 256},
    "moe_mxfp4_bf16": {"HIDDEN": 384, "INTERMEDIATE": 256},
}
TOKENS = (1, 37, 150)
MANY = ((67, 2, 64), (150, 4, 128))  # tokens, top k, largest bucket
TUNED = ("moe_bf16", "moe_fp8_per_tensor", "moe_mxfp4_bf16")
FIRST = {name: "eager" if name == "moe_fp8_block" else "tactic_0" for name in SMALLER}
FAULTS = (
    "expert_dropped",
    "empty_expert_not_counted",
    "router_ignored",
    "router_of_next_token",
    "router_weights_normalised",
    "last_choice_lost",
    "first_choice_for_all",
    "k_tail_dropped",
    "nan_element",
    "not_written",
    "last_token_dropped",
)
BLOCK_SCALE_FAULTS = (
    "fc1_scales_of_gate_for_up",
    "fc1_scales_of_up_for_gate",
    *(
        f"fc{gemm}_scales_{fault}"
        for gemm in (1, 2)
        for fault in ("of_next_expert", "of_next_block", "of_next_rows", "transposed")
    ),
)
SCALE_FAULTS = {
    "moe_bf16": (),  # it has no scales
    "moe_fp8_per_tensor": ("fc1_scales_of_next_expert", "fc2_scales_of_next_expert", "scales_of_other_gemm"),
    "moe_fp8_block": BLOCK_SCALE_FAULTS,
    "moe_mxfp4_bf16": BLOCK_SCALE_FAULTS,
}
VARIANTS = {
    "moe_bf16": ("tactic_0", "untuned", "graph", "many_tokens", "all_tactics"),
    "moe_fp8_per_tensor": ("tactic_0", "untuned", "graph", "many_tokens", "all_tactics"),
    "moe_fp8_block": ("eager", "graph", "many_tokens"),
    "moe_mxfp4_bf16": (
        "tactic_0",
        "untuned",
        "graph",
        "tactic_0_gpt_oss",
        "untuned_gpt_oss",
        "graph_gpt_oss",
        "many_tokens_gpt_oss",
        "all_tactics",
    ),
}
GPT_OSS_FAULTS = (
    "bias1_ignored",
    "bias2_ignored",
    "bias2_only_once",
    "alpha_ignored",
    "beta_ignored",
    "limit_ignored",
    "limit_only_of_gate",
)
GRAPH_FAULTS = ("graph_keeps_input", "graph_keeps_routing", "graph_keeps_router_weights")


@pytest.fixture
def load_as_it_is(faults):
    """load_as_it_is("moe_bf16"): the probe, with the shapes that a GPU gets."""

    def load_as_it_is(name):
        """All but the thousands of tokens, of which the reference takes seconds on a CPU."""
        module = loading.load(name)
        module.MANY = tuple(case for case in module.MANY if case[0] <= 1000)
        return module

    return load_as_it_is


@functools.cache
def experts_of(name, **kind):
    """The weights of a probe, whose quantisation is most of what a run costs on a CPU."""
    return loading.load(name)._Experts(**kind)


@pytest.fixture
def load(load_as_it_is, monkeypatch):
    """load("moe_bf16"): the probe, on smaller shapes."""

    def load(name):
        module = load_as_it_is(name)
        for constant, value in {**SMALLER[name], "TOKENS": TOKENS, "MANY": MANY}.items():
            monkeypatch.setattr(module, constant, value)
        return module

    return load


@pytest.fixture
def spoil(faults, monkeypatch):
    """spoil("k_tail_dropped"): the kernels have this fault."""
    return lambda fault: monkeypatch.setattr(faults, "ACTIVE", fault)


@pytest.fixture
def core(faults):
    from flashinfer.fused_moe import core

    return core


@pytest.fixture
def folded(faults, monkeypatch):
    """The stand-in as a newer FlashInfer: with helpers for the layout, and reading what they give."""
    import flashinfer.fused_moe
    from flashinfer.fused_moe import experts, layouts

    for name in ("interleave_moe_weights_for_sm90_mixed_gemm", "interleave_moe_scales_for_sm90_mixed_gemm"):
        monkeypatch.setattr(flashinfer.fused_moe, name, getattr(layouts, name), raising=False)
    monkeypatch.setattr(experts, "SCALES", "folded")
    return experts


EAGER = [(name, FIRST[name]) for name in SMALLER] + [("moe_mxfp4_bf16", "tactic_0_gpt_oss")]
GRAPHS = [(name, "graph") for name in SMALLER] + [("moe_mxfp4_bf16", "graph_gpt_oss")]


@pytest.mark.parametrize(("name", "variant"), EAGER)
def test_a_right_kernel_passes(name, variant, load):
    measured = load(name).run(variant)
    assert measured["cases"] == 2 * len(TOKENS)
    assert measured["elements"] == 2 * sum(TOKENS) * SMALLER[name]["HIDDEN"]
    assert measured["largest_error_of_bound"] < 0.75
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values())


@pytest.mark.parametrize(("name", "variant"), GRAPHS)
def test_a_right_replay_passes(name, variant, load):
    measured = load(name).run(variant)
    assert (measured["graphs"], measured["cases"]) == (2, 6)


@pytest.mark.parametrize(("name", "variant"), [(name, variant) for name in VARIANTS for variant in VARIANTS[name]])
def test_a_right_kernel_passes_on_the_shapes_of_a_gpu(name, variant, load_as_it_is):
    assert load_as_it_is(name).run(variant)["largest_error_of_bound"] < 0.6


@pytest.mark.parametrize(
    ("name", "fault"),
    [*((name, fault) for name in SMALLER for fault in FAULTS), ("moe_fp8_per_tensor", "activation_not_scaled")],
)
def test_a_fault_is_caught(name, fault, load, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=r"elements are wrong, in \d+ of \d+ tokens") as caught:
        load(name).run(FIRST[name])
    assert caught.traceback[-1].path == PROBES / f"{name}.py"


@pytest.mark.parametrize(
    ("name", "variant", "fault"),
    [
        (name, variant, fault)
        for name, variants in VARIANTS.items()
        for variant in variants
        for fault in SCALE_FAULTS[name]
    ],
)
def test_scales_of_another_place_are_caught(name, variant, fault, load_as_it_is, spoil):
    probe = load_as_it_is(name)
    probe._Experts = lambda **kind: copy.deepcopy(experts_of(name, **kind))
    spoil(fault)
    with pytest.raises(AssertionError, match="elements are wrong") as caught:
        probe.run(variant)
    wrong, elements = re.search(r"(\d+) of (\d+) elements are wrong", str(caught.value)).groups()
    assert int(wrong) > int(elements) / 4  # scales that differ by chance only are noticed in a few at most


@pytest.mark.parametrize("name", SMALLER)
def test_there_are_more_tokens_than_the_largest_bucket(name, load, spoil):
    kind = "many_tokens_gpt_oss" if name == "moe_mxfp4_bf16" else "many_tokens"
    probe = load(name)
    assert all(tokens > largest for tokens, _, largest in probe.MANY)
    assert probe.run(kind)["cases"] == len(MANY)
    spoil("tokens_past_the_largest_bucket_dropped")
    assert probe.run(FIRST[name])
    with pytest.raises(
        AssertionError, match=r"many_tokens.*, 67 tokens, top 2: .* elements are wrong, in 3 of 67 tokens"
    ):
        probe.run(kind)


@pytest.mark.parametrize("name", SMALLER)
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("written_behind", "something was written outside of the output"),
        ("input_changed", "the input was changed"),
        ("router_weights_changed", "the router weights were changed"),
    ],
)
def test_what_is_written_elsewhere_is_caught(name, fault, said, load, spoil):
    spoil(fault)
    with pytest.raises(AssertionError, match=said):
        load(name).run(FIRST[name])


@pytest.mark.parametrize("fault", GPT_OSS_FAULTS)
def test_a_fault_of_gpt_oss_is_caught(fault, load, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match="elements are wrong"):
        load("moe_mxfp4_bf16").run("tactic_0_gpt_oss")


@pytest.mark.parametrize(("name", "variant"), [*EAGER, *GRAPHS])
def test_gate_and_up_the_wrong_way_round_are_named(name, variant, load, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "gate_up_swapped")
    with pytest.raises(AssertionError, match="gate and up are swapped"):
        load(name).run(variant)


@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name in SMALLER for fault in GRAPH_FAULTS])
def test_a_graph_that_keeps_what_it_was_captured_with_is_caught(name, fault, load, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    assert load(name).run(FIRST[name])
    with pytest.raises(AssertionError, match=r"replay \d of a CUDA graph with new inputs.* elements are wrong"):
        load(name).run("graph")


@pytest.mark.parametrize("are_absolute", [False, True], ids=["from_the_first_of_gemm2", "absolute"])
@pytest.mark.parametrize("name", TUNED)
def test_the_tactics_that_are_named_are_the_ones_that_run(name, are_absolute, load, core, monkeypatch):
    monkeypatch.setattr(core.Native, "ids_are_absolute", are_absolute)
    measured = load(name).run("tactic_0")
    assert set(core.RAN) == {(0, 0)}
    assert measured["tactics"] == ("0 and 2" if are_absolute else "0 and 0")
    assert (measured["gemm1_tactics"], measured["gemm2_tactics"]) == (2, 4)
    core.RAN.clear()
    measured = load(name).run("all_tactics")
    assert set(core.RAN) == {(0, 0), (1, 0), (0, 1), (0, 2), (0, 3)}
    assert (measured["refused"], measured["cases"]) == (0, 5 * 2 * len(TOKENS))


@pytest.mark.parametrize("name", TUNED)
def test_untuned_leaves_the_choice_alone_and_the_tuner_is_put_back(name, load, core):
    from flashinfer.autotuner import AutoTuner

    choose_one = AutoTuner.choose_one
    assert load(name).run("untuned")["tactics"] == "-1 and -1"
    load(name).run("tactic_0")
    assert AutoTuner.choose_one is choose_one


@pytest.mark.parametrize(
    ("fault", "where"), [("gemm1_tactic_wrong", "tactics 1 and 0"), ("gemm2_tactic_wrong", "tactics 0 and 3")]
)
def test_one_wrong_tactic_is_caught_and_named(fault, where, load, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    assert load("moe_bf16").run("tactic_0")
    with pytest.raises(AssertionError, match=f"^{where}, .* elements are wrong"):
        load("moe_bf16").run("all_tactics")


@pytest.mark.parametrize("name", TUNED)
def test_a_tactic_that_refuses_is_counted(name, load, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "tactic_refused")
    measured = load(name).run("all_tactics")
    assert measured["refused"] == 2
    assert measured["first_refused"] == "tactics 1 and 0: [TensorRT-LLM][ERROR] it does not fit"


@pytest.mark.parametrize("variant", ["tactic_0", "all_tactics", "graph"])
def test_a_call_that_asks_for_no_tactics_is_not_taken_for_a_right_one(variant, load, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "tactics_not_asked_for")
    with pytest.raises(RuntimeError, match="does not fit this version"):
        load("moe_bf16").run(variant)


def test_the_layout_is_the_installed_versions(load, folded):
    measured = load("moe_mxfp4_bf16").run("tactic_0")
    assert measured["layout"] == "FlashInfer's, scales 7x8x3x16x16"


def test_a_layout_for_another_version_is_caught(load, folded, monkeypatch):
    monkeypatch.setattr(folded, "SCALES", "interleaved")
    with pytest.raises(AssertionError, match="elements are wrong"):
        load("moe_mxfp4_bf16").run("tactic_0")


@pytest.mark.parametrize("layout", ["folded", "raw"])
def test_the_old_layout_is_caught_by_a_version_that_reads_another(layout, load, monkeypatch):
    from flashinfer.fused_moe import experts

    monkeypatch.setattr(experts, "SCALES", layout)
    with pytest.raises(AssertionError, match="elements are wrong"):
        load("moe_mxfp4_bf16").run("tactic_0")


@pytest.mark.parametrize("name", SMALLER)
def test_the_module_that_is_built_is_the_one_that_runs(name, load, core):
    probe = load(name)
    probe.build(FIRST[name])
    probe.run(FIRST[name])
    assert core.BUILT == ["90"]


def test_a_closed_gate_ends_the_build_before_it_begins(load, core, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "gate_closed")
    with pytest.raises(NotImplementedError, match="not for this CUDA"):
        load("moe_fp8_block").build("eager")
    assert core.BUILT == []


def test_a_call_that_passes_the_gate_without_a_module_is_told_apart(load, core, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", "module_not_asked_for")
    with pytest.raises(RuntimeError, match="does not fit this version"):
        load("moe_fp8_block").build("eager")
    assert core.BUILT == []
