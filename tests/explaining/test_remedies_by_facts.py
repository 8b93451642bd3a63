"""Remedies go by what the log tells: the driver, the GPU's age, the module that did not compile, what was raised."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

VLLM = "(EngineCore_DP0 pid=7) ERROR 11-20 02:11:22 [core.py:8] "
TOO_NEW = f"{VLLM}nvcc fatal   : Unsupported gpu architecture 'compute_120f'"
HERE = "GPU 0: NVIDIA GeForce RTX 5090\nCUDA toolkit: 12.8"


def remedies(log: str, environment: str = "") -> str:
    return "\n".join(diagnosed(log, environment).diagnoses[0].remedies)


@pytest.mark.parametrize(
    ("driver", "toolkits"),
    [("570.124.06", ["12.9"]), ("580.65.06", ["13.0"]), ("", ["13.0"])],
    ids=["of CUDA 12", "of CUDA 13", "not told"],
)
def test_a_toolkit_is_not_above_the_drivers_major(driver, toolkits):
    told = remedies(TOO_NEW, f"{HERE}\nNvidia driver version: {driver}" if driver else HERE)
    assert [number for number in ("12.9", "13.0") if f"CUDA_HOME=/usr/local/cuda-{number}" in told] == toolkits


@pytest.mark.parametrize(
    ("target", "is_given"),
    [("fused_moe_120/moe.cuda.o", False), ("sampling/sampling.cuda.o", True), ("x.cuda.o", True)],
)
def test_the_sampler_is_left_out_only_where_it_may_be_what_was_compiled(target, is_given):
    told = remedies(f"{VLLM}FAILED: {target}\n{TOO_NEW}", HERE)
    assert ("VLLM_USE_FLASHINFER_SAMPLER=0" in told) is is_given


def test_an_old_gpu_is_not_sent_to_newer_wheels():
    told = {
        sm: remedies(
            f"NVIDIA GPU with CUDA capability sm_{sm} is not compatible with the current PyTorch installation."
        )
        for sm in (61, 120)
    }
    assert ["cu126" in told[61], "cu128" in told[61]] == [True, False]
    assert ["cu126" in told[120], "cu128" in told[120]] == [False, True]


def test_memory_that_others_hold_asks_for_less_of_it():
    free = "ValueError: Free memory on device (10.2/23.5 GiB) on startup is less than desired GPU memory utilization"
    assert "--gpu-memory-utilization below" in remedies(f"{VLLM}{free} (0.9, 21.2 GiB).")
    assert "--gpu-memory-utilization below" not in remedies(
        f"{VLLM}ValueError: No available memory for the cache blocks."
    )


@pytest.mark.parametrize(
    "other", ["", "OSError: [Errno 28] No space left on device: '/x'"], ids=["alone", "beside another"]
)
def test_a_module_that_is_loading_is_a_cause_only_where_nothing_else_is(other):
    found = diagnosed(f"2025-04-02 10:11:12,100 - INFO - flashinfer.jit: Loading JIT ops: page\n{other}")
    assert ("jit-stale-lock-hang" in [one.cause for one in found.diagnoses]) is (not other)
