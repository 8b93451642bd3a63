"""A process that serves, as /proc shows it: real processes, and folders laid out as the kernel does."""

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.errors import TargetError
from fi_doctor.facts import server
from fi_doctor.facts.machine import Serving, with_machine
from fi_doctor.model import LoadedLibrary, Missing

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
MAPS = (
    "7f0000-7f1000 r-xp 00000000 fe:00 123                        /venv/lib/libcudart.so.13\n"
    "7f1000-7f2000 r--p 00001000 fe:00 123                        /venv/lib/libcudart.so.13\n"
    "7f2000-7f3000 r-xp 00000000 fe:00 124                        /usr/lib/libcuda.so.580.95.05 (deleted)\n"
    "7f3000-7f4000 r-xp 00000000 fe:00 125                        /venv/lib/with blank/libnccl.so.2\n"
    "7f4000-7f5000 rw-p 00000000 00:00 0                          [heap]\n"
    "7f5000-7f6000 r-xp 00000000 fe:00 126                        /venv/lib/libcudart_static.a\n"
)
LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max cpu time              unlimited            unlimited            seconds   \n"
    "Max open files            1024                 524288               files     \n"
    "Max nice priority         0                    0                    \n"
)


@pytest.fixture
def started():
    """started(argv, ...): a process that waits, ended afterwards."""
    processes = []

    def start(argv=(sys.executable, "-c", WAIT), **changes):
        environ = {"PATH": os.environ["PATH"], **changes.pop("environ", {})}
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True, **changes
        )
        processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_process_is_read_as_it_was_started(started):
    process = started(
        [sys.executable, "-c", WAIT, "--api-key", "hunter22"],
        environ={"CUDA_HOME": "/opt/cuda", "HOME": "/srv/home", "HF_TOKEN": "hf_aaaaaaaaaaaaaaaaaaaaaaaa"},
        cwd="/",
    )
    found = server.read_process(process.pid, {"CUDA_HOME": "/usr/local/cuda"})
    assert found.environ["CUDA_HOME"] == "/opt/cuda"
    assert found.server.shell == {"CUDA_HOME": "/usr/local/cuda"}
    assert (found.server.user.uid, found.server.user.home, found.cwd) == (os.geteuid(), "/srv/home", "/")
    assert (found.server.parent, found.server.own_mounts, found.server.root) == (os.getpid(), False, "/")
    assert found.server.python == sys.executable
    assert "hunter22" not in found.server.command
    assert "hf_a" not in repr(found.server)
    assert found.server.limits["Max open files"].endswith("files")
    assert found.cpus == len(os.sched_getaffinity(0))


def test_a_virtual_environment_is_found_by_the_first_word(started, tmp_path):
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "pyvenv.cfg").write_text(f"home = {sysconfig.get_config_var('BINDIR')}\n")
    by_path = server.read_process(started([str(python), "-c", WAIT]).pid, {})
    assert by_path.server.python == str(python)
    by_name = server.read_process(started(["./python", "-c", WAIT], cwd=tmp_path / "bin").pid, {})
    assert python.samefile(by_name.server.python)
    titled = started(["VLLM::Worker", "-c", WAIT], executable=str(python), environ={"VIRTUAL_ENV": str(tmp_path)})
    assert server.read_process(titled.pid, {}).server.python == str(python)


def test_tools_are_looked_for_on_both_paths(started, tmp_path):
    tool = tmp_path / "ninja"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    process = started(environ={"PATH": "/nowhere"})
    tools = server.read_process(process.pid, {"PATH": str(tmp_path)}).server.tools
    assert (tools["ninja"], tools["nvcc"]) == (("", str(tool)), ("", ""))


def test_a_shell_is_no_python_and_its_children_are_named(started):
    script = f'{sys.executable} -c "{WAIT}"; :'
    process = started(["/bin/sh", "-c", script])
    found = server.read_process(process.pid, {})
    assert isinstance(found.server.python, Missing)
    assert "is no Python interpreter" in found.server.python.reason
    if Path(f"/proc/{process.pid}/task/{process.pid}/children").exists():
        [child] = found.pythons
        os.kill(child, signal.SIGKILL)


def test_a_process_that_ended_says_so(started):
    process = started()
    found = server.read_process(process.pid, {})
    server.check_alive(found)
    process.kill()
    process.communicate()
    with pytest.raises(TargetError, match="there is no process"):
        server.read_process(process.pid, {})
    with pytest.raises(TargetError, match="there is no process"):
        server.check_alive(found)


