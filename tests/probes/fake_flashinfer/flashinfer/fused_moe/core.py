# ruff: noqa: PLR0917, FBT002, A002 - these are the signatures of FlashInfer
from flashinfer.faults import has


def get_cutlass_fused_moe_module(backend="100", use_fast_build=False):
    raise AssertionError("the module would be built here")


def cutlass_fused_moe(
    input,
    token_selected_experts,
    token_final_scales,
    fc1_expert_weights,
    fc2_expert_weights,
    output_dtype,
    quant_scales,
    use_deepseek_fp8_block_scale=False,
):
    if use_deepseek_fp8_block_scale and has("gate_closed"):
        raise NotImplementedError("not for this CUDA")
    if has("module_not_asked_for"):
        return input
    return get_cutlass_fused_moe_module("90")
