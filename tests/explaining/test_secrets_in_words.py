"""How secrets stand in the free text of logs, and the words of prose that stand there, too."""

from __future__ import annotations

import time

import pytest

from fi_doctor.model.secrets import HIDDEN, hidden, looks_secret

SEED = "Pl4inSecr3tX9"
LONG = "AbC123dEf456GhI789"
HELD = (
    *(f"--api_key {SEED}", f"--hf_token={SEED}", f"password {SEED}", f"token: {SEED}", f"'token': '{SEED}'"),
    *(f"'Authorization': 'Basic {SEED}'", f"Authorization: {SEED}", f"Authorization: Basic {SEED}"),
    *(f"proxy-authorization: Digest {SEED}", f'\\"Authorization\\": \\"Bearer {SEED}\\"'),
    *(f"Cookie: session={SEED}", f"Cookie: a=1; session={SEED}; b={SEED}", f"'Set-Cookie': 'session={SEED}; Path=/'"),
    *(f"AccountName=x;AccountKey={SEED}==;EndpointSuffix=core", f"Driver=x;uid=a;pwd={SEED};", f"auth='{SEED}'"),
    *(f"api_keys=['{SEED}']", f"api_keys=['x1234', '{SEED}']", f"private_key={SEED}", f"signing_key={SEED}"),
    *(f"creds={SEED}", f"cookie={SEED}", f"X-Goog-Signature={SEED}", f"x-goog-credential={SEED}"),
    *(f"hf-{LONG}", f"my_hf_{LONG}", f"my_sk-{LONG}", "my_AKIAABCDEFGHIJ123456", f"x_glpat-{LONG}"),
    *(f"- name: HF_TOKEN\n  value: {SEED}", f'{{"name": "VLLM_API_KEY", "value": "{SEED}"}}'),
)
PROSE = (
    *("token count 5", "password policy", "the key is wrong", "token: 151643", "token: <|im_end|>", "max_token: 4096"),
    *(
        "auth=True",
        "creds=None",
        "cookie=False",
        "api_key=None",
        "api_keys=[]",
        "password: required",
        "cookie: disabled",
    ),
    *("private_key=/etc/ssl/key.pem", "signing_key=./k.pem", "pwd=/home/x/run", "PWD=/root", "num_tokens=8192"),
    *("password sha256 hash", "password required for 2 hosts", "authorization failed with code 401", "pass=1"),
    *("in load_hf_checkpointloader", "hf-transformers-loader", "use_npm_packageinstaller", "stop token: im_end"),
    *("- name: MODEL\n  value: abcdef1", "basic authentication", "tokenizer: Qwen2Tokenizer", "key_cache=tensor1"),
)


@pytest.mark.parametrize("text", HELD)
def test_it_is_hidden_and_what_stands_around_it_is_not(text):
    shown = hidden(f"before {text} after")
    assert not any(part in shown for part in (SEED, LONG, "ABCDEFGHIJ"))
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert HIDDEN in shown


@pytest.mark.parametrize("text", PROSE)
def test_words_numbers_and_paths_are_shown(text):
    assert hidden(f"before {text} after") == f"before {text} after"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((f"my_hf_{LONG}", True), ("x_AKIAABCDEFGHIJ123456", True), (f"a;AccountKey={SEED}==", True)),
        *((f"uid=a;pwd={SEED}", True), (f"X-Goog-Signature={SEED}", True), (f"Cookie: s={SEED}", True)),
        *(("pwd=/home/x", False), ("cookie policy", False), ("private key", False), ("signing_key=/etc/k", False)),
    ],
)
def test_a_value_that_holds_one_is_a_secret(value, expected):
    assert looks_secret(value) is expected


@pytest.mark.parametrize("part", ["token: ", "cookie: a=1; ", "name: A_TOKEN ", "_hf_", "authorization: ", "'cookie"])
def test_it_takes_time_linear_in_the_length_of_a_line(part):
    began = time.thread_time()
    hidden(part * (50_000 // len(part)))
    assert time.thread_time() - began < 0.5