def test_a_zombie_has_ended(started):
    process = started()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(TargetError, match="ended while it was read"):
        server.read_process(process.pid, {})


def test_another_process_with_the_same_number_is_not_taken_for_it(started):
    process = started()
    found = server.read_process(process.pid, {})
    with pytest.raises(TargetError, match="ended while it was read"):
        server.check_alive(found._replace(state="1"))


def test_what_may_not_be_read_says_whose_it_is(started, monkeypatch):
    process = started()
    real = Path.open

    def forbid(path, *rest, **named):
        if path.name == "environ":
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **named)

    monkeypatch.setattr(Path, "open", forbid)
    with pytest.raises(TargetError) as refused:
        server.read_process(process.pid, {})
    assert refused.value.exit_code == 2
    assert refused.value.why == f"/proc/{process.pid}/environ may not be read by user {os.geteuid()}"
    assert "SYS_PTRACE" in refused.value.todo
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(TargetError) as refused:
        server.read_process(process.pid, {})
    assert f"; it belongs to user {os.getuid()}" in refused.value.why
    user = f"-u '#{os.getuid()}' " if os.getuid() else ""
    assert refused.value.todo.startswith(f'sudo {user}"$(command -v fi-doctor)" report --pid {process.pid} ')


def test_variables_that_a_title_has_overwritten_name_the_parent(started):
    with pytest.raises(TargetError) as refused:
        server.read_process(started(["/usr/bin/env", "-i", sys.executable, "-c", WAIT]).pid, {})
    assert f"--pid {os.getpid()}" in refused.value.todo


def test_a_thread_of_the_kernel_is_told_as_one(tmp_path):
    folder = tmp_path / "2"
    folder.mkdir()
    (folder / "stat").write_text("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n")
    with pytest.raises(TargetError, match="cannot be examined"):
        server.read_process(2, {}, tmp_path)


def test_of_two_variables_of_one_name_the_first_counts_and_titles_are_none():
    assert server.parse_environ("A=1\0A=2\0VLLM::EngineCore\0\0=x\0B=a=b\0") == {"A": "1", "B": "a=b"}


def test_limits_are_read_with_their_units():
    assert server.parse_limits(LIMITS) == {
        "Max cpu time": "unlimited",
        "Max open files": "1024 files",
        "Max nice priority": "0",
    }
    assert server.parse_limits("") == {}


def test_each_library_is_told_once_and_whether_its_file_is_still_there():
    assert list(server.loaded(MAPS)) == [
        LoadedLibrary(name="cuda", path="/usr/lib/libcuda.so.580.95.05", deleted=True),
        LoadedLibrary(name="cudart", path="/venv/lib/libcudart.so.13", deleted=False),
        LoadedLibrary(name="nccl", path="/venv/lib/with blank/libnccl.so.2", deleted=False),
    ]


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["vllm", "serve", "a b"], "vllm serve 'a b'"),
        (["x", "--api-key", "abc", "--port", "1"], "x --api-key <hidden> --port 1"),
        (["x", "--hf-token=abc"], "x --hf-token=<hidden>"),
        (["x", "--max-tokens", "12"], "x --max-tokens 12"),
        (["x", "sk-aaaaaaaaaaaaaaaaaaaaaaaa"], "x <hidden>"),
        (["x", "\x1b[2J"], r"x '\x1b[2J'"),
    ],
)
def test_secrets_of_a_command_are_hidden(argv, shown):
    assert server.shown_command(argv) == shown


def test_facts_beside_it_are_those_of_the_process(started, monkeypatch):
    process = started()
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    found = server.read_process(process.pid, {})
    facts = with_machine(make.facts(), make.survey(), found.environ, Serving(found.server.user, found))
    assert facts.system.cpus == 1
    assert facts.server == found.server
    assert facts.interpreter.serving == ("--pid", str(process.pid))
    assert facts.machine.user.found_by == f"--pid {process.pid}"
    elsewhere = found._replace(server=replace(found.server, root=f"/proc/{process.pid}/root", own_mounts=True))
    facts = with_machine(make.facts(), make.survey(), found.environ, Serving(found.server.user, elsewhere))
    assert [folder.purpose for folder in facts.machine.folders] == ["jit-cache", "temporary"]
    assert isinstance(facts.machine.driver_files.libcuda, Missing)
