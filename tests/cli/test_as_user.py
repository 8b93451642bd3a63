"""--as-user as root: everything that is started is that user's, and what it leaves in its caches too."""

from __future__ import annotations

import json
import os
import shlex
import sys

import acting_user
import factory as make
import pytest
from cli_command import Command, copied_package
from jit_stack import Stack

from fi_doctor import acting
from fi_doctor.cli import serving
from fi_doctor.facts import Gathering, machine, packages, wrappers
from fi_doctor.facts.users import named_user
from fi_doctor.model import Missing
from fi_doctor.probing import surroundings
from fi_doctor.reports import answer

real = pytest.mark.skipif(bool(acting_user.lack()), reason=acting_user.lack() or "-")
WORDS = f"{acting_user.UID}:{acting_user.GID}"
# Of what the command starts, and not of the command itself.
SEES = """import os

if "FI_DOCTOR_CHILD" in os.environ:
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{os.getuid()} {os.environ.get('USER')}\\n")
"""


@pytest.fixture
def stack(forked):
    with acting_user.open_folder() as folder:
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        (folder / "seen").touch()
        (folder / "seen").chmod(0o666)
        stack = Stack(folder / "stack", Command(folder, forked), place=copied_package(folder))
        (stack.site / "sitecustomize.py").write_text(SEES)
        stack.module("a", "true")
        for path in (stack.home, stack.sources):
            os.chown(path, acting_user.UID, acting_user.GID)
        stack.environ |= {"TMPDIR": folder / "tmp", "SEEN": folder / "seen"}
        yield stack


def checked(stack, *words):
    words = ("--as-user", WORDS, "--python", acting_user.python(), "--no-config", *words)
    done = stack.doctor("check", *words, "--feature", "fake.a", "-f", "json", env=stack.environ)
    return json.loads(done.stdout), done


def owners(folder):
    return {path.lstat().st_uid for path in folder.rglob("*")}


@real
@pytest.mark.parametrize("fresh", [(), ("--fresh-cache",)], ids=["its-cache", "scratch"])
def test_the_interpreter_builds_and_probes_are_that_users(stack, fresh):
    report, done = checked(stack, "--depth", "run", *fresh)
    rows = {row["feature"]: (row["verdict"], row["why"]) for row in report["features"]}
    assert rows["fake.a"][0] == "works", (rows, done.stderr)
    assert report["facts"]["machine"]["started_as"] == acting_user.UID
    assert set((stack.doctor.folder / "seen").read_text().splitlines()) == {f"{acting_user.UID} {acting_user.UID}"}
    assert owners(stack.home) == (set() if fresh else {acting_user.UID})
    where = "in a scratch folder of that user" if fresh else f"in the cache of that user's server below {stack.home}"
    assert any(line.startswith(f"Everything was built by user {acting_user.UID}, {where}") for line in report["bounds"])
    assert list((stack.doctor.folder / "tmp").iterdir()) == []
    assert owners(stack.doctor.folder / ".cache") == {os.geteuid()}  # what fi-doctor itself remembers


def test_the_line_that_does_it_by_hand_does_it_as_that_user():
    from serving import machine as sample
    from serving import user

    facts = make.facts(machine=sample(started_as=1000, user=user(gid=7)))
    line = surroundings._as_whom(facts, ['A="$(mktemp -d)"', "python", "'a probe.py'"])
    assert shlex.split(line) == [
        *("sudo", "-H", "-u", "#1000", "-g", "#7", "sh", "-c"),
        "A=\"$(mktemp -d)\" python 'a probe.py'",
    ]
    assert surroundings._as_whom(make.facts(machine=sample()), ["python", "x"]) == "python x"


@real
def test_what_that_user_cannot_read_is_a_reason_of_the_row(stack):
    (stack.site / "flashinfer/ops.py").chmod(0o600)
    report, _ = checked(stack, "--depth", "run")
    row = next(row for row in report["features"] if row["feature"] == "fake.a")
    assert row["verdict"] != "works"
    assert "Permission denied" in row["why"]


