"""Where several servers wrote one log, versions and flags of one are not given to another."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed
from test_signs import Folder, sign

FIRST = "vLLM API server version 0.11.0\nINFO 11-20 10:00:00 [x.py:1] non-default args: {'kv_cache_dtype': 'fp8'}"
SECOND = "vLLM API server version 0.20.2\nINFO 11-20 11:00:00 [x.py:1] non-default args: {'model': 'm'}"
FP8 = "when: {argument: {kv_cache_dtype: fp8}}"
NEWER = "when: {package: {vllm: '>=0.20'}}"


@pytest.fixture
def told(tmp_path):
    def of(when, log):
        folder = Folder(tmp_path)
        folder.add("a-fault", sign("it broke"), more=when)
        return [one.confidence.value for one in folder.told(log).diagnoses]

    return of


CASES = {
    "the flag of another server": (FP8, f"{FIRST}\n{SECOND}\nit broke", ["medium"]),
    "the flag of the server itself": (FP8, f"{FIRST}\nit broke\n{SECOND}", ["high"]),
    "the release of another server": (NEWER, f"{SECOND}\n{FIRST}\nit broke", []),
    "the release of the server itself": (NEWER, f"{FIRST}\n{SECOND}\nit broke", ["high"]),
    "one of two servers, whose own facts fit": (NEWER, f"{FIRST}\nit broke\n{SECOND}\nit broke", ["high"]),
    "one server": (FP8, f"{FIRST}\nit broke", ["high"]),
    "a start anew": (FP8, f"{FIRST}\nit broke\n{FIRST}\nit broke", ["high"]),
    "a machine that both have": ("when: {sm: 90}", f"{FIRST}\nGPU 0: NVIDIA H100\n{SECOND}\nit broke", ["high"]),
    "two machines": (
        "when: {sm: 90}",
        f"{FIRST}\nGPU 0: NVIDIA H100\n{SECOND}\nGPU 0: NVIDIA B200\n{FIRST.replace('fp8', 'auto')}\nit broke",
        ["medium"],
    ),
    "what stands before both": ("when: {nvcc: '<13'}", f"CUDA toolkit: 12.8\n{FIRST}\n{SECOND}\nit broke", ["high"]),
    "a package of a server of another release": (
        "when: {package: {torch: '<2.9'}}",
        f"{FIRST}\ntorch==2.8.0\n{SECOND}\nit broke",
        ["medium"],
    ),
    "a package of a server of the same release": (
        "when: {package: {torch: '<2.9'}}",
        f"{FIRST}\ntorch==2.8.0\n{FIRST.replace('fp8', 'auto')}\nit broke",
        ["high"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_one_server_tells_is_not_known_of_another(told, name):
    when, log, expected = CASES[name]
    assert told(when, log) == expected


def _of(container, text):
    return "\n".join(f"{container}-1  | {line}" for line in text.splitlines())


def test_containers_are_servers_by_themselves(told):
    both = f"{_of('prefill', FIRST)}\n{_of('decode', SECOND)}\n"
    assert told(FP8, both + _of("decode", "it broke")) == ["medium"]
    assert told(FP8, both + _of("prefill", "it broke")) == ["high"]


def test_the_arguments_of_sglang_begin_a_server(told):
    one = "[2025-11-11 15:55:06] server_args=ServerArgs(kv_cache_dtype='fp8', random_seed=7)"
    other = "[2025-11-11 15:55:06] server_args=ServerArgs(kv_cache_dtype='auto', random_seed=8)"
    assert told(FP8, f"{one}\n{other}\nit broke") == []
    assert told(FP8, f"{other}\n{one}\nit broke") == ["high"]
    assert told(FP8, f"{one}\n{one.replace('7', '9')}\nit broke") == ["high"]


STARTED = "vllm-1  | INFO 11-20 02:11:02 [api_server.py:1839] vLLM API server version 0.13.0\n"
FAILED = "vllm-1  | RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist\n"
TAKEN = "web-1 | Error: listen EADDRINUSE: address already in use :::3000\n"
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB.\n"


def test_a_container_without_an_engine_is_never_first_where_one_with_an_engine_has_an_error():
    found = diagnosed(f"{TAKEN}{STARTED}{FAILED}")
    assert [one.cause for one in found.diagnoses] == ["nvcc-not-found", "port-in-use"]
    assert "it is of web-1, in which no engine runs" in found.diagnoses[1].reason
    assert diagnosed(f"{TAKEN}{STARTED}vllm-1  | RuntimeError: nobody knows\n").answer.startswith("I do not know")


@pytest.mark.parametrize(("container", "is_engines"), [("trainer-1", False), ("vllm-2", True), ("llm-worker-0", True)])
def test_what_an_engine_reads_helps_no_container_without_one(container, is_engines):
    [first] = diagnosed(f"{STARTED}{container} | {FULL}").diagnoses
    assert first.cause == "gpu-out-of-memory"
    assert any("vllm serve" in line for line in first.remedies) == is_engines
    assert ("in which no engine runs" in first.reason) != is_engines


GPUS = (
    "(Worker_TP0 pid=10) INFO 11-20 02:13:02 [gpu.py:9] GPU 0: NVIDIA H100 80GB HBM3\n"
    "(Worker_TP1 pid=11) INFO 11-20 02:13:02 [gpu.py:9] GPU 1: NVIDIA RTX PRO 6000 Blackwell\n"
)
NO_MODULE = (
    "ERROR 11-20 02:13:03 [core.py:9] RuntimeError: No supported CUDA architectures found for major versions [10]."
)


def test_of_gpus_of_two_generations_that_of_the_rank_that_failed_decides():
    first = diagnosed(f"{GPUS}(Worker_TP1 pid=11) {NO_MODULE}").diagnoses[0]
    assert first.rule == "sm10x-module-asked-for-on-sm12x"
    assert "sm is 120 (line 3)" in first.reason
    other = diagnosed(f"{GPUS}(Worker_TP0 pid=10) {NO_MODULE}").diagnoses
    assert "sm10x-module-asked-for-on-sm12x" not in [one.rule for one in other]
