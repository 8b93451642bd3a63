"""Words in a log that are of a user, or of another program, are no reason for an answer."""

from __future__ import annotations

import io

import pytest
from fault_cases import diagnosed

from fi_doctor.explaining.diagnose import Source, diagnose

REQUEST = "INFO 11-28 10:01:00 [logger.py:40] Received request c-1: prompt: "
OK = 'INFO:     10.0.0.1:55 - "POST /v1/completions HTTP/1.1" 200 OK'
NOTHING = "no error is told, and no sign of a fault that is known"
SENT = {
    "a question": f"{REQUEST}'why do I get CUDA out of memory?', params: SamplingParams(n=1)",
    "a shell": f"{REQUEST}'sh: g++: not found what now', params: SamplingParams(n=1)",
    "json": (
        'DEBUG 11-28 10:01:00 [api.py:7] {"messages": [{"role": "user", "content": "FlashInfer kernels are disabled: '
        'flashinfer-cubin is not installed"}]}'
    ),
    "lines": f"{REQUEST}what is\nAttributeError: module 'flashinfer.comm' has no attribute 'foo'\nCUDA toolkit: 12.4.1",
    "a tool": "DEBUG 11-28 10:01:00 [tool.py:7] tool said: RuntimeError: Could not find nvcc and default cuda_home=",
}


@pytest.mark.parametrize("name", SENT)
def test_what_users_write_is_neither_sign_nor_fact(name):
    found = diagnosed(f"{SENT[name]}\n{OK}")
    assert (found.answer, found.diagnoses, found.facts) == (NOTHING, (), ())


def test_an_error_after_a_request_is_the_only_one():
    found = diagnosed(f"{REQUEST}'c++: not found', params: SamplingParams(n=1)\n{OK}\nValueError: nobody knows")
    assert found.diagnoses == ()
    assert found.answer.startswith("I do not know")


@pytest.mark.parametrize("before", ["INFO 11-28 10:01:00 [core.py:9] Loading weights", SENT["a question"], OK])
def test_a_traceback_after_a_record_that_has_ended_counts(before):
    found = diagnosed(
        f"{before}\nTraceback (most recent call last):\nRuntimeError: Could not find nvcc and default cuda_home="
    )
    assert [one.cause for one in found.diagnoses] == ["nvcc-not-found"]


def test_the_text_of_a_request_goes_on_in_the_next_block_of_the_log():
    text = f"{REQUEST}what is\n" + "word " * 210_000 + "\nRuntimeError: Could not find nvcc and default cuda_home=\n"
    assert diagnose([Source("log", io.BytesIO(text.encode()))]).diagnoses == ()


def test_a_message_that_is_logged_at_info_counts_where_it_begins_the_line():
    message = "FlashInfer unavailable since nvcc was not found"
    prefix = "DEBUG 11-28 10:01:00 [flashinfer.py:62] "
    assert diagnosed(prefix + message).diagnoses
    assert not diagnosed(f"{prefix}{'tool said ' * 9}{message}").diagnoses
