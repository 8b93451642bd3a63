"""The stages of the Dockerfile: what ends a build, and what is left in the image."""

from __future__ import annotations

import io
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from dockerfile_parse import DockerfileParser
from pieces import DEPLOY, ROOT, script

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
STAGE = DEPLOY / "docker" / "stage.sh"
# Leaves what `python3 -I -m venv` and `pip install` leave.
QUICK_PYTHON = """#!/bin/sh
printf '%s\\n' "$*" >>"$THIS_TEST/python-words"
case "$*" in
  "-I -m venv "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  "-I -m pip install "*) cp "$STAND_IN" "${0%/*}/fi-doctor" ;;
esac
"""


@pytest.fixture
def image(place):
    """The folder /opt/fi-doctor of an image, and stage.sh in it: image("static", ...)."""
    folder = place.folder / "opt"
    (folder / "bin").mkdir(parents=True)
    for path in (STAGE, DEPLOY / "check.sh"):
        shutil.copy(path, folder)
    (place.bin / "fi-doctor").unlink()
    place.record(folder / "bin" / "fi-doctor")
    cache = {"STAGE_CACHE": place.folder / "cache"}
    return lambda *words, shell="sh", **changes: place.run(shell, folder / "stage.sh", *words, **{**cache, **changes})


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(("code", "static", "built"), [(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 0, 3), (4, 4, 4)])
def test_the_build_ends_where_the_gate_says_no(image, place, code, static, built, shell):  # noqa: PLR0917
    gpu = {"FLASHINFER_CUDA_ARCH_LIST": "9.0a"}
    assert image("static", "sh", "--fail-on error", shell=shell, CODE=code).returncode == static
    words = place.words()
    assert words[words.index("--depth") :] == ["--depth", "static", "--fail-on", "error"]
    assert image("built", "sh", "kv.*=built,moe.bf16", "5m", shell=shell, CODE=code, **gpu).returncode == built
    words = place.words()
    asked = ["--depth", "build", "--budget", "5m", "--feature", "kv.*,moe.bf16", "--require", "kv.*=built,moe.bf16"]
    assert words[words.index("--depth") :] == asked
    assert words[words.index("--python") + 1] == shutil.which("sh")


def test_3_without_a_report_is_not_the_gates(image, place):
    assert image("static", "sh", "--help", CODE=0, SILENT=1).returncode == 3
    (place.folder / "opt" / "bin" / "fi-doctor").unlink()
    assert image("static", "sh", "", PATH="/usr/bin:/bin").returncode == 3


def test_a_policy_in_the_image_is_taken_of_what_files_tell(image, place):
    image("static", "sh", "", CODE=0)
    assert "--config" not in place.words()
    (place.folder / "opt" / "fi-doctor.toml").write_text("")
    image("static", "sh", "", CODE=0)
    words = place.words()
    assert words[words.index("--config") + 1] == str(place.folder / "opt" / "fi-doctor.toml")
    image("built", "sh", "kv.*=built", "5m", CODE=0, FLASHINFER_CUDA_ARCH_LIST="9.0a")
    words = place.words()
    assert "--config" not in words
    assert "--no-config" in words


def test_warming_fills_the_cache_of_the_image_and_its_code_counts(image, place):
    gpu = {"FLASHINFER_CUDA_ARCH_LIST": "9.0a"}
    (place.folder / "cache" / "xdg").mkdir(parents=True)
    assert image("warm", "sh", "2h", CODE=0, **gpu).returncode == 0
    assert place.words() == ["warm", "--python", shutil.which("sh"), "--budget", "2h"]
    assert list((place.folder / "cache").iterdir()) == []
    assert image("warm", "sh", "2h", CODE=1, **gpu).returncode == 1


