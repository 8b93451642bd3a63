"""What modules took to build where it was measured, for estimates: seconds, objects and MiB.

On Hopper machines with 16 to 64 vCPU, nvcc 13.0 and FlashInfer 0.5.3 and 0.7.2.post1, a cold cache: orders of
magnitude, not benchmarks. With a core for each object a module takes as long as its slowest object; the others take
less. Names are the beginnings of modules' names.
"""

from __future__ import annotations

UNKNOWN_S, UNKNOWN_MIB = 60, 3072  # of modules that were never measured
# Module -> seconds with more cores than objects, which is what the slowest object takes.
BUILD_S = {
    "fused_moe": 350,  # with all cores at work; 145 of 242 objects took 18 minutes of 64 jobs
    "fused_moe_90.": 125,  # a part of it (inside/units.py) is named after it, with a dot
    "fused_moe_trtllm": UNKNOWN_S,
    "trtllm_comm": 300,
    "batch_prefill": 45,
    "batch_decode": 25,
    "sampling": 105,
    "rope": 65,
    "norm": 50,
    "gemm": 36,
    "page": 28,
    "batch_mla": 30,
    "silu_and_mul": 10,
    "gelu": 10,
    "xqa": 14,
    "cascade": 10,
    "comm": 40,
    "topk": 650,  # cub_topk.cu, from FlashInfer 0.7 on; it was not seen to end
    "topk.": 275,  # the part without it
    "gdn_prefill": 110,
    "selective_state_update": 33,
    "fp8_blockscale_gemm": 115,
    "fp4_quantization": 52,
    "mxfp8_quantization": 50,
    "mm_bf16_cublaslt": 12,
    "tinygemm2": 12,
}
FA3_S = 100  # attention written for SM90
PART_S = 440  # what all objects of a part take together, beside others: most of them are small, and many are shared

FA3_SHARE = 0.65  # of the slowest object's time that another object takes on average
SHARE = 0.7  # the same of other modules
SHARES = {  # by module
    "batch_prefill": 0.4,
    "batch_decode": 0.35,
    "batch_mla": 0.3,
    "sampling": 0.35,
    "norm": 0.5,
    "xqa": 0.3,
    "rope": 0.2,
    "topk": 0.05,
    "topk.": 0.13,
    "gdn_prefill": 0.55,
    "selective_state_update": 0.5,
    "fp8_blockscale_gemm": 0.06,
    "gemm": 0.2,
    "comm": 0.4,
    "fp4_quantization": 0.07,
    "mxfp8_quantization": 0.07,
}

# Those of fused_moe, fmha_gen and fp4_quantization as FlashInfer 0.7.2.post1 lists their sources.
OBJECTS = {
    "fused_moe": 250,
    "fused_moe_89": 85,
    "fused_moe_100": 270,
    "fused_moe_103": 282,
    "fused_moe_120": 96,
    "fused_moe_trtllm": 18,
    "fmha_gen": 4,
    "batch_mla": 3,
    "cascade": 2,
    "comm": 2,
    "fp8_blockscale_gemm": 8,
    "gemm": 3,
    "mxfp8_quantization": 6,
    "selective_state_update": 3,
    "topk": 2,
    "topk.": 1,
    "xqa": 5,
    "fp4_quantization": 7,
    "fused_moe_90.": 17,
    "batch_prefill": 10,
    "batch_decode": 3,
    "trtllm_comm": 3,
    "sampling": 3,
    "rope": 2,
    "norm": 2,
    "page": 2,
}
# Module -> the most that one compile command takes, in MiB. Measured with nvcc 13.0 for sm_90a, the larger of
# FlashInfer 0.5.3 and 0.7.2.post1, one command at a time or beside others on an H100, and rounded up.
PEAK_MIB = {
    "fused_moe": 5300,  # an instance for weights of four bits; fp8_blockscale_gemm.cu takes 3900
    "fused_moe_trtllm": UNKNOWN_MIB,
    "fused_moe_90.": 3600,
    "fused_moe_90.mxfp4_bf16": 5300,
    "fused_moe_90.fp8_block": 4200,
    "fp8_blockscale_gemm": 4200,
    "fp4_quantization": 950,
    "mxfp8_quantization": 950,
    "topk": 3500,
    "topk.": 1750,
    "gemm": 1250,
    "batch_mla": 750,
    "rope": 500,
    "selective_state_update": 500,
    "cascade": 400,
    "comm": 1250,
    "gelu": 400,
    "tinygemm2": 500,
    "mm_bf16_cublaslt": 400,
    "trtllm_comm": 1700,
    "batch_prefill": 500,
    "batch_decode": 450,
    "sampling": 1000,
    "norm": 950,
    "page": 500,
    "silu_and_mul": 400,
    "xqa": 350,
}
FA3_MIB = 4300
