"""The checks of the BF16 GEMM probe, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import pytest
from loading import PROBES, load

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

WRONG = r"elements are wrong|outside of out|was changed|not the tensor given|strides"
SIXTEEN = (
    "cublaslt_bf16", "graph_cublaslt_bf16", "cublaslt_bias_bf16", "cublaslt_fp16", "tinygemm_bf16",
    "graph_tinygemm_bf16", "tinygemm_bias_bf16", "cudnn_bf16", "cudnn_bias_bf16", "cudnn_batched_bf16", "auto_bf16",
)  # fmt: skip
VARIANTS = (*SIXTEEN, "cublaslt_float32")
BIASED = tuple(variant for variant in VARIANTS if "_bias_" in variant)
FAULTS = (
    "k_tail_dropped", "columns_swapped", "last_rows_scaled", "rounded_twice", "sum_in_bf16", "row_repeated",
    "last_row_unwritten", "nan_element",
)  # fmt: skip
EAGER_FAULTS = ("written_behind", "backend_ignores_out", "input_changed", "column_major_out")
GRAPH_FAULTS = ("graph_keeps_input", "graph_keeps_weight", "graph_does_nothing")
BUILDS = {
    "cublaslt_bf16": ["mm_bf16_cublaslt"],
    "graph_tinygemm_bf16": ["tinygemm2"],
    "cudnn_bf16": [],
    "auto_bf16": ["mm_bf16_cublaslt", "tinygemm2"],
}


@pytest.fixture
def probe(faults):
    return load("gemm_bf16", SIZES=((1, 272), (37, 272), (101, 272)), DEEP=(8, 1104))


def test_every_variant_is_tested_here(probe):
    assert set(probe.PROBE["variants"]) == set(VARIANTS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_right_product_passes_and_is_measured(variant, probe):
    measured = probe.run(variant)
    assert all(isinstance(value, (int, float, str)) for value in measured.values()), measured
    assert 0.125 < measured["worst_of_tolerance"] < 1


@pytest.mark.parametrize(("variant", "names"), BUILDS.items(), ids=BUILDS)
def test_a_variant_builds_what_its_backend_needs(variant, names, probe):
    import flashinfer.jit.gemm

    del flashinfer.jit.gemm.BUILT[:]
    assert probe.build(variant) is (None if names else False)
    assert names == flashinfer.jit.gemm.BUILT


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in VARIANTS for fault in FAULTS),
        *(("cublaslt_bf16", fault) for fault in EAGER_FAULTS),
        *((variant, fault) for variant in VARIANTS if variant.startswith("graph") for fault in GRAPH_FAULTS),
        *((variant, fault) for variant in BIASED for fault in ("bias_ignored", "bias_of_next_column")),
        *((variant, "bias_before_rounding") for variant in BIASED),
        ("cudnn_batched_bf16", "weight_of_batch_0"),
    ],
)
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=WRONG) as caught:
        probe.run(variant)
    assert Path(caught.traceback[-1].path).parent == PROBES
