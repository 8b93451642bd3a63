"""What lies on the examined PYTHONPATH or in the current folder is examined, not imported by the command itself."""

from __future__ import annotations

import os

import pytest
from cli_command import ROOT

STUBS = ("yaml", "msgspec", "typer", "packaging", "torch", "rich")


@pytest.fixture
def stubs(tmp_path):
    folder = tmp_path / "stubs"
    folder.mkdir()
    for name in STUBS:
        (folder / f"{name}.py").write_text(f"print('ran {name}')\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("path", ["{stubs}:{root}", "{root}:{stubs}", ":{root}", "{root}:"])
@pytest.mark.parametrize("words", [("features",), ("report",)], ids=lambda words: words[0])
def test_nothing_there_is_imported(doctor, stubs, path, words):
    doctor.folder = stubs  # the current folder too
    env = {"PYTHONPATH": path.format(stubs=stubs, root=ROOT)}
    done = doctor(*words, env=env)
    assert done.returncode == 0, done.stderr
    assert "ran " not in done.stdout + done.stderr


def test_children_are_given_the_whole_path(doctor, stubs):
    path = f"{stubs}{os.pathsep}{ROOT}"
    done = doctor("report", env={"PYTHONPATH": path})
    assert f"pythonpath: {path}" in done.stdout
    assert f"- {stubs}\n" in done.stdout
