from flashinfer.fused_moe.core import cutlass_fused_moe as cutlass_fused_moe
