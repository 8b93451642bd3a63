"""The JIT modules that FlashInfer has one of for each kind of GPU, by the function that asks for them.

Read in flashinfer-python 0.5.3, 0.6.4, 0.6.13, 0.6.18.post1 and 0.7.2.post1: get_cutlass_fused_moe_module in
flashinfer/fused_moe/core.py, get_fp4_quantization_module in flashinfer/quantization/fp4_quantization.py; and those that
load trtllm-gen's cubins, gen_trtllm_gen_fmha_module and gen_trtllm_gen_fused_moe_sm100_module in flashinfer/jit.
"""

from __future__ import annotations

from collections.abc import Iterable

from fi_doctor.model import Missing

_MOE = {
    89: "fused_moe_89",
    90: "fused_moe_90",
    100: "fused_moe_100",
    103: "fused_moe_103",
    110: "fused_moe_100",
    120: "fused_moe_120",
    121: "fused_moe_120",
}
# From 0.6.7 on those of SM12x are of the family where torch's CUDA is 12.9 or newer.
_FP4 = {
    90: "fp4_quantization_90",
    100: "fp4_quantization_100",
    103: "fp4_quantization_103",
    110: "fp4_quantization_110",
    120: "fp4_quantization_120*",
    121: "fp4_quantization_12*",
}
_TRTLLM_MOE = dict.fromkeys((100, 103), "fused_moe_trtllm_sm100")
_BY_ENTRY = {
    "flashinfer.fused_moe.cutlass_fused_moe": _MOE,
    "flashinfer.fp4_quantization.fp4_quantize": _FP4,
    "flashinfer.fp4_quantization.mxfp4_quantize": _FP4,
    "flashinfer.prefill.trtllm_batch_context_with_kv_cache": dict.fromkeys((100, 103), "fmha_gen"),
    "flashinfer.fused_moe.trtllm_bf16_moe": _TRTLLM_MOE,
    "flashinfer.fused_moe.trtllm_fp4_block_scale_moe": _TRTLLM_MOE,
    "flashinfer.fused_moe.trtllm_fp8_block_scale_moe": _TRTLLM_MOE,
    "flashinfer.fused_moe.trtllm_fp8_per_tensor_scale_moe": _TRTLLM_MOE,
}
# Those whose kernels are written in CuTe DSL, which compiles them at their first call: flashinfer/fused_moe/cute_dsl.
_LATE = {"flashinfer.fused_moe.cute_dsl_fused_moe_nvfp4", "flashinfer.fused_moe.b12x_fused_moe"}


def of(entries: Iterable[str], sm: int | Missing) -> str:
    """The module that a row with these entries asks for; "name*": one that begins so; "" where it is not known."""
    if isinstance(sm, Missing):
        return ""
    return next((name for entry in entries if (name := _BY_ENTRY.get(entry, {}).get(sm, ""))), "")


def is_late(entries: Iterable[str]) -> bool:
    """Whether such a row asks for no module, and its kernels are compiled at their first call."""
    return not _LATE.isdisjoint(entries)
