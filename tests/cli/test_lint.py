"""`fi-doctor lint`: what is wrong with policies and manifests, and nothing of the machine."""

from __future__ import annotations

import pytest

from fi_doctor.cli import parse
from fi_doctor.errors import UsageError

COMPOSE = """services:
  llm:
    image: vllm/vllm-openai:v0.33.0
    environment: {VLLM_ATTENTION_BACKEND: FLASHINFER, VLLM_USE_FLASHINFER_SAMPLER: "0"}
    command: --model openai/gpt-oss-20b --swap-space 4
"""
GOOD = COMPOSE.replace("VLLM_ATTENTION_BACKEND: FLASHINFER, ", "").replace(" --swap-space 4", "")
POLICY = '[require]\n"norm.rmsnorm" = "works"\n'
WRONG = 'budget = "soon"\n[require]\n"norm.rmsnrm" = "works"\n'


@pytest.fixture
def lint(doctor):
    """lint("--vllm", "0.33.0", name=text): the files are written and named after the options."""

    def run(*options, files):
        for name, text in files.items():
            (doctor.folder / name).write_text(text)
        done = doctor("lint", *options, *files)
        return done.returncode, done.stdout, done.stderr

    return run


def test_settings_that_the_release_does_not_have_are_1_with_place_and_cure(lint):
    code, out, said = lint("--vllm", "0.33.0", files={"compose.yaml": COMPOSE})
    assert code == 1
    assert "error setting-unknown: vLLM 0.33.0 has no --swap-space (compose.yaml:5 (service llm))\n" in out
    assert "fix: add to the command line: --attention-backend FLASHINFER" in out
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in out
    assert said == "fi-doctor: 2 settings wrong in 1 file (exit 1)\n"


def test_the_tag_of_the_image_names_the_release_where_no_option_does(lint):
    code, out, said = lint(files={"compose.yaml": COMPOSE})
    assert (code, "vLLM 0.33.0 has no --swap-space" in out) == (1, True)
    first = "compose.yaml: judged by vLLM 0.33.0, the tag of vllm/vllm-openai:v0.33.0; --vllm names another\n"
    assert said == f"{first}fi-doctor: 2 settings wrong in 1 file (exit 1)\n"
    older = COMPOSE.replace("v0.33.0", "v0.14.0-x86_64")
    assert lint(files={"compose.yaml": older})[:2] == (0, "")
    both = older + COMPOSE.partition("\n")[2].replace("llm:", "newer:", 1)
    code, out, _ = lint(files={"compose.yaml": both})
    assert code == 1
    assert "compose.yaml:9 (service newer)" in out
    assert "service llm" not in out
    assert lint(files={"Dockerfile": "FROM vllm/vllm-openai:v0.33.0\nENV VLLM_ATTENTION_BACKEND=FLASHINFER\n"})[0] == 1


def test_another_release_has_them_and_all_is_well(lint):
    assert lint("--vllm", "0.14.0", files={"compose.yaml": COMPOSE})[:2] == (0, "")
    code, out, said = lint("--vllm", "0.33.0", files={"compose.yaml": GOOD, "fi-doctor.toml": POLICY})
    assert (code, out, said) == (0, "", "fi-doctor: nothing wrong in 2 files (exit 0)\n")


def test_a_policy_has_all_its_errors_told_also_beside_other_files(lint):
    code, out, said = lint("--vllm", "0.33.0", files={"fi-doctor.toml": WRONG, "compose.yaml": COMPOSE})
    assert code == 2
    assert "--swap-space" in out
    assert "'soon' is not a duration" in said
    assert "no feature is called 'norm.rmsnrm'" in said
    assert said.endswith("fi-doctor: 2 settings and 1 file wrong in 2 files (exit 2)\n")


def test_a_pyproject_without_the_table_is_no_policy(lint):
    assert lint(files={"pyproject.toml": '[project]\nname = "x"\n'})[0] == 0
    assert lint(files={"pyproject.toml": "[tool.fi-doctor]\nbudgt = '1m'\n"})[0] == 2
    assert lint(files={"fi-doctor.toml": "", "pyproject.toml": "x = "})[0] == 2


def test_what_is_not_known_is_not_well(lint):
    code, out, _ = lint("--vllm", "99.0", files={"compose.yaml": GOOD})
    assert (code, out.splitlines()[0]) == (
        3,
        "info settings-not-judged: the settings for vLLM that were given are not judged",
    )
    code, _, said = lint(files={"compose.yaml": GOOD.replace("v0.33.0", "latest")})
    assert code == 2
    assert "error: compose.yaml and no release\n" in said
    assert "and the tag of 'vllm/vllm-openai:latest' names none" in " ".join(said.split())
    assert "fi-doctor lint --vllm 0.33.0 compose.yaml" in said
    assert lint("--vllm", "soon", files={"compose.yaml": GOOD})[0] == 2


def test_a_file_that_is_not_there_is_2(doctor):
    done = doctor("lint", "none", "none.yaml", "none.toml")
    assert done.returncode == 2
    for name in ("none", "none.yaml"):
        assert f"error: '{name}' cannot be read\n  why: No such file or directory\n" in done.stderr
    assert "none.toml" in done.stderr
    assert "release" not in done.stderr


@pytest.mark.parametrize(
    ("option", "todo"), [("--vllm", "--vllm 0.33.0"), ("--flashinfer", "--flashinfer 0.7.2.post1")]
)
def test_a_release_that_is_none_is_answered_with_one_that_is(option, todo):
    with pytest.raises(UsageError) as caught:
        parse.version("newest", option)
    assert caught.value.todo == todo
