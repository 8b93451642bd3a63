"""An error after which a server served, one that was expected, and one that another brought about are no sure cause."""

from __future__ import annotations

import json

import pytest
from fault_cases import diagnosed

from fi_doctor.model import Confidence

NVCC = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
CRASH = "RuntimeError: CUDA error: an illegal memory access was encountered"
LOOKUP = "AttributeError: module 'flashinfer' has no attribute 'fused_moe'"
RAISED = '  File "/v/site-packages/flashinfer/jit/cpp_ext.py", line 61, in get_cuda_path\n    raise\n'
FRAME = f"Traceback (most recent call last):\n{RAISED}"
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"
SERVING = (
    "INFO:     Application startup complete.",
    "Uvicorn running on http://0.0.0.0:8000",
    "The server is fired up",
)


def first(log):
    return diagnosed(log).diagnoses[0]


@pytest.mark.parametrize("serving", SERVING)
def test_what_stands_before_a_server_that_serves_is_hardly_a_cause(serving):
    found = first(f"{FRAME}{NVCC}\nretrying with another backend\n{serving}")
    assert (found.cause, found.confidence) == ("nvcc-not-found", Confidence.LOW)
    assert found.reason.endswith("but a server served after it")


MORE = "RuntimeError: Engine core initialization failed.\nINFO:     Application startup complete."
STAYS = {
    "after the start": f"{SERVING[0]}\n{FRAME}{NVCC}",
    "a server that is gone": f"{FRAME}{NVCC}\nRuntimeError: Engine core initialization failed.\n{SERVING[0]}",
    "a server that begins anew": f"{FRAME}{NVCC}\nvLLM API server version 0.20.2\n{SERVING[0]}",
    "a server of another container": f"engine-1  | {NVCC}\nproxy-1  | {SERVING[0]}",
    "an error of a logger": f"ERROR 11-28 10:01:01 [core.py:9] {NVCC}\n{MORE}",
}


@pytest.mark.parametrize("name", STAYS)
def test_what_no_server_got_over_stays_sure(name):
    found = first(STAYS[name])
    assert (found.cause, found.confidence) == ("nvcc-not-found", Confidence.HIGH)


def test_the_crash_after_the_start_comes_before_what_was_caught():
    found = diagnosed(f"{FRAME}{NVCC}\n{SERVING[0]}\n{FRAME}{MEMORY}").diagnoses
    assert [(one.cause, one.confidence) for one in found] == [
        ("gpu-out-of-memory", Confidence.HIGH),
        ("nvcc-not-found", Confidence.LOW),
    ]


def test_what_is_looked_up_and_not_found_is_a_bystander_of_the_error_in_its_handler():
    found = diagnosed(f"{FRAME}{LOOKUP}\n{HANDLING}{FRAME}{MEMORY}").diagnoses
    assert [one.cause for one in found] == ["gpu-out-of-memory", "engine-flashinfer-version-mismatch"]
    assert found[1].confidence is Confidence.LOW
    assert found[1].reason.endswith("but it was handled, and another one raised")


def test_a_record_of_json_with_both_is_taken_apart():
    trace = f"{FRAME}{LOOKUP}\n{HANDLING}{FRAME}{MEMORY}"
    whole = json.dumps({"level": "error", "msg": "request failed", "exc_info": trace})
    assert first(whole).cause == "gpu-out-of-memory"


def test_records_of_a_logger_with_both_are_taken_apart():
    lines = f"{FRAME}{LOOKUP}\n{HANDLING}{FRAME}{MEMORY}".splitlines()
    whole = "\n".join(f"(EngineCore_DP0 pid=7) ERROR 08-13 11:11:59 [core.py:8] {line}" for line in lines)
    assert first(whole).cause == "gpu-out-of-memory"


@pytest.mark.parametrize(
    "message", ["", "CUDA kernel errors might be reported later.\nCompile with TORCH_USE_CUDA_DSA\n"]
)
def test_a_kernel_that_crashed_comes_before_the_clean_up_that_failed(message):
    found = diagnosed(f"{FRAME}{CRASH}\n{message}{HANDLING}{FRAME}{NVCC}")
    assert [one.cause for one in found.diagnoses] == ["kernel-crash-unresolved", "nvcc-not-found"]
    assert found.diagnoses[1].reason.endswith("but it came while a crash of the GPU was handled")
    assert found.diagnoses[1].confidence is Confidence.LOW


def test_what_raised_another_one_with_its_cause_stays_first():
    cause = "\nThe above exception was the direct cause of the following exception:\n\n"
    found = diagnosed(f"{FRAME}{LOOKUP}\n{cause}{FRAME}RuntimeError: Engine core initialization failed.").diagnoses
    assert [(one.cause, one.confidence) for one in found] == [("engine-flashinfer-version-mismatch", Confidence.HIGH)]


