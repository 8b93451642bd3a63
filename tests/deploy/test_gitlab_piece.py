"""The job's script, line for line as the YAML has it, from a repository that git fetches."""

from __future__ import annotations

import json
import pathlib
import re
import string
import subprocess

import junitparser
import pytest
import yaml
from pieces import ASKED, DEPLOY, checkout

JOB = yaml.safe_load((DEPLOY / "gitlab" / "fi-doctor.yml").read_text())["fi-doctor"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """This checkout as a repository with a tag and, after it, a commit that damages it."""
    folder = checkout(tmp_path_factory.mktemp("origin") / "fi-doctor")
    commands = ["init -q", "add .", "commit -q -m one", "tag v1", "rm -q -r fi_doctor", "commit -q -m two"]
    for words in commands:
        git(folder, *words.split())
    return folder


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True)


def variables(place, **changes):
    """The job's variables as the runner hands them over: what they name is filled in."""
    filled = {
        name: string.Template(text).substitute(CI_PROJECT_DIR=place.folder) for name, text in JOB["variables"].items()
    }
    return {"CI_PROJECT_DIR": place.folder, **filled, **changes}


def run_job(place, **changes):
    return place.run("bash", "-e", "-o", "pipefail", "-c", "\n".join(JOB["script"]), **variables(place, **changes))


def test_the_job_runs_what_the_ref_has_and_leaves_its_artifacts_when_it_fails(place, repository):
    (place.bin / "fi-doctor").unlink()
    asked = {"CHECK_SOURCE": repository, "CHECK_PYTHON": "", "CHECK_ARGS": ASKED[1]}
    done = run_job(place, CHECK_REF="v1", **asked)
    assert done.returncode == 1, done.stderr
    assert "Exit 1 (" in done.stdout
    paths = [pathlib.Path(place.folder, name) for name in JOB["artifacts"]["paths"]]
    report, junit = paths
    assert json.loads(report.read_text())["gate"]["code"] == 1
    assert junitparser.JUnitXml.fromfile(str(junit)).failures
    # On the same runner once more, where the first fetch still lies: another ref is another checkout.
    done = run_job(place, CHECK_REF="HEAD", **asked)
    assert done.returncode == 3
    assert "nothing was examined" in done.stderr
    assert [path for path in paths if path.exists()] == []


def test_a_ref_that_does_not_exist_fails_the_job_before_anything_runs(place, repository):
    done = run_job(place, CHECK_SOURCE=repository, CHECK_REF="v9")
    assert done.returncode not in (0, 1, 3)
    assert "v9" in done.stderr
    assert done.stdout == ""


def test_without_a_source_the_job_says_what_is_to_be_set(place):
    done = run_job(place)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fi-doctor: CHECK_SOURCE is not set to a repository of fi-doctor (exit 2)\n"


def test_jobs_of_other_names_and_runners_have_caches_of_their_own():
    assert set(re.findall(r"\$(\w+)", JOB["cache"]["key"])) == {"CI_RUNNER_ID", "CI_JOB_NAME_SLUG"}


def test_artifacts_are_kept_when_the_job_fails_and_what_was_compiled_as_well(place):
    assert JOB["artifacts"]["when"] == JOB["cache"]["when"] == "always"
    named = variables(place)
    assert JOB["artifacts"]["paths"] == [named["CHECK_REPORT"], named["CHECK_JUNIT"]]
    assert JOB["artifacts"]["reports"] == {"junit": named["CHECK_JUNIT"]}
    [cached] = JOB["cache"]["paths"]
    for name in ("FLASHINFER_WORKSPACE_BASE", "PIP_CACHE_DIR", "XDG_CACHE_HOME"):
        assert pathlib.Path(named[name]).is_relative_to(place.folder / cached)
