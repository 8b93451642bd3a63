"""The probes' own checks, on the CPU against a stand-in for FlashInfer: right kernels pass, each fault is caught."""

from pathlib import Path

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

FAKE = Path(__file__).parent / "fake_flashinfer"

SMALLER = {  # the same checks on sizes for a CPU; the vocabularies stay odd and even
    "norm_rmsnorm": {"HIDDEN_SIZES": (64, 111, 500, 4096), "BATCH_SIZES": (1, 19), "SPREAD_HIDDEN_SIZES": (500,)},
    "norm_fused_add_rmsnorm": {"HIDDEN_SIZES": (64, 111, 500, 4096), "BATCH_SIZES": (1, 19)},
    "activation_silu_and_mul": {"SIZES": (8, 888, 8200), "BATCH_SIZES": (1, 19)},
    "kv_append_paged": {"HEADS": ((1, 64), (5, 128)), "GRAPH_HEADS": ((2, 64),)},
    "sampling_top_k_top_p": {"VOCABULARIES": (509, 1024), "CALLS": 8, "WIDE_COPIES": 256, "SMALL_COPIES": 512},
}
VARIANTS = {
    "norm_rmsnorm": ("bf16", "fp16", "qk_bf16", "graph_bf16", "cuda_bf16", "cuda_fp16"),
    "norm_fused_add_rmsnorm": ("bf16", "fp16", "graph_bf16", "cuda_bf16", "cuda_fp16"),
    "activation_silu_and_mul": ("bf16", "fp16", "graph_bf16", "bf16_d3420"),
    "kv_append_paged": ("nhd_page16", "hnd_page16", "nhd_page1", "hnd_page1", "graph_nhd_page16"),
    "sampling_top_k_top_p": ("top_k_top_p", "top_p", "top_k", "joint", "successive_calls"),
}
OUTPUT_FAULTS = ("nan_element", "written_behind", "not_written", "last_row_dropped", "input_changed", "rounded_twice")
GRAPH_FAULTS = ("graph_does_nothing", "graph_keeps_input", "nan_element", "last_row_dropped")
OUT_FAULTS = ("out_ignored", "returns_copy")
DRAW_FAULTS = (
    "end_of_vocabulary_never",
    "token_behind_vocabulary",
    "negative_token",
    "rare_stray_token",
    "last_row_lost",
    "generator_ignored",
    "generator_not_advanced",
    "rows_share_a_number",
)
K_FAULTS = ("top_k_ignored", "first_k_for_all", "one_token_too_many")
P_FAULTS = ("top_p_ignored", "first_p_for_all", "top_p_too_large")
RMSNORM_FAULTS = ("eps_ignored", "weight_ignored", "weight_changed", "mean_over_too_many", "tail_dropped")
FAULTS = {
    ("norm_rmsnorm", "bf16"): (*OUTPUT_FAULTS, *OUT_FAULTS, *RMSNORM_FAULTS, "strides_ignored"),
    ("norm_rmsnorm", "fp16"): (*OUTPUT_FAULTS, *OUT_FAULTS, *RMSNORM_FAULTS, "strides_ignored"),
    ("norm_rmsnorm", "qk_bf16"): (*OUTPUT_FAULTS, *OUT_FAULTS, "eps_ignored", "weight_ignored", "strides_ignored"),
    ("norm_rmsnorm", "graph_bf16"): (*GRAPH_FAULTS, "graph_keeps_weight", "written_behind"),
    ("norm_rmsnorm", "cuda_bf16"): (*OUTPUT_FAULTS, *RMSNORM_FAULTS, "strides_ignored"),
    ("norm_fused_add_rmsnorm", "bf16"): (
        "eps_ignored",
        "weight_ignored",
        "weight_changed",
        "residual_not_added",
        "residual_not_written",
        "residual_nan_element",
        "input_not_written",
        "returns_tensor",
        "last_row_dropped",
        "nan_element",
        "written_behind",
    ),
    ("norm_fused_add_rmsnorm", "graph_bf16"): (
        *GRAPH_FAULTS,
        "graph_keeps_residual",
        "graph_keeps_weight",
        "residual_not_written",
        "written_behind",
    ),
    ("norm_fused_add_rmsnorm", "cuda_fp16"): ("eps_ignored", "residual_not_written", "last_row_dropped", "nan_element"),
    ("activation_silu_and_mul", "bf16"): (
        *OUTPUT_FAULTS,
        *OUT_FAULTS,
        "gate_and_up_swapped",
        "sigmoid",
        "gelu",
        "up_ignored",
        "tail_dropped",
    ),
    ("activation_silu_and_mul", "fp16"): ("gate_and_up_swapped", "rounded_twice", "nan_element"),
    ("activation_silu_and_mul", "graph_bf16"): (*GRAPH_FAULTS, "gate_and_up_swapped", "written_behind"),
    ("activation_silu_and_mul", "bf16_d3420"): ("tail_dropped", "not_written"),
    ("kv_append_paged", "nhd_page16"): (
        "key_and_value_swapped",
        "value_lost",
        "last_token_lost",
        "wrong_page",
        "page_table_ignored",
        "position_off_by_one",
        "first_request_for_all",
        "neighbour_overwritten",
        "heads_reversed",
        "rounded",
        "nan_element",
        "returns_cache",
        "strides_ignored",
    ),
    ("kv_append_paged", "hnd_page16"): ("strides_ignored", "wrong_page", "value_lost", "last_token_lost"),
    ("kv_append_paged", "nhd_page1"): ("wrong_page", "key_and_value_swapped", "last_token_lost"),
    ("kv_append_paged", "hnd_page1"): ("wrong_page", "key_and_value_swapped", "page_table_ignored"),
    ("kv_append_paged", "graph_nhd_page16"): (
        "graph_does_nothing",
        "graph_keeps_key",
        "graph_keeps_value",
        "graph_keeps_positions",
        "graph_keeps_pages",
        "graph_keeps_lengths",
        "neighbour_overwritten",
    ),
    ("sampling_top_k_top_p", "top_k_top_p"): (*DRAW_FAULTS, *K_FAULTS, *P_FAULTS, "tie_lost", "joint_instead"),
    ("sampling_top_k_top_p", "joint"): (*DRAW_FAULTS, *K_FAULTS, *P_FAULTS),
    ("sampling_top_k_top_p", "top_p"): (*DRAW_FAULTS, *P_FAULTS),
    ("sampling_top_k_top_p", "top_k"): (*DRAW_FAULTS, *K_FAULTS),
    ("sampling_top_k_top_p", "successive_calls"): ("restarts_without_generator",),
}


