"""--env-file, --manifest and --vllm-args: what is found in them, and what cannot be read."""

from __future__ import annotations

import json

import pytest
from cli_command import in_three_parts

COMPOSE = """\
services:
  llm:
    image: vllm/vllm-openai:v0.33.0
    environment:
      VLLM_ATTENTION_BACKEND: FLASHINFER
      VLLM_USE_FLASHINFER_SAMPLER: "true"
      HF_TOKEN: hf_abcdefghijklmnopqrstuvwxyz0123
    command: --model openai/gpt-oss-20b --moe-backend marlin --port 8000
  router:
    image: nginx
    environment:
      VLLM_NO_SUCH: "1"
"""
DOCKERFILE = """\
FROM vllm/vllm-openai:v0.33.0
ENV VLLM_USE_FLASHINFER_NORM=1
"""


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE)
    return path


def told(done):
    assert done.returncode in (0, 1, 3), done.stderr  # as what becomes of the model, where one is named
    return {(one["id"], one["title"]): one for one in json.loads(done.stdout)["findings"] if "setting" in one["id"]}


def test_a_manifest_and_a_command_line_are_judged_together(doctor, manifest):
    options = ("--manifest", manifest, "--vllm-args", "serve openai/gpt-oss-20b --moe-backend triton --swap-space 4")
    found = told(doctor("check", "--no-config", "--example", "h200", "--format", "json", *options))
    place = f"{manifest}:5 (service llm)"
    unknown = found["setting-unknown", f"vLLM 0.33.0 does not know VLLM_ATTENTION_BACKEND ({place})"]
    assert unknown["fix"][-1] == f"Take VLLM_ATTENTION_BACKEND out of {place}"
    assert {name for name, _ in found} == {"setting-unknown", "setting-value-refused", "settings-contradict"}
    titles = [title for _, title in found]
    assert "vLLM 0.33.0 has no --swap-space (--vllm-args)" in titles
    assert "--moe-backend marlin and --moe-backend triton contradict each other" in titles
    assert len(titles) == 4  # the router is no server of vLLM's, and --port is none of the engine's


def test_values_of_secrets_are_nowhere(doctor, manifest):
    done = doctor(
        *("report", "--example", "h200", "--json", "--manifest", manifest),
        *(
            "--vllm-args",
            "serve gpt-oss-20b --hf-token hf_abcdefghijklmnopqrstuvwxyz0123 --api-key secret-of-mine-1234",
        ),
    )
    assert done.returncode == 0
    assert "hf_abc" not in done.stdout + done.stderr
    assert "secret-of-mine" not in done.stdout + done.stderr


def test_env_tells_settings_that_do_nothing_beside_what_it_writes(doctor, tmp_path):
    path = tmp_path / "Dockerfile"
    path.write_text(DOCKERFILE)
    done = doctor("env", "--example", "h200", "--manifest", path)
    assert done.returncode == 0
    assert "VLLM_USE_FLASHINFER_NORM" not in done.stdout
    assert f"warning: vLLM 0.33.0 does not know VLLM_USE_FLASHINFER_NORM ({path}:2)" in done.stderr


def test_a_file_of_variables_has_its_lines(doctor, tmp_path):
    path = tmp_path / "server.env"
    path.write_text("# for the server\n\nVLLM_USE_V1=1\nFLASHINFER_CUDA_ARCH_LIST=9.0a\n")
    [(_, title)] = told(doctor("report", "--example", "h200", "--json", "--env-file", path))
    assert title == f"vLLM 0.33.0 does not know VLLM_USE_V1 ({path}:3)"


def test_findings_of_settings_do_not_change_the_exit_code(doctor, manifest):
    plain = doctor("check", "--no-config", "--example", "h200")
    given = doctor("check", "--no-config", "--example", "h200", "--manifest", manifest)
    assert (given.returncode, plain.returncode) == (0, 0)
    strict = doctor("check", "--no-config", "--example", "h200", "--manifest", manifest, "--fail-on", "error")
    assert strict.returncode == 1


@pytest.mark.parametrize("command", ["check", "report", "env"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--vllm-args", "serve 'model"), "--vllm-args cannot be split into words"),
        (("--vllm-args", "--dtype=auto model"), "--vllm-args: 'model' belongs to no option"),
        (("--manifest", "absent.yaml"), "'absent.yaml' cannot be read"),
        (("--env-file", "absent.env"), "'absent.env' cannot be read"),
        (("--env-file", ""), "--env-file: '' names no file"),
    ],
)
def test_what_cannot_be_read_is_2_before_anything_is_written(doctor, command, options, words):
    done = doctor(command, "--example", "h200", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in in_three_parts(done.stderr)["error"]


def test_what_of_a_manifest_is_not_judged_is_told(doctor, tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text(
        "kind: Pod\nmetadata: {name: llm}\nspec:\n  containers:\n  - name: server\n    image: vllm/vllm-openai\n"
        "    args: [--dtype=auto, model]\n    envFrom:\n    - configMapRef: {name: elsewhere}\n"
    )
    done = doctor("report", "--example", "h200", "--json", "--manifest", path)
    assert done.returncode == 0
    assert f"warning: {path} (Pod llm, container server): envFrom is not judged: elsewhere is not" in done.stderr
    assert "its command line is not judged: 'model' belongs to no option" in done.stderr


def test_a_manifest_of_an_unknown_kind_is_2(doctor, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("VLLM_USE_V1=1\n")
    done = doctor("check", "--example", "h200", "--manifest", path)
    assert done.returncode == 2
    assert "is no manifest that is known" in done.stderr


def test_nothing_is_judged_as_recorded_or_by_a_lock(doctor, manifest):
    done = doctor("check", "--no-config", "--example", "h200", "--as-recorded", "--manifest", manifest)
    assert (done.returncode, "--manifest and --as-recorded" in done.stderr) == (2, True)
    done = doctor("check", "--no-config", "--locked", "--manifest", manifest)
    assert (done.returncode, "--manifest and --locked" in done.stderr) == (2, True)


def test_the_ids_can_be_explained(doctor):
    from fi_doctor.diagnosis.given import FORMER_IDS, IDS

    for name in (*IDS, *FORMER_IDS):
        assert doctor("explain", name).returncode == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("check", "--prove", "--example", "h200"), "--prove: nothing is run with --example"),
        (("env", "--prove", "--from", "report.json", "--depth", "run"), "--prove: nothing is run with --from"),
        (("check", "--prove", "--depth", "static"), "--prove and --depth static: nothing is tried at that depth"),
        (("report", "--prove"), "--prove and --depth static: nothing is tried at that depth"),
        (("check", "--prove-vllm"), "--prove-vllm without --model"),
        (
            ("check", "--prove-vllm", "--model", "gpt-oss-20b", "--depth", "build"),
            "--prove-vllm and --depth build: nothing is tried at that depth",
        ),
        (("check", "--locked", "--prove"), "--prove and --locked: the lock says what was measured"),
    ],
)
def test_nothing_is_proven_where_nothing_runs(doctor, options, said):
    done = doctor(*options)
    assert done.returncode == 2
    assert in_three_parts(done.stderr)["error"] == said
