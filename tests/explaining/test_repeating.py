"""What a log repeats is passed over, and what that changes of other lines is known, however often it is."""

from __future__ import annotations

import io

import pytest
from fault_cases import diagnosed

from fi_doctor.cli.explaining import code
from fi_doctor.explaining import stream

ANSWERED = '(APIServer pid=1) INFO:     10.0.0.3:33312 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
HANDLER = "(APIServer pid=1) ERROR 11-20 02:13:02 [serving_chat.py:256] "
TEMPLATE = f"{HANDLER}jinja2.exceptions.TemplateError: no such template\n"
ENGINE = "(EngineCore_DP0 pid=7) ERROR 11-20 05:11:22 [core.py:8] "
CRASH = f"""{ENGINE}EngineCore encountered a fatal error.
{ENGINE}Traceback (most recent call last):
{ENGINE}  File "/v/vllm/v1/engine/core.py", line 866, in run_engine_core
{ENGINE}  File "/v/site-packages/flashinfer/gemm/gemm_base.py", line 77, in mm_fp4
{ENGINE}ValueError: Unsupported backend for this shape
"""


@pytest.mark.parametrize("times", [0, 99, 100, 101, 3000])
def test_a_request_failed_whatever_the_number_of_answers_before_it(times):
    found = diagnosed(f"{ANSWERED * times}{TEMPLATE}{ANSWERED}")
    assert (code(found), found.diagnoses) == (0, ())
    assert f"a request failed or was refused, first in line {times + 2}" in found.answer
    assert code(diagnosed(f"{ANSWERED * times}{TEMPLATE}")) == 3


@pytest.mark.parametrize(("after", "expected"), [("b", 3), ("a", 0)])
def test_what_another_container_answers_is_told_apart_however_often(after, expected):
    both = f"vllm-a  | {ANSWERED}vllm-b  | {ANSWERED}" * 300
    log = f"{both}vllm-a  | {TEMPLATE}{f'vllm-{after}  | {ANSWERED}vllm-b  | {ANSWERED}' * 200}"
    assert code(diagnosed(log)) == expected


def longer(at, word):
    return f"{HANDLER}ValueError: This model's maximum context length is 8192 tokens, requested {at}{word}\n{ANSWERED}"


REQUESTS = {
    "one message": "".join(longer(at, "") for at in range(1000)),
    "sixty messages": "".join(longer(at, f" by {'x' * at}") for at in range(60)),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_crash_after_any_number_of_failed_requests_is_seen(name):
    found = diagnosed(REQUESTS[name] + CRASH)
    assert found.errors[-1].text == "ValueError: Unsupported backend for this shape"
    assert [one.rule for one in found.diagnoses] == ["gemm-shape-not-offered"]
    assert (code(diagnosed(REQUESTS[name])), diagnosed(REQUESTS[name]).diagnoses) == (0, ())


def test_of_messages_that_all_differ_the_last_is_an_error_too(monkeypatch):
    monkeypatch.setattr("fi_doctor.explaining.diagnose._MOST", 50)
    lines = "".join(f"{ENGINE}ValueError: {'y' * at}\n" for at in range(1, 90))
    assert diagnosed(lines + CRASH).errors[-1].text == "ValueError: Unsupported backend for this shape"


STARTS = "Application startup complete.\nvLLM API server version 0.13.0\n"
NVCC = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist\n"


@pytest.mark.parametrize(("last", "confidence"), [("Application startup complete.\n", "low"), ("", "high")])
def test_that_a_server_served_is_known_after_any_number_of_starts(last, confidence):
    [found] = diagnosed(f"{STARTS * 250}{NVCC}{last}").diagnoses
    assert found.confidence == confidence


def found(data, ways):
    return [
        (hit.number, hit.raw, hit.alike) for hit in stream.hits(io.BytesIO(data), [b"pin", b"Error: "], reading(), ways)
    ]


def test_more_lines_that_differ_than_are_counted_are_all_told(monkeypatch):
    monkeypatch.setattr(stream, "_MOST", 5)
    data = b"".join(b"%s Error: \n" % (b"x" * at) for at in range(40))
    assert [alike for *_, alike in found(data, stream.Ways(always=frozenset((b"Error: ",))))] == [1] * 40


def test_where_too_many_differ_those_are_alike_that_begin_so(monkeypatch):
    monkeypatch.setattr(stream, "_MOST", 600)
    data = b"".join(b"%s Error: %s\n" % (b"p" * 90, b"x" * at) for at in range(900)) + b"q" * 90 + b" Error: y\n"
    told = found(data, stream.Ways(always=frozenset((b"Error: ",))))
    assert len(told) < 600
    assert told[-1][0] == 901


def reading():
    return stream.Reading()


@pytest.mark.parametrize("block", [1 << 12, 1 << 20])
def test_lines_that_are_passed_over_are_told_once_more_in_their_place(block, monkeypatch):
    monkeypatch.setattr(stream, "_BLOCK", block)
    data = b"step 7 pin\n" * 2500 + b"other Error: \n" + b"step 8 pin\n" * 30
    told = found(data, stream.Ways(last=frozenset((b"pin",))))
    at = told.index((2501, b"other Error: ", 1))
    assert (told[at - 1], told[-1]) == ((2500, b"step 7 pin", 0), (2531, b"step 8 pin", 0))
    assert [number for number, *_ in told] == sorted(number for number, *_ in told)
    assert all(alike for *_, alike in found(data, stream.Ways()))


def test_what_errors_are_told_with_is_looked_for_to_the_end(monkeypatch):
    monkeypatch.setattr(stream, "_LOOK", 300)
    data = b"step 7 Error: x\n" * 2000 + b"another Error: y\n"
    always = stream.Ways(always=frozenset((b"Error: ",)))
    assert found(data, always)[-1] == (2001, b"another Error: y", 1)
    assert found(data, stream.Ways())[-1][1] != b"another Error: y"
    names = b"".join(b"Error: of %032x\n" % (at * 0x9E3779B97F4A7C15) for at in range(400))
    monkeypatch.setattr(stream, "_MANY", 50)
    assert len(found(names, always)) < 200  # names of requests are alike where too many differ