def test_what_python_ignored_ended_nothing():
    ignored = first(f"Exception ignored in: <function Engine.__del__ at 0x7f>\n{FRAME}{NVCC}")
    assert ignored.confidence is Confidence.LOW
    assert ignored.reason.endswith("but Python ignored it, and went on")
    head = "Exception ignored in: <function Engine.__del__ at 0x7f>"
    assert first(f"{head}\n{FRAME}{CRASH}\n{NVCC}").cause == "nvcc-not-found"


def test_two_errors_of_which_none_is_a_lookup_stay_as_they_are():
    found = diagnosed(f"{FRAME}{NVCC}\n{HANDLING}{FRAME}{MEMORY}").diagnoses
    assert [one.confidence for one in found] == [Confidence.HIGH, Confidence.HIGH]


def test_the_exception_of_another_rank_is_not_the_one_that_was_handled():
    other = f"(Worker_TP0 pid=1) {LOOKUP}\n(Worker_TP1 pid=2) During handling of the above exception\n"
    assert first(f"{other}(Worker_TP1 pid=2) {MEMORY}").cause == "engine-flashinfer-version-mismatch"


GONE = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."
LOGGED = f"(EngineCore_DP0 pid=77) ERROR 11-20 02:11:22 [core.py:866] {NVCC}"
ECC = "(EngineCore_DP0 pid=90) ERROR 11-20 05:11:22 [core.py:866] CUDA error: uncorrectable ECC error encountered"
START = "INFO 11-20 02:11:02 [api_server.py:1839] vLLM API server version 0.13.0"


@pytest.mark.parametrize("between", [GONE, START, f"{GONE}\n{START}"])
def test_that_a_later_start_got_past_it_is_said(between):
    found = diagnosed(f"{START}\n{LOGGED}\n{between}\n{SERVING[0]}")
    serves = 4 + len(between.splitlines())
    assert found.answer.endswith(f"(confidence high); a server began to serve after it, in line {serves}")
    assert found.diagnoses[0].reason.endswith(f"; but a server began to serve after it, in line {serves}")


def test_what_ended_the_later_start_comes_first():
    found = diagnosed(f"{START}\n{LOGGED}\n{GONE}\n{SERVING[0]}\n{ECC}")
    assert [one.cause for one in found.diagnoses] == ["gpu-hardware-fault", "nvcc-not-found"]
    assert "began to serve" not in found.answer


NOT_PAST = {
    "no start serves": f"{START}\n{LOGGED}\n{GONE}",
    "the same start, which ended": f"{START}\n{SERVING[0]}\n{LOGGED}\n{GONE}",
    "what was served with before": f"{START}\n{SERVING[0]}\n{LOGGED}\n{GONE}\n{SERVING[0]}",
    "a server of another container": f"engine-1  | {NVCC}\nengine-1  | {GONE}\nproxy-1  | {SERVING[0]}",
    "it came again": f"{START}\n{LOGGED}\n{GONE}\n{SERVING[0]}\n{START}\n{LOGGED}\n{GONE}",
}


@pytest.mark.parametrize("name", NOT_PAST)
def test_what_no_start_got_past_is_not_said_to_be_over(name):
    found = diagnosed(NOT_PAST[name])
    assert (found.diagnoses[0].cause, found.diagnoses[0].confidence) == ("nvcc-not-found", Confidence.HIGH)
    assert "began to serve" not in f"{found.answer} {found.diagnoses[0].reason}"


TUNER = (
    "2026-01-02 03:04:05,678 - WARNING - autotuner.py:486 - flashinfer.jit: [Autotuner]: ",
    "[Autotuner]: ",  # where a collector took the rest away
)
SKIPPED = "Skipping tactic <MoERunner object at 0x7c70> 12, due to failure while profiling: {}"
FELL_BACK = "OOM detected, falling back to default tactic"
NO_SPACE = "OSError: [Errno 28] No space left on device: '/root/.cache/flashinfer/x'"


@pytest.mark.parametrize("head", TUNER)
@pytest.mark.parametrize("said", [SKIPPED.format("Error Internal"), FELL_BACK])
def test_what_the_tuner_leaves_out_is_never_the_first_cause(head, said):
    found = diagnosed(f"{head}{said}\n{NO_SPACE}")
    assert found.diagnoses[0].family != "autotune"
    assert {one.confidence.value for one in found.diagnoses if one.family == "autotune"} <= {"low"}
    alone = diagnosed(f"{head}{said}").diagnoses[0]
    assert (alone.family, alone.confidence) == ("autotune", "low")
    assert "the tuner went on with another kernel" in alone.reason


def test_a_crash_of_the_gpu_while_the_tuner_tries_kernels_stays_one():
    crash = SKIPPED.format("CUDA error: an illegal memory access was encountered")
    later = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    first = diagnosed(f"{TUNER[0]}{crash}\n{later}").diagnoses[0]
    assert first.rule == "tuning-breaks-the-gpu-context"
