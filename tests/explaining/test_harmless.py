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


SGLANG_ANSWERED = '[2026-11-20 02:13:05] INFO:     10.0.0.3:33312 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
RAY = "(ServeReplica:default:LLMServer pid=812, ip=10.0.0.2) "
RAY_LINE = f"{RAY}%s 2026-11-20 02:13:0%d,123 default_LLMServer 6kzq1a2b 3f2a-9c -- %s"
RAY_ANSWERED = RAY_LINE % ("INFO", 5, "POST /v1/chat/completions 200 8.2ms")
SGLANG_TRACEBACK = (
    "[2026-11-20 02:13:02] Error in request: no such template\nTraceback (most recent call last):\n"
    '  File "/v/sglang/srt/entrypoints/openai/serving_base.py", line 120, in handle_request\n'
    "jinja2.exceptions.TemplateError: no such template"
)
TENSORRT = (
    "[11/20/2026-02:13:02] [TRT-LLM] [E] Traceback (most recent call last):\n"
    '  File "/v/lib/python3.12/site-packages/tensorrt_llm/serve/openai_server.py", line 812, in openai_chat\n'
    "    promise = self.generator.generate_async(\n"
    '  File "/v/lib/python3.12/site-packages/tensorrt_llm/llmapi/llm.py", line 500, in _check_arguments\n'
    "    raise ValueError(\n"
    "%s\n"
)
LONGER = "The prompt length (9000) should not exceed max_num_tokens (8192)"
# What each server's handler says of one request, with what it says of another one that it answered.
HANDLED = {
    "sglang": ("[2026-11-20 02:13:02] [http_server] Error: The input (9000 tokens) is longer than the model", 1),
    "sglang-traceback": (SGLANG_TRACEBACK, 1),
    "sglang-parser": ("[2026-11-20 02:13:02 TP0] Tool call parsing error: Expecting value: line 1", 1),
    "ray": (
        f"{RAY_LINE % ('ERROR', 2, 'Request failed.')}\n{RAY}Traceback (most recent call last):\n{RAY}ValueError: no",
        1,
    ),
    "tensorrt-llm": (TENSORRT % f"ValueError: {LONGER}", 6),
}
ANSWERS = dict.fromkeys(HANDLED, SGLANG_ANSWERED) | {"ray": RAY_ANSWERED, "tensorrt-llm": ANSWERED}


@pytest.mark.parametrize("name", HANDLED)
def test_a_request_that_a_handler_of_another_server_tells_is_no_fault_once_another_is_answered(name):
    log, line = HANDLED[name]
    answered = ANSWERS[name]
    found = diagnosed(f"{log}\n{answered}")
    assert ({one.kind for one in found.errors}, found.diagnoses, code(found)) == ({"request"}, (), 0)
    assert f"a request failed or was refused, first in line {line + 1}, and others" in found.answer
    assert not diagnosed(f"{answered}\n{log}").answer.startswith("no fault is told")


@pytest.mark.parametrize(
    "log",
    [
        f"{TENSORRT % 'tensorrt_llm.executor.CppExecutorError: the executor ended'}{ANSWERED}",
        f"{TENSORRT % 'RuntimeError: CUDA error: no such thing'}{ANSWERED}",
        f"[2026-11-20 02:13:02] Error in request: CUDA error: no such thing\n{SGLANG_ANSWERED}",
        f"[2026-11-20 02:13:02 TP0] Scheduler: no\nValueError: no such thing\n{SGLANG_ANSWERED}",
        f"{RAY_LINE % ('ERROR', 2, 'Replica failed.')}\n{RAY}ValueError: no\n{RAY_ANSWERED}",
        f"{RAY_LINE % ('ERROR', 2, 'Request failed.')}\n{RAY}ValueError: no\n{RAY_ANSWERED.replace(' 200 ', ' 500 ')}",
    ],
)
def test_what_ends_such_a_server_and_what_is_of_no_handler_stays_an_error(log):
    found = diagnosed(log)
    assert found.diagnoses or code(found) == 3


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