@pytest.mark.parametrize("code", [0, 1, 3])
def test_what_is_foretold_ends_the_build_and_lists_what_is_compiled_then(image, place, code):
    listed = place.folder / "opt" / "warm.txt"
    assert image("target", "sh", "h100,driver=580", "norm.*,rope.*", CODE=code).returncode == code
    words = place.words()
    asked = ["--target", "h100,driver=580", "--require", "norm.*,rope.*", "--warm-list", str(listed)]
    assert words[words.index("--no-config") + 1 :] == asked
    listed.write_text("norm.rmsnorm\n")
    assert image("warm", "sh", "2h", CODE=0, FLASHINFER_CUDA_ARCH_LIST="9.0a").returncode == 0
    assert place.words()[-2:] == ["--list", str(listed)]


def test_what_is_not_named_is_2(image):
    for words in (["built", "sh", "x", "1m"], ["warm", "sh", "1m"], ["static", "no-such-python", ""], ["x"], []):
        assert image(*words, CODE=0, FLASHINFER_CUDA_ARCH_LIST="").returncode == 2, words


def test_it_is_installed_apart_and_alone_on_path(image, place):
    python = script(place.bin / "python3", QUICK_PYTHON)
    stand_in = place.record(place.folder / "stand-in")
    (place.folder / "opt" / "source").mkdir()
    shutil.rmtree(place.folder / "opt" / "bin")
    assert image("install", python, STAND_IN=stand_in).returncode == 0
    opt = place.folder / "opt"
    assert [path.name for path in (opt / "bin").iterdir()] == ["fi-doctor"]
    assert (opt / "bin" / "fi-doctor").resolve() == opt / "venv" / "bin" / "fi-doctor"
    assert not (opt / "source").exists()
    assert f"-I -m pip install --quiet --no-cache-dir {opt}/source[serve]" in (
        (place.folder / "python-words").read_text().splitlines()
    )


def test_a_real_check_of_an_image_without_flashinfer_ends_the_build(image, place):
    place.put_doctor(ROOT)
    shutil.move(place.bin / "fi-doctor", place.folder / "opt" / "bin" / "fi-doctor")
    python = script(place.bin / "python3", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    done = image("static", python.name, "--fail-on error")
    assert done.returncode == 1, done.stderr
    assert "flashinfer-not-installed" in done.stderr
    assert image("static", python.name, "").returncode == 0


def instructions():
    parsed = DockerfileParser(fileobj=io.BytesIO(DOCKERFILE.read_bytes())).structure
    return [(one["instruction"], one["value"]) for one in parsed if one["instruction"] != "COMMENT"]


def test_the_dockerfile_copies_what_is_there_and_runs_stages_that_are_known():
    text = STAGE.read_text()
    copied, stages, runs = [], [], []
    for word, value in instructions():
        if word == "COPY" and "--from" not in value:
            copied += value.split()[:-1]
        elif word == "FROM":
            stages.append(value.split())
        elif word == "RUN":
            runs.append(re.search(r"stage\.sh (\w+)", value)[1])
    assert [name for name in copied if not (ROOT / name).exists()] == ["fi-doctor.tom[l]"]
    assert runs == ["install", "static", "target", "built", "warm"]
    assert all(re.search(rf"(?m)^  {name}\)$", text) for name in runs)
    known = {"${SERVER}", "${BEFORE}", *(words[-1] for words in stages)}
    assert {words[0] for words in stages} <= known


def test_every_argument_that_a_run_uses_is_declared_in_its_stage():
    declared: set[str] = set()
    for word, value in instructions():
        if word == "FROM":
            declared = {"PATH"}
        elif word == "ARG":
            declared.add(value.partition("=")[0])
        else:
            assert set(re.findall(r"\$\{(\w+)\}", value)) <= declared, value


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_has_nothing_to_say():
    done = subprocess.run(["hadolint", DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_image_needs_to_check_a_node_is_in_it():
    copied = {pathlib.Path(name).name for word, value in instructions() if word == "COPY" for name in value.split()}
    assert {"check.sh", "node.sh", "condition.py"} <= copied
