"""Examples of the rules on binaries and the GPU code in them."""

from __future__ import annotations

import factory as make
from binary_samples import binary, on
from rule_examples import Example

CORE = "/venv/lib/vllm/_C_stable_libtorch.abi3.so"
FA2 = "/venv/lib/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"
FA3 = "/venv/lib/vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so"
CACHED = "/root/.cache/flashinfer/0.7.2.post1/90a/cached_ops/norm/norm.so"
PREBUILT = "/venv/lib/flashinfer_jit_cache/jit_cache/{0}/{0}.so"


EXAMPLES: dict[str, Example] = {
    "binary-without-code-for-gpu": Example(
        on(121, {CORE: binary("sm_90a", "sm_120a")}), on(121, {CORE: binary("sm_90a", "sm_120f")})
    ),
    "binary-loads-by-ptx-only": Example(
        on(90, {FA2: binary("sm_80", "compute_80", ptx="9.0")}),
        on(90, {FA2: binary("sm_80", "compute_80", ptx="9.0"), FA3: binary("sm_90a")}),
    ),
    "binary-ptx-newer-than-driver": Example(
        on(100, {FA2: binary("sm_80", "compute_80", ptx="9.0")}, driver_cuda="12.9"),
        on(100, {FA2: binary("sm_80", "compute_80", ptx="8.8")}, driver_cuda="12.9"),
    ),
    "binary-lacks-library": Example(
        on(90, {CORE: binary("sm_90", not_found=("libcudart.so.12",))}),
        on(90, {CORE: binary("sm_90", not_found=make.missing("ldconfig does not answer"))}),
    ),
    "binary-not-readable": Example(on(90, {CORE: make.missing(f"{CORE} is empty")}), on(90, {CORE: binary("sm_90")})),
    "cached-module-for-other-gpu": Example(
        on(90, {CACHED: binary("sm_100a", package="JIT cache")}),
        on(90, {CACHED: binary("sm_90a", package="JIT cache")}),
    ),
    "prebuilt-module-for-other-gpu": Example(
        on(89, {PREBUILT.format("norm"): binary("sm_90a", package="flashinfer-jit-cache")}),
        on(89, {PREBUILT.format("fused_moe_90"): binary("sm_90a", package="flashinfer-jit-cache")}),
    ),
}