def load(name, monkeypatch):
    return loading.load(name, **SMALLER[name])


@pytest.mark.parametrize(("name", "variant"), [(name, variant) for name in VARIANTS for variant in VARIANTS[name]])
def test_right_kernels_pass_and_are_measured(name, variant, fake, monkeypatch):
    module = load(name, monkeypatch)
    assert tuple(module.PROBE["variants"]) == VARIANTS[name]
    module.build(variant)
    measured = module.run(variant)
    assert measured
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values()), measured


@pytest.mark.parametrize(
    ("name", "variant", "fault"), [(*key, fault) for key, faults in FAULTS.items() for fault in faults]
)
def test_a_fault_is_caught(name, variant, fault, fake, monkeypatch):
    module = load(name, monkeypatch)
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError) as caught:
        module.run(variant)
    assert str(caught.value)


def test_hnd_given_the_nhd_layout_is_caught(fake, monkeypatch):
    module = load("kv_append_paged", monkeypatch)
    monkeypatch.setattr(module, "HEADS", ((16, 64),))  # as many heads as tokens in a page: the shapes still fit
    monkeypatch.setattr(fake, "ACTIVE", "layout_ignored")
    with pytest.raises(AssertionError, match="elements are wrong"):
        module.run("hnd_page16")


@pytest.mark.parametrize("variant", ["top_k_top_p", "top_p", "top_k", "joint"])
def test_the_draws_suffice_to_see_a_skew_of_5_percent(variant, fake, monkeypatch):
    module = load("sampling_top_k_top_p", monkeypatch)
    monkeypatch.setattr(module, "SMALL_COPIES", 4096)
    monkeypatch.setattr(module, "CALLS", 16)
    module.run(variant)
    monkeypatch.setattr(fake, "ACTIVE", "skewed_by_5_percent")
    with pytest.raises(AssertionError, match="frequencies are off"):
        module.run(variant)


@pytest.mark.parametrize("name", ["norm_rmsnorm", "norm_fused_add_rmsnorm"])
def test_nothing_is_built_before_a_cute_dsl_kernel_is_called(name, fake, monkeypatch):
    import flashinfer.norm

    module = load(name, monkeypatch)
    assert module.build("bf16")
    monkeypatch.setattr(flashinfer.norm, "_USE_CUDA_NORM", False, raising=False)
    assert module.build("bf16") is False
    assert module.build("cuda_bf16")


def test_normalising_the_rounded_sum_is_allowed(fake, monkeypatch):
    module = load("norm_fused_add_rmsnorm", monkeypatch)
    monkeypatch.setattr(fake, "ACTIVE", "sum_rounded_first")
    module.run("bf16")


def test_an_import_that_finds_another_copy_raises(fake, monkeypatch):
    module = loading.load("import_flashinfer")
    monkeypatch.setattr(module, "_installed_version", lambda name: "9.9.9")
    with pytest.raises(RuntimeError, match="another copy of flashinfer"):
        module.run()


def test_an_import_says_what_was_imported(fake, monkeypatch):
    module = loading.load("import_flashinfer")
    monkeypatch.setattr(module, "_installed_version", lambda name: "0.0+cu130")
    measured = module.run()
    assert measured["version"] == "0.0"
    assert measured["path"] == str(FAKE / "flashinfer" / "__init__.py")


def test_torch_is_imported_without_a_gpu():
    assert loading.load("import_torch").run()["version"] == torch.__version__