@pytest.fixture
def closed(tmp_path):
    """A Python that root alone can start."""
    path = tmp_path / "python"
    path.symlink_to(sys.executable)
    tmp_path.chmod(0o700)
    return str(path)


@real
def test_an_interpreter_that_this_user_cannot_start_is_read_by_root_which_is_told(closed):
    told = machine.Serving(user_of())
    facts = collected(closed, told)
    assert facts.machine.started_as == Missing(
        reason=f"user {acting_user.UID} cannot use {closed}: it could not be started: {closed}: Permission denied"
    )
    assert facts.running_uid == os.geteuid()
    assert collected(acting_user.python(), told).machine.started_as == acting_user.UID


def collected(python, told):
    return Gathering(python, told.environ(os.environ), asks_cuda=False, serving=told).finish()


def test_a_survey_does_not_decide_whom_others_run_as():
    ours = {acting.VARIABLE: "ours", "PATH": os.environ["PATH"]}
    survey = packages.Survey(
        executable="/elsewhere/python",
        version="3.12.1",
        implementation="cpython",
        prefix="/",
        base_prefix="/",
        sys_path=(),
        distributions=(),
        modules={},
        problems=(),
        environ={acting.VARIABLE: "theirs", "A": "b"},
    )
    assert wrappers.start(sys.executable, survey, ours).environ == {"A": "b", acting.VARIABLE: "ours"}


OURS = {
    "HOME": "/root",
    "USER": "root",
    "XDG_CACHE_HOME": "/root/.cache",
    "XDG_RUNTIME_DIR": "/run/user/0",
    "XDG_DATA_HOME": "/data",
    "PATH": "/bin",
}


def user_of(words=WORDS):
    return named_user(words, {})


def test_it_is_told_of_its_own_folders_and_not_of_ours():
    environ = machine.Serving(user_of("424242:7")).environ(OURS)
    assert acting.account_of(environ) == acting.Account(424242, 7)
    assert acting.without_word(environ) == {
        "HOME": "/",
        "USER": "424242",
        "LOGNAME": "424242",
        "XDG_DATA_HOME": "/data",
        "PATH": "/bin",
    }


def test_where_that_cannot_be_it_stays_as_it_was():
    environ = machine.Serving(user_of("424242:7"), kept="it has no rights").environ(OURS)
    assert environ == {**OURS, "HOME": "/", "PYTHONNOUSERSITE": "1"}
    assert machine.Serving(user_of("424242:7"), kept="it has no rights").started_as("") == Missing(
        reason="it has no rights"
    )


def test_of_this_very_user_nothing_is_said():
    own = machine.Serving(named_user(f"{os.geteuid()}:{os.getegid()}", OURS))
    assert own.environ(OURS) == OURS
    assert own.started_as("") is None


def test_folders_of_ours_that_this_user_cannot_enter_are_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(acting, "obstacle", lambda _: "")
    monkeypatch.setattr(serving.tempfile, "gettempdir", lambda: "/")
    assert serving._why_kept(user_of("424242:7")) == ""
    tmp_path.chmod(0o700)
    monkeypatch.setattr(serving.tempfile, "gettempdir", lambda: str(tmp_path))
    said = serving._why_kept(user_of("424242:7"))
    assert said.startswith("that user cannot enter fi-doctor's own folders: /")
    assert "mode 0700" in said


@pytest.mark.parametrize(
    ("started_as", "words"),
    [
        (None, ""),
        (1000, "as whom everything was started"),
        (Missing(reason="root has no CAP_SETUID here"), "who starts nothing here: root has no CAP_SETUID here"),
    ],
    ids=["own", "that-user", "root"],
)
def test_the_report_says_as_whom_everything_was_started(started_as, words):
    from serving import machine as sample

    assert answer._started_as(sample(started_as=started_as)) == words
