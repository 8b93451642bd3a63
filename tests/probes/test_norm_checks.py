"""What the checks of the gemma norms and of layernorm let through and what they catch, on the CPU."""

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

SMALLER = {
    "HIDDEN_SIZES": (64, 111, 500, 4096),
    "BATCH_SIZES": (1, 19),
    "SPREAD_HIDDEN_SIZES": (500,),
    "GRAPH_SHAPES": ((1, 768), (19, 512)),
}
VARIANTS = {
    "norm_gemma_rmsnorm": ("bf16", "fp16", "graph_bf16", "cuda_bf16", "cuda_fp16"),
    "norm_gemma_fused_add_rmsnorm": (
        "fused_add_bf16",
        "fused_add_fp16",
        "graph_fused_add_bf16",
        "cuda_fused_add_bf16",
        "cuda_fused_add_fp16",
    ),
    "norm_layernorm": ("bf16", "graph_bf16", "spread_bf16", "cuda_bf16"),
}
OUTPUT_FAULTS = (
    "nan_element",
    "inf_element",
    "zero_element",
    "neighbour_element",
    "one_element_off",
    "last_row_dropped",
    "tail_dropped",
    "eps_ignored",
)
OUT_FAULTS = ("not_written", "written_behind", "input_changed")
GEMMA_FAULTS = ("one_not_added", "mean_over_too_many", "weight_changed", "eps_of_1e-6")
GRAPH_FAULTS = ("graph_keeps_input", "graph_does_nothing", "nan_element", "last_row_dropped")
LAYER_FAULTS = (
    "gamma_changed",
    "beta_changed",
    "mean_not_taken_away",
    "unbiased_variance",
    "variance_as_difference",
    "rounded_twice",
    "scale_ignored",
    "scale_in_bf16",
    "shift_ignored",
    "input_changed",
)
FUSED_FAULTS = (
    *(fault for fault in OUTPUT_FAULTS if fault != "tail_dropped"),
    *GEMMA_FAULTS,
    "residual_not_added",
    "residual_not_written",
    "residual_nan_element",
    "input_not_written",
    "returns_tensor",
    "written_behind",
)
FAULTS = {
    ("norm_gemma_rmsnorm", "bf16"): (
        *OUTPUT_FAULTS,
        *OUT_FAULTS,
        *GEMMA_FAULTS,
        "one_added_in_dtype",
        "rounded_twice",
        "strides_ignored",
        "out_ignored",
        "returns_copy",
    ),
    ("norm_gemma_rmsnorm", "fp16"): (*OUTPUT_FAULTS, *GEMMA_FAULTS, "one_added_in_dtype", "rounded_twice"),
    ("norm_gemma_rmsnorm", "graph_bf16"): (*GRAPH_FAULTS, "graph_keeps_weight"),
    ("norm_gemma_rmsnorm", "cuda_bf16"): (*OUTPUT_FAULTS, *OUT_FAULTS, *GEMMA_FAULTS, "strides_ignored"),
    ("norm_gemma_fused_add_rmsnorm", "fused_add_bf16"): FUSED_FAULTS,
    ("norm_gemma_fused_add_rmsnorm", "graph_fused_add_bf16"): (*GRAPH_FAULTS, "graph_keeps_residual"),
    ("norm_gemma_fused_add_rmsnorm", "cuda_fused_add_fp16"): FUSED_FAULTS,
    ("norm_layernorm", "bf16"): (*OUTPUT_FAULTS, *LAYER_FAULTS, "not_written", "in_place"),
    ("norm_layernorm", "graph_bf16"): GRAPH_FAULTS,
    ("norm_layernorm", "spread_bf16"): ("strides_ignored", "nan_element"),
    ("norm_layernorm", "cuda_bf16"): (*OUTPUT_FAULTS, *OUT_FAULTS, *LAYER_FAULTS),
}


def load(name, monkeypatch):
    return loading.load(name, **SMALLER)


@pytest.mark.parametrize(("name", "variant"), [(name, variant) for name in VARIANTS for variant in VARIANTS[name]])
def test_right_kernels_pass_and_use_the_tolerance(name, variant, fake, monkeypatch):
    module = load(name, monkeypatch)
    assert tuple(module.PROBE["variants"]) == VARIANTS[name]
    assert module.build(variant)
    measured = module.run(variant)
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values()), measured
    assert 1 / 8 <= measured["share_of_tolerance"] <= 1


@pytest.mark.parametrize(
    ("name", "variant", "fault"), [(*key, fault) for key, faults in FAULTS.items() for fault in faults]
)
def test_a_fault_is_caught(name, variant, fault, fake, monkeypatch):
    module = load(name, monkeypatch)
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError) as caught:
        module.run(variant)
    assert str(caught.value)


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_is_built_before_a_cute_dsl_kernel_is_called(name, fake, monkeypatch):
    import flashinfer.norm

    module = load(name, monkeypatch)
    monkeypatch.setattr(flashinfer.norm, "_USE_CUDA_NORM", False, raising=False)
    default, *_, by_nvcc = VARIANTS[name]
    assert module.build(default) is False
    assert module.build(by_nvcc)


def test_normalising_the_rounded_sum_is_allowed(fake, monkeypatch):
    module = load("norm_gemma_fused_add_rmsnorm", monkeypatch)
    monkeypatch.setattr(fake, "ACTIVE", "sum_rounded_first")
    module.run("fused_add_bf16")


def test_rows_that_lie_apart_do_not_matter_to_dense_layernorm(fake, monkeypatch):
    """So that a kernel that is wrong only there has a cell of its own."""
    module = load("norm_layernorm", monkeypatch)
    monkeypatch.setattr(fake, "ACTIVE", "strides_ignored")
    module.run("bf16")
