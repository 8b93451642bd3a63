"""What the rules on shared objects leave alone."""

from __future__ import annotations

import factory as make
import pytest
from examples_binaries import binary, machine
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings
from fi_doctor.model import Binaries
from fi_doctor.reports.binaries import lines

KB = knowledge.load()
SITE = make.SITE
# What the wheel of vLLM 0.33.0 holds, unit by unit in small.
WHEEL = (
    binary(f"{SITE}/vllm/_C_stable_libtorch.abi3.so", "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120", "sm_90a sm_100f"),
    binary(f"{SITE}/vllm/_moe_C_stable_libtorch.abi3.so", "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120", "sm_75"),
    binary(f"{SITE}/vllm/_flashmla_C.abi3.so", "sm_90a sm_100f"),
    binary(f"{SITE}/vllm/_qutlass_C.abi3.so", "sm_100f"),
    binary(f"{SITE}/vllm/cumem_allocator.abi3.so"),
    binary(f"{SITE}/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "sm_80 compute_80", ptx={"compute_80": "9.0"}),
    binary(f"{SITE}/vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", "sm_90a"),
    binary(f"{SITE}/torch/lib/libtorch_cuda.so", "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", "sm_100a", owner="torch"),
)


def _of_binaries(facts):
    causes = ("binary-for-other-gpu", "cache-of-other-gpu", "torch-of-other-abi", "driver-too-old")
    return [one.id for one in findings.find(KB, facts, ()) if one.cause in causes]


@pytest.mark.parametrize("sm", [75, 80, 86, 89, 90, 100, 103, 120, 121])
def test_a_wheel_that_brings_kernels_for_single_architectures_is_healthy(sm):
    assert not [name for name in _of_binaries(machine(*WHEEL, sm=sm)) if "arch-list" not in name]


def test_a_file_that_was_not_read_to_its_end_fires_nothing():
    cut = binary(f"{SITE}/vllm/_C.abi3.so", "sm_80")
    assert "vllm-binary-lacks-this-gpu" in _of_binaries(machine(cut))
    assert not _of_binaries(machine(cut, unread={cut.path: "it is cut off in its GPU code"}))


def test_of_a_jetson_it_is_not_said_that_code_for_its_major_does_not_run():
    assert not _of_binaries(machine(binary(f"{SITE}/vllm/_C.abi3.so", "sm_80"), sm=87))


def test_a_cached_module_of_another_gpu_of_the_list_is_left_alone():
    path = "/home/user/.cache/flashinfer/0.7.2.post1/90a_100f/cached_ops/moe/moe.so"
    facts = machine(binary(path, "sm_100f", owner="flashinfer cache"))
    assert "cached-module-for-other-gpu" in _of_binaries(facts)
    facts = replace(facts, flashinfer=make.flashinfer(architectures=("90a", "100f")))
    assert "cached-module-for-other-gpu" not in _of_binaries(facts)


def test_a_copy_of_the_wanted_cudart_keeps_the_rule_silent():
    facts = machine(binary(f"{SITE}/vllm/_C.abi3.so", "sm_90", needed=("libcudart.so.12",)))
    assert "vllm-needs-other-cudart" in [one.id for one in findings.find(KB, facts, ())]
    cudart = replace(facts.libraries["cudart"], copies=("/usr/lib/libcudart.so.12",))
    facts = replace(facts, libraries={"cudart": cudart})
    assert "vllm-needs-other-cudart" not in [one.id for one in findings.find(KB, facts, ())]


def test_each_package_has_a_line_that_names_what_does_not_load_natively():
    told = lines(machine(*WHEEL, binary("/opt/x.so", "sm_100a", owner="--binary"), unread={"/y.so": "it is empty"}))
    jit, absent = "_vllm_fa2_C.abi3.so sm_80 compute_80", "_qutlass_C.abi3.so sm_100f"
    assert told == [
        f"vllm on SM90: 4 files natively; 1 file by PTX JIT ({jit}); 1 file not at all ({absent})",
        "torch on SM90: 1 file natively",
        "/opt/x.so: SM90 not at all (sm_100a)",
        "not read: /y.so: it is empty",
    ]


def test_without_a_gpu_the_architectures_are_told():
    facts = make.facts(gpus=make.no_gpus(), binaries=Binaries(files=WHEEL[3:4], unread={}))
    assert lines(facts) == ["vllm: 1 file for sm_100f"]
