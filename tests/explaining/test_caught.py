"""What was logged as an error, caught and gone on from is no cause of a crash once a server served and answered."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

from fi_doctor.cli.explaining import code
from fi_doctor.model import Confidence

START = "(APIServer pid=1) INFO 11-20 02:11:02 [api_server.py:1839] vLLM API server version 0.13.0"
SERVES = "(APIServer pid=1) INFO:     Application startup complete."
ANSWERED = '(APIServer pid=1) INFO:     10.0.0.3:33312 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
GONE = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."
ENGINE = "(EngineCore_DP0 pid=7) ERROR 11-20 02:11:03 "
CAUGHT = {
    "another backend": f"{ENGINE}[fa_utils.py:72] Cannot use FA version 2 is not supported due to FA2 is only "
    "supported on devices with compute capability >= 8",
    "one more try": f"{ENGINE}[repo_utils.py:47] Error retrieving file list: HTTPSConnectionPool("
    "host='huggingface.co', port=443): Max retries exceeded with url: /api/models/x, retrying 1 of 2",
    "the port of an exporter": f"{ENGINE}[exporter.py:9] metrics are not exported: [Errno 98] Address already in use",
    "a probe": f"{ENGINE}[selector.py:9] probe failed: RuntimeError: Unsupported head_dim 80; trying next backend",
}
PIP = (
    "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.\n"
    "vllm 0.11.1 requires flashinfer-python==0.5.2, but you have flashinfer-python 0.5.3 which is incompatible."
)
LOGS = {name: f"{START}\n{line}" for name, line in CAUGHT.items()} | {"pip": f"{PIP}\n{START}"}
CRASH = "ValueError: nobody knows this one"


@pytest.mark.parametrize("name", LOGS)
def test_after_it_a_server_answered_and_nothing_is_at_fault(name):
    found = diagnosed(f"{LOGS[name]}\n{SERVES}\n{ANSWERED}")
    assert (found.diagnoses, code(found)) == ((), 0)
    line = 2 if name == "pip" else 3
    assert found.answer == (
        f"no fault is told: an error, first in line {line}, ended nothing: a server served after it, and answered"
    )


@pytest.mark.parametrize("name", LOGS)
def test_where_a_server_served_it_is_hardly_a_cause_and_else_it_may_be(name):
    assert [one.confidence for one in diagnosed(f"{LOGS[name]}\n{SERVES}").diagnoses] == [Confidence.LOW]
    assert diagnosed(LOGS[name]).diagnoses[0].confidence is Confidence.HIGH
    assert diagnosed(f"{LOGS[name]}\n{SERVES}\n{CRASH}").diagnoses[0].confidence is Confidence.LOW


@pytest.mark.parametrize("name", LOGS)
def test_of_a_later_crash_it_is_no_cause(name):
    found = diagnosed(f"{LOGS[name]}\n{SERVES}\n{ANSWERED}\n{CRASH}")
    assert (found.diagnoses, code(found)) == ((), 3)
    assert f"the first error, in line {found.errors[-1].line}" in found.answer


@pytest.mark.parametrize("name", CAUGHT)
def test_what_ended_a_start_or_came_after_it_stays_a_cause(name):
    for log in (f"{LOGS[name]}\n{GONE}\n{SERVES}\n{ANSWERED}", f"{START}\n{SERVES}\n{CAUGHT[name]}\n{ANSWERED}"):
        assert diagnosed(log).diagnoses[0].confidence is Confidence.HIGH
    again = diagnosed(f"{LOGS[name]}\n{START}\n{SERVES}\n{ANSWERED}")
    assert again.diagnoses[0].confidence is Confidence.HIGH
    assert "a server began to serve after it" in again.answer


def test_a_crash_of_the_gpu_stays_a_cause_whoever_answers_after_it():
    crash = f"{ENGINE}[core.py:8] RuntimeError: CUDA error: an illegal memory access was encountered"
    found = diagnosed(f"{START}\n{crash}\n{SERVES}\n{ANSWERED}")
    assert {one.confidence for one in found.diagnoses} == {Confidence.LOW}
    assert [one.kind for one in found.errors] != ["overcome"]


def test_what_stands_elsewhere_too_is_an_error():
    line = CAUGHT["another backend"].replace("Cannot use", "Cannot at all use")
    found = diagnosed(f"{START}\n{CRASH}\n{SERVES}\n{ANSWERED}\n{line}\n{CRASH}")
    assert "overcome" not in [one.kind for one in found.errors if one.text == CRASH]


HANDLER = "(APIServer pid=1) ERROR 11-20 02:13:02 [serving_chat.py:256] "
OF_A_REQUEST = f"{HANDLER}RuntimeError: The size of tensor a (3) must match the size of tensor b (4)"
OF_THE_ENGINE = f"{ENGINE}[core.py:8] RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)"


@pytest.mark.parametrize(
    ("between", "confidence"), [(ANSWERED, Confidence.LOW), (ANSWERED.replace(" 200 ", " 500 "), Confidence.MEDIUM)]
)
def test_the_error_of_a_request_after_which_others_were_answered_supports_nothing_else(between, confidence):
    [found] = diagnosed(f"{OF_A_REQUEST}\n{between}\n{OF_THE_ENGINE}").diagnoses
    assert (found.rule, found.confidence) == ("shapes-or-types-do-not-fit", confidence)


@pytest.mark.parametrize(
    ("serves", "confidence"), [(SERVES, Confidence.LOW), ("INFO: nothing serves", Confidence.MEDIUM)]
)
def test_what_a_server_got_over_supports_nothing_else(serves, confidence):
    caught = OF_A_REQUEST.replace("serving_chat", "selector")
    [found] = diagnosed(f"{caught}\n{serves}\n{OF_THE_ENGINE}").diagnoses
    assert found.confidence is confidence
