"""check --model: the answer for what will be served, on recorded machines."""

import json

import pytest


def first(done):
    return " ".join(done.stdout.partition("\n\n")[0].split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["--example", "h200", "--model", "gpt-oss-20b"],
            0,
            "gpt-oss-20b: it will run, on FlashInfer for sampling; attention on FLASH_ATTN, moe on TRITON",
        ),
        (
            ["--example", "h200", "--vllm-args", "vllm serve llama-3.1-8b --attention-backend FLASHINFER"],
            0,
            "llama-3.1-8b: it will run, on FlashInfer for attention, sampling",
        ),
        (
            [
                "--example",
                "h200-flashinfer-0.5.3",
                "--model",
                "openai/gpt-oss-20b",
                "--vllm-args",
                "--attention-backend FLASHINFER",
            ],
            1,
            "it will fail: attention (none): nothing serves: vLLM refuses to start with attention_backend=FLASHINFER",
        ),
        (
            ["--example", "h200", "--model", "llama-3.1-8b", "--kv-cache-dtype", "fp9"],
            1,
            "it will fail: vLLM 0.33.0 does not know --kv-cache-dtype fp9",
        ),
        (
            ["--example", "h200", "--model", "deepseek-v3", "--tp", "8", "--ep"],
            3,
            "deepseek-v3: it cannot be told whether it works",
        ),
        (
            ["--example", "2xh200-flashinfer-0.5.3", "--model", "qwen3-30b-a3b-fp8", "--tp", "2"],
            0,
            "it will run without FlashInfer",
        ),
    ],
)
def test_the_first_line_answers_and_the_code_follows(doctor, words, code, said):
    done = doctor("check", *words)
    assert done.returncode == code
    assert said in first(done)


def test_each_operator_is_told_with_what_was_passed_over(doctor):
    text = doctor("check", "--example", "h200", "--model", "gpt-oss-20b").stdout
    assert "What vLLM would choose (vLLM 0.33.0, SM90, table, read in vLLM 0.33.0):" in text
    assert "not FLASHINFER: could serve; vLLM's order has FLASH_ATTN before it" in text
    assert "12 window with 64 heads of 64 over 8 in" in text
    rows = [line.split()[0] for line in text.splitlines() if line.startswith(("sampling.", "attention.", "norm."))]
    assert rows == ["sampling.top_k_top_p"]  # what the deployment does not run through is not looked at


def test_json_has_all_of_it(doctor):
    done = doctor("check", "--example", "h200", "--model", "gpt-oss-20b", "--format", "json")
    found = json.loads(done.stdout)["deployed"]
    assert (found["effect"], found["sm"], found["vllm"]) == ("flashinfer", 90, "0.33.0")
    operators = {part["choice"]["operator"]: part["choice"]["chosen"] for part in found["parts"]}
    assert operators["moe"] == "TRITON"


def test_a_folder_and_a_file(doctor, tmp_path):
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "hidden_size": 1024,
        "architectures": ["LlamaForCausalLM"],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    for word in (tmp_path, tmp_path / "config.json"):
        done = doctor("check", "--example", "h200", "--model", word)
        assert done.returncode == 0, done.stderr
        assert "2 full with 8 heads of 128 over 8" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", ""], "--model: '' names no model"),
        (["--model", "of-tomorrow"], "--model: 'of-tomorrow' is not found"),
        (["--tp", "2"], "--tp without --model"),
        (["--dp", "4096", "--vllm-args", "--enforce-eager"], "--dp without --model"),
        (["--model", "gpt-oss-20b", "--vllm-args", "a 'b"], "--vllm-args cannot be split into words"),
        (["--model", "gpt-oss-20b", "--vllm-args", "vllm serve a/b"], "--model gpt-oss-20b and a/b in --vllm-args"),
        (["--model", "gpt-oss-20b", "--tp", "2", "--vllm-args", "-tp 4"], "--tp 2 and --tensor-parallel-size 4"),
        (["--model", "gpt-oss-20b", "--locked"], "--model and --locked"),
        (["--model", "gpt-oss-20b", "--as-recorded"], "--model and --as-recorded: nothing is judged then"),
        (["--model", "/dev/null"], "cannot be read"),
    ],
)
def test_words_that_mean_nothing(doctor, words, said):
    source = [] if "--locked" in words else ["--example", "h200"]
    done = doctor("check", *source, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("A", "it will run, on FlashInfer for sampling"),
        ("VLLM_BATCH_INVARIANT", "VLLM_BATCH_INVARIANT may change it"),
        ("VLLM_USE_FLASHINFER_SAMPLER", "sampling (FLASHINFER): VLLM_USE_FLASHINFER_SAMPLER may change it"),
        ("VLLM_ATTENTION_BACKEND", "it will run, on FlashInfer for sampling"),  # 0.33.0 does not know it
    ],
)
def test_variables_of_a_file_count(doctor, tmp_path, variable, said):
    (tmp_path / "server.env").write_text(f"{variable}=1\n")
    done = doctor("check", "--example", "h200", "--model", "llama-3.1-8b", "--env-file", tmp_path / "server.env")
    assert said in first(done), done.stderr
