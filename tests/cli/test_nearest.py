"""The nearest policy, from a folder upwards."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from cli_command import in_three_parts
from permissions import obey_permissions

from fi_doctor.cli import nearest
from fi_doctor.errors import DataError
from fi_doctor.knowledge import policies
from fi_doctor.model import PolicyFile

ROOT = pathlib.Path(__file__).parents[2]


def test_the_nearest_policy_counts_and_its_own_file_before_the_project(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "fi-doctor.toml").write_text("jobs = 1")
    assert nearest.find(inner) == tmp_path / "fi-doctor.toml"
    project = tmp_path / "a" / "pyproject.toml"
    project.write_text("[tool.fi-doctor]\njobs = 2")
    assert nearest.find(inner) == project
    assert policies.read(project).file == PolicyFile(jobs=2)
    (tmp_path / "a" / "fi-doctor.toml").write_text("jobs = 3")
    assert nearest.find(inner) == tmp_path / "a" / "fi-doctor.toml"


@pytest.mark.parametrize("text", ["[project]\nname = 'x'", "[project]\nname = 'fi-doctor'", "broken [", "tool = 3"])
def test_a_project_without_the_table_is_no_policy(tmp_path, text):
    (tmp_path / "fi-doctor.toml").write_text("jobs = 1")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "pyproject.toml").write_text(text)
    assert nearest.find(tmp_path / "a") == tmp_path / "fi-doctor.toml"


@pytest.mark.parametrize("text", ["[tool.fi-doctor", "[tool]\nfi-doctor = 3"])
def test_a_project_that_names_us_and_cannot_be_read_is_not_passed_over(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(DataError, match=r"pyproject\.toml"):
        nearest.find(tmp_path)


def test_a_project_that_nobody_may_read_is_not_passed_over(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "pyproject.toml").chmod(0)
    script = f"from pathlib import Path; from fi_doctor.cli import nearest; nearest.find(Path({str(tmp_path)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, preexec_fn=obey_permissions
    )
    assert f"DataError: error: the policy '{tmp_path}/pyproject.toml' cannot be read" in done.stderr
    assert "Permission denied" in done.stderr


NO_FILES = {
    "dangling": (lambda path: path.symlink_to("nowhere.toml"), "No such file"),
    "loop": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    "folder": (pathlib.Path.mkdir, "Is a directory"),
    "pipe": (os.mkfifo, "neither a file nor a stream"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "neither a file nor a stream"),
    "below-a-file": (lambda path: path.symlink_to("a-file/policy.toml"), "Not a directory"),
}


@pytest.mark.parametrize("name", ["fi-doctor.toml", "pyproject.toml"])
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_called_like_a_policy_and_is_no_file_is_not_passed_over(doctor, kind, name):
    (doctor.folder / "a-file").touch()
    (doctor.folder / "fi-doctor.toml").write_text("jobs = 1")
    doctor.folder = doctor.folder / "inner"
    doctor.folder.mkdir()
    (doctor.folder / "a-file").touch()
    make, why = NO_FILES[kind]
    make(doctor.folder / name)
    done = doctor("check", "--from", "-", data="{}")
    assert done.returncode == 2
    parts = in_three_parts(done.stderr)
    assert parts["error"] == f"the policy '{doctor.folder / name}' cannot be read"
    assert why in parts["why"]


def test_a_folder_above_that_nobody_may_look_into_holds_no_policy(tmp_path):
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "closed" / "fi-doctor.toml").write_text("jobs = 1")
    (tmp_path / "closed").chmod(0)
    folder = str(tmp_path / "closed" / "inner")
    script = f"from pathlib import Path; from fi_doctor.cli import nearest; print(nearest.find(Path({folder!r})))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=obey_permissions)
    (tmp_path / "closed").chmod(0o755)
    assert (done.stdout, done.stderr) == ("None\n", "")
