"""fi-doctor env: the settings alone."""

import json

import pytest


def test_the_settings_of_a_recorded_machine(doctor):
    done = doctor("env", "--example", "h200-nvcc-12.6")
    assert (done.returncode, done.stderr) == (0, "")
    why, line = done.stdout.splitlines()
    assert line == "export CUDA_HOME=/usr/local/cuda-13.0"
    assert why.startswith("# a newer toolkit of this machine [fp8-block-moe-refused-below-cuda-12-8, ")
    assert why.endswith("(flashinfer-python >=0.2)")


def test_arguments_go_to_stdout_and_reasons_to_stderr(doctor):
    done = doctor("env", "--example", "h200", "--optional", "--format", "vllm-args")
    assert done.stdout == "--attention-backend FLASHINFER\n--moe-backend flashinfer_cutlass\n"
    assert "attention.decode, attention.prefill and attention.sinks work here" in done.stderr
    assert doctor("env", "--example", "h200", "--format", "vllm-args").stdout == ""


def test_for_a_release_of_sglang_that_is_not_installed(doctor):
    words = ("env", "--example", "h200", "--optional", "--format", "sglang-args")
    done = doctor(*words, "--sglang", "0.5.18")
    assert done.stdout.splitlines()[0] == "--attention-backend flashinfer"
    assert "SGLang 0.5.18" in done.stderr
    assert "vLLM" not in done.stderr
    other = doctor(*words, "--sglang", "0.9")
    assert (other.returncode, other.stdout) == (0, "")
    assert "of SGLang 0.9 nothing is known" in other.stderr


def test_into_a_file(doctor, tmp_path):
    done = doctor("env", "--example", "h200-nvcc-12.6", "--format", "json", "-o", tmp_path / "env.json")
    assert (done.returncode, done.stdout) == (0, "")
    [one] = json.loads((tmp_path / "env.json").read_text())
    assert one["holds"] == "flashinfer-python >=0.2"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "bash"], "--format: there is no 'bash'"),
        (["--example", "h200", "-o", "/absent/x"], "-o: '/absent/x' cannot be written"),
        (["--example", "of-tomorrow"], "of-tomorrow"),
        (["--depth", "deep"], "--depth"),
        (["--sglang", "newest"], "--sglang: 'newest' is no version"),
    ],
)
def test_words_that_mean_nothing(doctor, words, said):
    done = doctor("env", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
