"""Requests that failed while the server answers others, and Ctrl-C, are no fault; what ends a server stays one."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

from fi_doctor.cli.explaining import code

HANDLER = "(APIServer pid=1) ERROR 11-20 02:13:02 [serving_chat.py:256] "
REFUSED = f"{HANDLER}ValueError: This model's maximum context length is 4096 tokens."
ANSWERED = '(APIServer pid=1) INFO:     10.0.0.3:33312 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
PARSER = f"{HANDLER}Error in tool parser: json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
NEWER = "(APIServer pid=1) ERROR 11-20 02:13:02 [entrypoints/openai/chat_completion/serving.py:256] ValueError: no"
GONE = "(APIServer pid=1) ERROR 11-20 05:00:01 [async_llm.py:500] Request chatcmpl-1 aborted: client disconnected"
STOPPED = 'Traceback (most recent call last):\n  File "/v/vllm/v1/engine/core.py", line 900, in run\nKeyboardInterrupt'
LAST = "(APIServer pid=1) INFO:     Application shutdown complete."


@pytest.mark.parametrize("error", [REFUSED, PARSER, NEWER, GONE])
def test_a_request_that_failed_while_others_were_answered_is_no_fault(error):
    found = diagnosed(f"{error}\n{ANSWERED}")
    assert ([one.kind for one in found.errors], found.diagnoses, code(found)) == (["request"], (), 0)
    assert found.answer == (
        "no fault is told: a request failed or was refused, first in line 2, and others were answered then"
    )


OPEN = {
    "no answer after it": f"{ANSWERED}\n{REFUSED}",
    "an answer of another server": f"vllm-1  | {REFUSED}\nvllm-2  | {ANSWERED}",
    "the same error of the engine": f"{REFUSED}\n{ANSWERED}\nERROR 11-20 02:14:02 [core.py:9] ValueError: This model's"
    " maximum context length is 4096 tokens.",
    "an error of the engine": f"ERROR 11-20 02:13:02 [core.py:866] ValueError: no such thing\n{ANSWERED}",
    "a crash of the GPU": f"{HANDLER}RuntimeError: CUDA error: no such thing\n{ANSWERED}",
}


@pytest.mark.parametrize("name", OPEN)
def test_what_no_answer_of_the_same_server_follows_stays_an_error(name):
    found = diagnosed(OPEN[name])
    assert found.diagnoses or code(found) == 3
    assert not found.answer.startswith("no ")


@pytest.mark.parametrize("log", [f"{STOPPED}\n{LAST}", f"{STOPPED}\nasyncio.exceptions.CancelledError: Cancelled"])
def test_what_was_stopped_by_hand_is_no_fault(log):
    found = diagnosed(log)
    assert (found.diagnoses, code(found)) == ((), 0)
    assert found.answer == "no fault is told: it was stopped by SIGINT, as Ctrl-C sends it, in line 4"


def test_an_error_before_it_and_a_traceback_that_is_cut_off_stay():
    assert code(diagnosed(f"ValueError: something else\n{STOPPED}\n{LAST}")) == 3
    assert code(diagnosed(STOPPED.replace("KeyboardInterrupt", ""))) == 3
    assert code(diagnosed(f"{STOPPED}\n(EngineCore_DP0 pid=7) ERROR 11-20 05:11:22 [core.py:8] no such thing")) == 3
