"""Rough seconds that a module takes to build: to start the longest first and to say what a budget leaves out.

Measured on one Hopper machine with 16 to 64 vCPU, FlashInfer 0.5.3 and 0.7.2.post1, a cold cache, a few modules at
once: orders of magnitude, not benchmarks. A few cores take several times as long.
"""

from __future__ import annotations

from fi_doctor.model import Facts, Missing, ProbeSpec

BUILD_S = {
    "fused_moe": 1800,
    "trtllm_comm": 300,
    "batch_prefill_attention_sink": 210,
    "sampling": 160,
    "batch_prefill": 145,
    "batch_decode": 140,
    "rope": 80,
    "norm": 70,
    "gemm": 36,
    "page": 35,
    "batch_mla": 35,
    "silu_and_mul": 24,
    "xqa": 10,
}
UNKNOWN_S = 60
IMPORT_S = 7
RUN_S = 5


def build_seconds(module: str, facts: Facts, *, fresh: bool) -> int:
    """For one module; 0 when it need not be built."""
    if not module:
        return 0
    flashinfer = facts.flashinfer
    if not isinstance(flashinfer, Missing):
        there = flashinfer.jit_cache_modules if fresh else (*flashinfer.cached_modules, *flashinfer.jit_cache_modules)
        if module in there:
            return 0
    prefixes = [prefix for prefix in BUILD_S if module.startswith(prefix)]
    return BUILD_S[max(prefixes, key=len)] if prefixes else UNKNOWN_S


def probe_seconds(spec: ProbeSpec, facts: Facts, *, fresh: bool) -> int:
    """For one probe in a process of its own."""
    return IMPORT_S + RUN_S + build_seconds(spec.module, facts, fresh=fresh)
