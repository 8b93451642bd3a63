"""Where several servers wrote one log, versions and flags of one are not given to another."""

from __future__ import annotations

import pytest
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
