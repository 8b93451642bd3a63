"""--as-user and --pid: who serves, what is examined then, and what cannot be."""

import json
import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from fi_doctor.cli import serving
from fi_doctor.cli.asked import Asked, begin_locked
from fi_doctor.errors import TargetError, UsageError
from fi_doctor.facts.server import Process, read_process
from fi_doctor.model import Missing

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def served(tmp_path):
    """A process of this Python with variables of its own, ended afterwards."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CUDA_HOME": "/opt/cuda-of-the-server"}
    argv = [sys.executable, "-c", WAIT]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_a_report_on_a_process_has_its_facts_and_what_differs(doctor, served):
    done = doctor("report", "--json", "--pid", served.pid, env={"CUDA_HOME": "/opt/cuda-of-the-shell"})
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["facts"]["server"]["pid"] == served.pid
    assert told["facts"]["environment"]["CUDA_HOME"] == "/opt/cuda-of-the-server"
    assert told["facts"]["interpreter"]["executable"] == sys.executable
    titles = [one["title"] for one in told["findings"] if one["id"] == "server-environment-differs"]
    assert "the server has another CUDA_HOME than you have" in titles


def test_a_check_for_another_user_looks_into_the_home_of_that_user(doctor):
    done = doctor("check", "--no-config", "--depth", "static", "--format", "json", "--as-user", "424242:7")
    facts = json.loads(done.stdout)["facts"]
    user = facts["machine"]["user"]
    assert (user["uid"], user["gid"], user["home"]) == (424242, 7, "/")
    assert facts["environment"]["HOME"] == "/"
    assert facts["system"]["uid"] == os.getuid()


@pytest.mark.parametrize(
    ("as_user", "pid", "recorded", "words"),
    [
        ("root", 12, "", "--pid and --as-user"),
        (None, 12, "--from", "--pid: nothing of this machine is read with --from"),
        ("root", None, "--example", "--as-user: nothing of this machine is read with --example"),
        ("", None, "", "--as-user: '' names no user"),
    ],
)
def test_what_does_not_go_together_is_refused(as_user, pid, recorded, words):
    with pytest.raises(UsageError, match=words):
        serving.check(as_user, pid, recorded=recorded)


@pytest.mark.parametrize("asked", [Asked(pid=12), Asked(as_user="root")])
def test_a_lock_is_not_compared_for_somebody_else(asked):
    with pytest.raises(UsageError, match="and --locked"):
        begin_locked(asked, None, is_locked=True, is_frozen=False, is_thorough=False)


@pytest.mark.parametrize("words", ["0", "-1", "4194305", "1.5", "abc", "²"])
def test_what_is_no_number_of_a_process_is_2(doctor, words):
    if words == "0":  # the others in one process each would cost more than they tell
        done = doctor("report", "--pid", words)
        assert done.returncode == 2
        assert "is no number of a process" in done.stderr
        return
    from fi_doctor.cli.options import _pid

    with pytest.raises(Exception, match="is no number of a process"):
        _pid(words)


def test_the_interpreter_of_the_process_is_examined_unless_one_is_named(served):
    assert serving.examined(None, None, served.pid).python == sys.executable
    assert serving.examined("/other/python", None, served.pid).python == "/other/python"
    environ = serving.examined(None, None, served.pid).environ
    assert environ["CUDA_HOME"] == "/opt/cuda-of-the-server"


def test_root_starts_nothing_that_another_user_has_chosen(served, monkeypatch):
    process = read_process(served.pid, {})
    other = process._replace(server=replace(process.server, user=replace(process.server.user, uid=4242)))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(TargetError) as refused:
        serving._check_trust(other)
    assert f"sudo -u '#4242' \"$(command -v fi-doctor)\" report --pid {served.pid}" in refused.value.todo
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    serving._check_trust(other)


def test_where_root_keeps_its_rights_nothing_from_the_home_of_another_user_runs(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ours")
    monkeypatch.setattr(serving, "_why_kept", lambda _: "root has no CAP_SETUID here")
    environ = serving.examined(None, "424242", None).environ
    assert (environ["HOME"], environ["PYTHONNOUSERSITE"]) == ("/", "1")
    own = serving.examined(None, f"{os.geteuid()}:{os.getegid()}", None)
    assert own.serving.user.is_own
    assert (own.environ["HOME"], own.environ.get("PYTHONNOUSERSITE")) == (
        "/home/ours",
        os.environ.get("PYTHONNOUSERSITE"),
    )


def test_without_either_nothing_is_changed():
    assert serving.examined(None, None, None) == (sys.executable, None, None)


def refusal(process: Process) -> TargetError:
    with pytest.raises(TargetError) as refused:
        serving._python_of(process)
    assert refused.value.exit_code == 2
    return refused.value


def test_a_process_in_a_container_is_examined_inside_of_it(served):
    process = read_process(served.pid, {})
    inside = replace(
        process.server, own_mounts=True, python=Missing(reason="it has files of its own"), root="/proc/7/root"
    )
    said = refusal(process._replace(server=inside, inner_pid=42))
    assert "fi-doctor report --pid 42 inside of that container" in said.todo
    assert "/proc/7/root" in said.todo


def test_of_a_launcher_the_child_is_named_that_runs_python(served):
    process = read_process(served.pid, {})
    shell = replace(process.server, python=Missing(reason="/bin/sh is no Python interpreter"))
    assert "fi-doctor report --pid 77, which it started" in refusal(process._replace(server=shell, pythons=(77,))).todo
    assert "--python /path/to/venv/bin/python" in refusal(process._replace(server=shell)).todo
