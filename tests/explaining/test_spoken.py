"""What users ask and documents say in a free-form log is no sign; what a program says of itself stays one."""

from __future__ import annotations

import json

import pytest
from fault_cases import diagnosed

NVCC = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
TIME = "2025-11-28 10:01:00,123"
NOTHING = "no error is told, and no sign of a fault that is known"
SPOKEN = {
    "vllm's format": f"INFO 11-28 10:01:00 [chat.py:40] user asked: why do I get {MEMORY}?",
    "basicConfig": f"INFO:root:user asked: why do I get {MEMORY}?",
    "a retrieved chunk": f'{TIME} INFO rag.retriever: retrieved chunk "{NVCC}"',
    "chunks with numbers": f'{TIME} INFO rag: chunk[3]="{MEMORY}" score=0.4',
    "a prompt": f"DEBUG:myapp:prompt=How to mend {NVCC}",
    "a prompt in f-strings' quotes": f"DEBUG:myapp:prompt='{MEMORY}' max_tokens=5",
    "no level, with a time": f"[2025-11-28 10:01:00] question: {NVCC}",
    "no level at all": f"User: {NVCC}",
    "a print": f"question: {MEMORY}",
    "loguru": f"2025-11-28 10:01:00.123 | INFO     | app:main:10 - query: {MEMORY}",
    "log4j": f"10:01:00.123 [main] INFO  com.x.Chat - user question: {MEMORY}",
    "structlog": f'2025-11-28T10:01:00Z [info     ] completion                     answer="{MEMORY}"',
    "klog": f"I1128 10:01:00.123456       1 chat.go:10] content: {MEMORY}",
    "logfmt": f'time="2025-11-28T10:01:00Z" level=info msg="got it" prompt="{MEMORY}"',
    "JSON": json.dumps({"time": "x", "level": "INFO", "logger": "app", "message": f"completion text: {MEMORY}"}),
    "JSON of a collector": json.dumps({"severity": "INFO", "textPayload": f"user message: {MEMORY}"}),
    "a field of JSON": json.dumps({"ts": 1, "level": "info", "msg": "request", "prompt": NVCC}),
    "an apostrophe within": f"INFO:app:prompt: 'it doesn't work: {NVCC}', tokens: 5",
    "a second quotation": f'INFO:app:prompt="a" answer="{NVCC}"',
    "a field that is quoted": f'INFO:app:retrieved [doc 3] text="{NVCC}"',
    "a context": f"INFO:rag:context: {NVCC}",
    "a block of YAML": f"INFO:app:prompt: |\n  I get\n\n    {NVCC}\n  why?\nINFO:app:ok",
    "a block of a file": f"messages:\n  - role: user\n    content: >-\n      Why {NVCC}",
    "a block without a level": f"system_prompt: |\n  {MEMORY}",
    "vllm's examples": f'Prompt:    "Why {NVCC}"\nOutput:    " x"',
    "parts of an answer": json.dumps({"choices": [{"delta": {"content": NVCC}}]}),
    "lines in quotation marks": f'INFO:app:user asked: "I see\nTraceback (most recent call)\n{NVCC}"\nINFO:app:ok',
}


@pytest.mark.parametrize("name", SPOKEN)
def test_what_is_said_is_no_sign(name):
    found = diagnosed(SPOKEN[name])
    assert (found.answer, found.diagnoses, found.errors) == (NOTHING, (), ())


def test_what_is_said_tells_no_fact():
    assert diagnosed("INFO:app:user asked: does flashinfer-python==0.2.5 do with CUDA toolkit: 11.8").facts == ()


MEANT = {
    "a logger's error": f"ERROR:app:user asked: {NVCC}",
    "a logger's error after its time": f"{TIME} ERROR app: user asked: {NVCC}",
    "an error of JSON": json.dumps({"level": "error", "logger": "app", "message": f"prompt: {NVCC}"}),
    "an exception beside it": json.dumps({"level": "error", "msg": "request failed", "exc_info": f"Traceback\n{NVCC}"}),
    "a collector's word": json.dumps({"severity": "INFO", "textPayload": NVCC}),
    "docker": json.dumps({"log": f"{NVCC}\n", "stream": "stderr", "time": "2025-11-28T10:01:00Z"}),
    "after the words": f'INFO:app:prompt="hello" RuntimeError of it: {NVCC}',
    "before the words": f'INFO:app:{NVCC} prompt="hello"',
    "an answer that is an error": f"INFO:client:message: error: {NVCC}",
    "a failure of its own": f"INFO:worker:failed on chunk: {NVCC}",
    "a chunk that is worked on": f"INFO:worker:chunk 3: {NVCC}",
    "a traceback after a question": f"INFO:app:user asked: 'tis so?\nTraceback (most recent call last):\n{NVCC}",
    "a traceback after an answer": f'INFO:app:prompt="one\ntwo"\nTraceback (most recent call last):\n{NVCC}',
    "an error after a quotation that is open": f'INFO:app:prompt="one\ntwo\nERROR:app:{NVCC}',
    "a line of its own": f"{TIME} INFO builder: {NVCC}",
    "a message of kubectl": f"state:\n  terminated:\n    message: |\n      {NVCC}",
    "after a block": f"prompt: |\n  hello\nTraceback (most recent call last):\n  {NVCC}",
    "beside a block": f"  prompt: |\n    hello\n  {NVCC}",
    "a source line": f'  File "/v/app.py", line 3, in ask\n    prompt = "x"\n{NVCC}',
}


@pytest.mark.parametrize("name", MEANT)
def test_what_a_program_says_of_itself_counts(name):
    assert [one.cause for one in diagnosed(MEANT[name]).diagnoses] == ["nvcc-not-found"]


MAYBE = {
    "another language": f"INFO:app:Вопрос: {NVCC}",
    "a result": f"INFO:rag:top result: {NVCC}",
    "the output of a tool": f"INFO:builder:stderr: {NVCC}",
    "two signs in one line": f"2025-11-28 10:01:00 | INFO | stdout | user: why {MEMORY}",
    "a comment of a script": f"# {NVCC}, once",
    "what a script prints": f"+ echo '{NVCC}'",
    "a test that passed": f"tests/test_x.py::test_raises[{NVCC}] PASSED [ 12%]",
    "a question before it": f"INFO:app:user asked:\n{NVCC}\nINFO:app:done",
}


@pytest.mark.parametrize("name", MAYBE)
def test_what_is_only_called_information_is_hardly_sure(name):
    assert [one.confidence.value for one in diagnosed(MAYBE[name]).diagnoses] == ["low"]


SURE = {
    "an error": f"ERROR:app:Вопрос: {NVCC}",
    "no level": f"Вопрос: {NVCC}",
    "after a record": f"INFO:app:user asked: why?\n{NVCC}",
    "a collector's word": json.dumps({"severity": "INFO", "textPayload": NVCC}),
    "a title": f"### {NVCC}",
    "after a level of another line": f"INFO:app:done\n{NVCC}",
}


@pytest.mark.parametrize("name", SURE)
def test_what_is_not_is_as_sure_as_ever(name):
    assert [one.confidence.value for one in diagnosed(SURE[name]).diagnoses] == ["high"]


def test_each_line_of_a_record_of_json_is_one():
    record = json.dumps({"level": "error", "message": "it broke", "exc_info": f"Traceback\n  File x\n{NVCC}"})
    found = diagnosed(record)
    assert [one.text for one in found.diagnoses[0].matched] == [NVCC]
    assert {error.line for error in found.errors} == {2}
