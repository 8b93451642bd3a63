"""What --model and the words of vLLM's command line stand for."""

import json
import shlex

import pytest

from fi_doctor.cli import modelling
from fi_doctor.diagnosis.deployment import options_of
from fi_doctor.errors import UsageError


def deployed(line, **given):
    options = {"tp": None, "pp": None, "dp": None, "ep": False, "kv_cache_dtype": None, **given}
    return modelling.deployed(tuple(shlex.split(line)), **options)


AGREED = {"--attention-config.backend": "A", "--attention-backend": "A", "--config": "a.yaml"}


@pytest.mark.parametrize(
    ("line", "sizes", "flags"),
    [
        ("", (1, 1, 1, False, "auto"), {}),
        ("vllm serve openai/gpt-oss-20b -tp 8", (8, 1, 1, False, "auto"), {"": "openai/gpt-oss-20b"}),
        ("--tensor-parallel-size=4 --pipeline_parallel_size 2 -dp 2 -ep", (4, 2, 2, True, "auto"), {}),
        ("--kv-cache-dtype fp8", (1, 1, 1, False, "fp8"), {}),
        ("--enforce-eager --no-enforce-eager -ep --no-enable-expert-parallel", (1, 1, 1, False, "auto"), {}),
        ("-tp 2 -ep org/name", (2, 1, 1, True, "auto"), {"": "org/name"}),
        ("-ac.backend=A --attention-backend A --config a.yaml", (1, 1, 1, False, "auto"), AGREED),
        (
            "--enforce_eager --moe-backend triton",
            (1, 1, 1, False, "auto"),
            {"--enforce-eager": "", "--moe-backend": "triton"},
        ),
        (
            "-O3 -cc.pass_config.fuse_allreduce_rms=false",
            (1, 1, 1, False, "auto"),
            {"--optimization-level": "3", "--compilation-config.pass_config.fuse_allreduce_rms": "false"},
        ),
        (
            '-ac \'{"backend": "FLASHINFER"}\'',
            (1, 1, 1, False, "auto"),
            {"--attention-config.backend": "FLASHINFER"},
        ),
        ("--lora-modules a=b c=d --seed -1", (1, 1, 1, False, "auto"), {"--lora-modules": "a=b c=d", "--seed": "-1"}),
    ],
)
def test_a_command_line_of_vllm(line, sizes, flags):
    found = deployed(line)
    assert (
        found.tensor_parallel,
        found.pipeline_parallel,
        found.data_parallel,
        found.expert_parallel,
        found.kv_cache_dtype,
    ) == sizes
    assert found.flags == flags


@pytest.mark.parametrize(
    ("line", "given", "said"),
    [
        ("-tp eight", {}, "--tensor-parallel-size 'eight' is not a number of GPUs"),
        ("-tp 0", {}, "--tensor-parallel-size '0' is not a number of GPUs"),
        ("-tp 8", {"tp": 4}, "--tp 4 and --tensor-parallel-size 8 in --vllm-args"),
        ("--kv-cache-dtype fp8", {"kv_cache_dtype": "auto"}, "--kv-cache-dtype auto and fp8 in --vllm-args"),
        ("--tensor-parallel-size=8 stray", {}, "'stray' belongs to no option"),
        ("--tensor-par 2", {}, "--tensor-par may be short for --tensor-parallel-size"),
        ("--a=FLASHINFER", {}, "--a may be short for --all2all-backend or --attention-backend"),
        ("--tp 8", {}, "vLLM has no --tp"),
        ("-tp8", {}, "vLLM has no -tp8"),
        ("--enforce-eager=false", {}, "--enforce-eager is a switch, and takes no 'false'"),
        ("--moe-backend --port 1", {}, "--moe-backend names no value"),
        ("--kv-cache-dtype", {}, "--kv-cache-dtype names no value"),
        (
            "-ac.backend=FLASHINFER --attention-backend TRITON_ATTN",
            {},
            "--attention-config.backend FLASHINFER and --attention-backend TRITON_ATTN",
        ),
    ],
)
def test_words_that_contradict_or_mean_nothing(line, given, said):
    with pytest.raises(UsageError) as caught:
        deployed(line, **given)
    assert said in caught.value.what


def test_own_options_and_those_of_vllm_say_the_same():
    found = deployed("-tp 8", tp=8, ep=True)
    assert (found.tensor_parallel, found.expert_parallel, found.world_size) == (8, True, 8)
    assert options_of(found, {})["tensor_parallel_size"] == 8


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("vllm serve a/b -tp 2", "a/b"),
        ("--model a/b", "a/b"),
        ("-tp 2", ""),
        ("vllm serve --enforce-eager a/b", "a/b"),
        ("python3 -m vllm.entrypoints.openai.api_server --model a/b", "a/b"),
        ("exec vllm serve a/b", "a/b"),
    ],
)
def test_the_model_of_a_command_line(line, name):
    assert modelling.model_in(modelling.words_of(line)) == name


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("A=1 vllm serve a/b", "A is a variable, and no word of vLLM's"),
        ("vllm serve 'a/b", "cannot be split into words"),
        ("vllm serve --model", "--model names no model"),
    ],
)
def test_words_that_are_no_command_line_of_vllm(line, said):
    with pytest.raises(UsageError) as caught:
        modelling.model_in(modelling.words_of(line))
    assert said in caught.value.what


def test_models_by_path_cache_and_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 256}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert modelling.served(str(tmp_path))[0].source == str(tmp_path / "config.json")
    assert modelling.served("openai/gpt-oss-20b")[0].source == "preset openai/gpt-oss-20b"
    cached = tmp_path / "hf/hub/models--openai--gpt-oss-20b/snapshots/abcd"
    cached.mkdir(parents=True)
    (cached / "config.json").write_text(json.dumps(config))
    assert modelling.served("openai/gpt-oss-20b")[0].source == str(cached / "config.json")  # the file that is served


@pytest.mark.parametrize("word", ["", "of-tomorrow", "org/name", "/absent", "~no-such-user/x"])
def test_what_stands_for_no_model(word, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        modelling.served(word)
    assert caught.value.todo


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("gpt-oss-20", "gpt-oss-20b"),
        ("Qwen/Qwen3-30B-A3B-FP9", "qwen3-30b-a3b-fp8"),
        ("Gemma", "gemma-3-27b"),
        ("of-tomorrow", ""),
    ],
)
def test_the_nearest_names_are_said_for_one_that_is_not_known(word, near, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        modelling.served(word)
    assert (f"--model {near}" in caught.value.todo) is bool(near)
    assert f"the nearest of those: {near}" in caught.value.why if near else "deepseek-v3, " in caught.value.why


def test_keys_on_a_command_line_do_not_come_into_reports():
    found = deployed(
        "serve a/b --api-key mine-1234 --port 8000 --hf-overrides.x hf_abcdefghijklmnopqrstuvwxyz0123456789"
    )
    assert found.flags == {"": "a/b", "--api-key": "<hidden>", "--port": "8000", "--hf-overrides.x": "<hidden>"}
