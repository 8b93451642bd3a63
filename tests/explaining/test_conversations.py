"""Chats, transcripts and sentences about an error: never a sure sign; what a program tells beside them stays one."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

from fi_doctor.model import Confidence

NVCC = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
RAISED = '  File "/v/flashinfer/jit/cpp_ext.py", line 61, in get_cuda_path\n    raise\n'
TRACEBACK = f"Traceback (most recent call last):\n{RAISED}{NVCC}"
SAID = {
    "an assistant": f"Assistant: You get that since {NVCC}. Install a toolkit.",
    "an answer": f"A: {NVCC} means that there is none",
    "a bot": f"Bot: {NVCC}",
    "a name of a model": f"GPT-4: {MEMORY}",
    "somebody": f"You: {NVCC}",
    "a thought of a model": f"<think>{NVCC}</think>",
    "a line of a data set": f'{{"text": "{NVCC}"}}',
    "an output of vllm": f"RequestOutput(request_id=0, outputs=[CompletionOutput(index=0, text='{NVCC}')])",
    "a heading": f"### Human: {MEMORY}\n### Assistant: take less",
    "a prompt of a chat": f"Chatbot> {NVCC}",
    "tokens of a chat": f"<|im_start|>user\nI get {NVCC}<|im_end|>\n<|im_start|>assistant",
    "a turn in one line": f"<|im_start|>user {NVCC}",
    "tokens of another model": f"<|start_header_id|>user<|end_header_id|>\n\n{NVCC}<|eot_id|>",
    "instructions": f"[INST] {NVCC} [/INST] take a toolkit",
    "a quotation in a quotation": f"Prompt: 'a 'b' {NVCC}' c'",
    "quotations with an end": f"Prompt: 'how do I 'mend' {NVCC}', Generated text: 'no'",
    "the other marks": f'Prompt: "a "b" {MEMORY}" c"',
}
PERHAPS = {
    "a traceback after a question": f"User: I get this error:\n{TRACEBACK}\nAssistant: install nvcc",
    "lines of an answer": f"Assistant: The error you see is\n{NVCC}\nwhich means that there is none",
    "a turn with its token before": f"<|im_start|>user\n{NVCC}\n<|im_end|>",
    "a turn in bold letters": f"**User:**\n{NVCC}",
    "a turn under a heading": f"### Assistant\n{NVCC}",
    "a sentence of a user": f"alice: I get {NVCC}",
    "a sentence to one": f"If you see {NVCC} then install a toolkit.",
    "a sentence about a message": f"Sure! The message '{MEMORY}' means that none is left.",
    "a sentence about an error": f"The error {MEMORY} means that none is left.",
    "a mail": f"bob wrote:\n{NVCC}",
    "a thought in lines": f"<think>\n{NVCC}\n</think>",
    "an example": f"Common errors include {NVCC}",
    "a response": f"Response: {NVCC}",
    "a role": f"[user] {NVCC}",
    "what is typed": f">>> {NVCC}",
    "a question": f"[10:01] bob: how do I mend {NVCC}",
}
OWN = {
    "a traceback": TRACEBACK,
    "after records": f"User: I have a question\nINFO 11-28 10:01:00 [chat.py:40] ok\n{TRACEBACK}",
    "in a fence": f"User: I get this error\n```\n{TRACEBACK}\n```",
    "an object that tells an error": f'{{"error": "{NVCC}"}}',
    "an answer with an error beside it": f'{{"text": "", "finish": {{"type": "abort", "message": "{NVCC}"}}}}',
    "an output of a command": f"Output: {NVCC}",
    "a worker": f"worker: {NVCC}",
    "a failure": f"Worker failed with error {NVCC}",
    "a key that is a name": f"User: root\n{TRACEBACK}",
    "a token that lacks": f"KeyError: '<|im_end|>'\n{NVCC}",
    "a host that is called like a model": f"gpt-oss: {NVCC}",
    "a key of a file": f"services:\n  vllm:\n    user:\n{TRACEBACK}",
    "the name of a user": f"User: root (0)\n{TRACEBACK}",
    "a quotation that ends": f"Prompt: 'hello' failed: {NVCC}",
    "a message to the user": f"You are about to compile: {NVCC}",
}


TITLES = [
    f"* Fix {NVCC} by @foo in #12",
    f"3f2a9c1 fix(flashinfer): {NVCC}",
    f"- [Bugfix] Fix {NVCC} (#2112)",
]


@pytest.mark.parametrize("title", TITLES)
def test_titles_of_changes_are_not_sure(title):
    assert all(one.confidence.value == "low" for one in diagnosed(title).diagnoses)


@pytest.mark.parametrize("name", SAID)
def test_words_of_somebody_are_no_sign(name):
    found = diagnosed(SAID[name])
    assert (found.diagnoses, found.errors) == ((), ())


@pytest.mark.parametrize("name", PERHAPS)
def test_what_may_be_words_of_somebody_is_hardly_sure(name):
    assert [one.confidence for one in diagnosed(PERHAPS[name]).diagnoses] == [Confidence.LOW]


@pytest.mark.parametrize("name", OWN)
def test_what_a_program_says_beside_a_conversation_is_sure(name):
    first = diagnosed(OWN[name]).diagnoses[0]
    assert (first.cause, first.confidence) == ("nvcc-not-found", Confidence.HIGH)


def test_an_error_that_names_a_token_of_a_chat_is_told():
    assert [error.line for error in diagnosed("KeyError: '<|im_end|>'").errors] == [2]


SPOKEN = "User: tell me about page tables\nAssistant: A page table maps virtual pages to\n"


def test_a_program_that_crashes_while_a_model_speaks_is_likely_told():
    first = diagnosed(f"{SPOKEN}{TRACEBACK}").diagnoses[0]
    assert (first.cause, first.confidence) == ("nvcc-not-found", Confidence.MEDIUM)


QUOTING = {
    "a turn after it": f"{SPOKEN}{TRACEBACK}\nUser: and what comes then?",
    "words before it": f"User: I get an error\nAssistant: The error is\n{TRACEBACK}",
    "a colon before it": f"User: what happens then?\nAssistant: Then it shows:\n{TRACEBACK}",
    "of a user": f"User: I start it and\n{TRACEBACK}",
    "in a fence": f"{SPOKEN}```\n{TRACEBACK}\n```",
    "no traceback": f"{SPOKEN}{NVCC}",
}


@pytest.mark.parametrize("name", QUOTING)
def test_a_traceback_that_a_speaker_may_quote_is_hardly_sure(name):
    assert {one.confidence for one in diagnosed(QUOTING[name]).diagnoses} == {Confidence.LOW}
