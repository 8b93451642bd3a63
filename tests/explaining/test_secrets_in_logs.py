"""What a log tells holds no secret, whoever asks: names and values of facts are apart, and lines are shown cut."""

from __future__ import annotations

import io

import msgspec
import pytest

from fi_doctor.explaining.diagnose import Source, diagnose
from fi_doctor.model.secrets import HIDDEN

SEED = "plainsecret9"
TOLD = {
    "hf_token": f"INFO non-default args: {{'model': 'm', 'hf_token': '{SEED}', 'tp': 2}}",
    "admin_api_key": f"server_args=ServerArgs(model_path='m', admin_api_key='{SEED}', tp_size=2)",
    "api_key": f"vllm serve m --api-key {SEED}",
    "VLLM_API_KEY": f"ENV A=1 VLLM_API_KEY={SEED}",
    "VLLM_S3_SECRET_ACCESS_KEY": f"export VLLM_S3_SECRET_ACCESS_KEY={SEED}",
    "SGLANG_AUTH": f"SGLANG_AUTH={SEED}",
    "VLLM_DB_PWD": f"VLLM_DB_PWD={SEED}",
    "NCCL_COOKIE": f"NCCL_COOKIE={SEED}",
    "VLLM_CREDS": f"VLLM_CREDS='{SEED}'",
    "FLASHINFER_AUTH": f"FLASHINFER_AUTH: {SEED}",
    "VLLM_PROXY": f"VLLM_PROXY=http://user:{SEED},x@proxy.example:3128",  # a comma ends what is taken for the value
}


IN_WORDS = [f"db_pwd={SEED}", f"redis-pass={SEED}", f"session_cookie={SEED}", f"aws_credentials={SEED}"]


@pytest.mark.parametrize("said", IN_WORDS)
def test_what_a_small_name_without_quotes_makes_a_secret_is_hidden(said):
    told = found(f"RuntimeError: Could not find nvcc and default cuda_home=/x; {said} was refused\n")
    assert SEED not in msgspec.json.encode(told).decode()


@pytest.mark.parametrize("said", ["two_pass=True", "max_pass=3", "by-pass lane", "a_pass = quick"])
def test_other_words_of_that_kind_are_shown(said):
    told = found(f"RuntimeError: Could not find nvcc and default cuda_home=/x; {said}\n")
    assert said in told.errors[0].text


def found(text, *, is_environment=False):
    return diagnose([Source("log", io.BytesIO(text.encode()), is_environment), Source("more", io.BytesIO())])


@pytest.mark.parametrize("is_environment", [False, True], ids=["log", "env-file"])
@pytest.mark.parametrize("key", TOLD)
def test_a_fact_has_no_value_that_its_name_makes_a_secret(key, is_environment):
    told = found(TOLD[key], is_environment=is_environment)
    assert [fact.value for fact in told.facts if fact.key == key] == [HIDDEN]
    assert SEED not in msgspec.json.encode(told).decode()


@pytest.mark.parametrize(
    "text", ["VLLM_API_KEY=arch=sm90,x", "-----BEGIN PRIVATE KEY----- compute capability 9.0 vllm==0.11.0"]
)
def test_what_stands_in_a_secret_is_no_number_and_no_release(text):
    lines = f"{text}\nRuntimeError: Could not find nvcc and default cuda_home=/x\n"
    assert {fact.name for fact in found(lines).facts} <= {"env"}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("VLLM_PROXY=http://proxy.example:3128", "VLLM_PROXY", "http://proxy.example:3128"),
        ("vllm serve m --max-num-batched-tokens 8192", "max_num_batched_tokens", "8192"),
        ("non-default args: {'tokenizer': 'a/b', 'api_key': 'x'}", "tokenizer", "a/b"),
        ("VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE=163840", "VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE", "163840"),
    ],
)
def test_what_is_none_is_told(text, key, value):
    assert [fact.value for fact in found(text).facts if fact.key == key] == [value]


LINES = {
    "decides": "RuntimeError: Could not find nvcc and default cuda_home=/x with ",
    "unknown": "ValueError: nobody knows this one: ",
    "cut": f"ValueError: nobody knows {'x' * 150} ",
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("secret", [f"VLLM_DB_PWD={SEED}", f"http://user:{SEED * 40}@host", f"--api-key {SEED}"])
def test_lines_that_are_shown_hold_none_wherever_they_are_cut(name, secret):
    told = found(f"{LINES[name]}{secret}\n")
    assert told.errors
    assert SEED[:6] not in msgspec.json.encode(told).decode()


@pytest.mark.parametrize("is_before", [True, False])
def test_a_line_that_is_too_long_is_cut_beside_one(is_before):
    secret, sign = f"http://user:{SEED}@host", "RuntimeError: Could not find nvcc and default cuda_home=/x"
    for pad in range(4020, 4110, 5):  # 4096 bytes on either side of what is found are looked at
        text = f"{'y' * 60} {secret} {'x' * pad} {sign}" if is_before else f"{sign} {'x' * pad} {secret} {'y' * 60}"
        told = found(f"{text}\n")
        assert told.diagnoses
        assert SEED[:6] not in msgspec.json.encode(told).decode()


def test_the_place_of_a_sign_is_that_in_the_line_as_it_is_shown():
    one = (
        found(f"RuntimeError: http://u:{SEED}@h Could not find nvcc and default cuda_home=/x\n").diagnoses[0].matched[0]
    )
    assert one.text[one.at :].startswith("Could not find nvcc")
    assert "http://<hidden>@h" in one.text
