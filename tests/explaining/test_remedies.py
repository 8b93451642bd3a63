"""Remedies are those of the engine and the releases of the log; an answer quotes each line once."""

from __future__ import annotations

import re

import pytest
from fault_cases import FAULTS, diagnosed

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
ENGINES = {
    "vllm": f"(EngineCore_DP0 pid=7) ERROR 08-13 11:11:59 [core.py:8] {MEMORY}",
    "sglang": f"[2025-11-28 10:02:00 TP0] Scheduler hit an exception\n{MEMORY}",
    "sglang ": f"[2025-11-28 10:02:00] server_args=ServerArgs(model_path='m')\n{MEMORY}",
}


@pytest.mark.parametrize("name", ENGINES)
def test_remedies_are_those_of_the_engine_of_the_log(name):
    remedies = diagnosed(ENGINES[name]).diagnoses[0].remedies
    told = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}
    assert [engine for engine, flag in told.items() if any(flag in line for line in remedies)] == [name.strip()]


def test_without_an_engine_those_of_both_are_given():
    remedies = " ".join(diagnosed(MEMORY).diagnoses[0].remedies)
    assert "--gpu-memory-utilization" in remedies
    assert "--mem-fraction-static" in remedies


def test_a_setting_of_another_engine_than_the_logs_is_not_given():
    for engine, is_given in (("vllm: 0.14.1", True), ("sglang: 0.5.5", False)):
        [first, *_] = diagnosed(f"{engine}\n{MEMORY}").diagnoses
        assert ("--enforce-eager" in first.remedies) is is_given


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_no_line_has_flags_of_both_engines(fault):
    flags = [mend.line for mend in fault.fix if "engine" not in str(mend.when) and "pip install" not in mend.line]
    assert [line for line in flags if re.search(r"(?<!\w)--\w", line) and re.search(r"SGLang.* --\w", line)] == []


TOO_NEW = "RuntimeError: No supported CUDA architectures found for major versions [12]."


@pytest.mark.parametrize("release", ["0.2.5", "0.3.1", "0.4.1", "0.7.2"])
def test_cuda_home_is_given_to_every_release_that_compiles_with_it(release):
    found = diagnosed(TOO_NEW, f"compute capability: 120\nCUDA toolkit: 12.4\nflashinfer-python: {release}")
    assert any("CUDA_HOME" in line for line in found.diagnoses[0].remedies)


def test_a_line_with_several_signs_is_quoted_once():
    [first] = diagnosed(f"{MEMORY}\nother\n{MEMORY}").diagnoses
    assert [(one.text, one.line, one.times) for one in first.matched] == [(MEMORY, 2, 2)]


BUILD = """\
ERROR 08-13 11:11:59 [core.py:8] ninja: Entering directory `/root/.cache/flashinfer/0.3.1/90/'
ERROR 08-13 11:11:59 [core.py:8] [1/2] c++ -MMD -c TimeoutError.cpp -o TimeoutError.o
ERROR 08-13 11:11:59 [core.py:8] FAILED: a.cuda.o
ERROR 08-13 11:11:59 [core.py:8] /usr/local/cuda/bin/nvcc -DcudaError=1 -c a.cu -o a.cuda.o
"""


def test_what_a_build_says_while_it_goes_on_is_no_error():
    said = 'ERROR 08-13 11:11:59 [core.py:8] /v/flashinfer/norm.cuh(45): error: identifier "foo" is undefined'
    found = diagnosed(f"{BUILD}{said}")
    assert [(error.line, error.follows) for error in found.errors] == [(4, True), (6, False)]
    assert found.answer.endswith("the first error, in line 6")
    assert [(error.line, error.follows) for error in diagnosed(BUILD).errors] == [(4, False)]
