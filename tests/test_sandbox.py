import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fi_doctor import processes, sandbox

PYTHON = sys.executable


def python(code, **options):
    return sandbox.run([PYTHON, "-c", code], **{"timeout_s": 20, **options})


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def zombies(pids):
    return [pid for pid in pids if not is_alive(pid)]


def test_status_and_both_streams_are_kept():
    result = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (result.returncode, result.signal, result.timed_out) == (3, None, False)
    assert (result.stdout, result.stderr, result.error) == (b"out\n", b"err\n", "")


def test_merged_streams_keep_their_order():
    result = python("import os\nfor i in range(4): os.write(1 + i % 2, b'%d' % i)", merge=True)
    assert (result.stdout, result.stderr) == (b"0123", b"")


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name
)
def test_a_signal_is_told_from_a_status(number):
    result = python(f"import os; os.kill(os.getpid(), {int(number)})")
    assert (result.returncode, result.signal, result.timed_out) == (None, number, False)


def test_a_child_has_no_input_and_its_own_session():
    result = python("import os, sys; print(len(sys.stdin.read()), os.getsid(0) == os.getpid() == os.getpgid(0))")
    assert result.stdout == b"0 True\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/no/such/tool"], "/no/such/tool: No such file or directory"),
        (["/etc"], "/etc: Permission denied"),
        (["a\0b"], "embedded null byte"),
    ],
    ids=["missing", "not-executable", "null-byte"],
)
def test_what_cannot_be_started_is_told_in_words(argv, words):
    result = sandbox.run(argv, timeout_s=5)
    assert (result.returncode, result.signal) == (None, None)
    assert result.error == words


def test_a_file_that_is_no_program_is_told_in_words(tmp_path):
    tool = tmp_path / "tool"
    tool.write_bytes(b"\x7fELF nothing")
    tool.chmod(0o755)
    assert sandbox.run([str(tool)], timeout_s=5).error == f"{tool}: Exec format error"


def test_a_missing_folder_to_start_in_is_told_in_words():
    assert sandbox.run([PYTHON, "-c", ""], timeout_s=5, cwd="/no/such").error == "/no/such: No such file or directory"


def test_a_timeout_ends_the_whole_group():
    code = "import subprocess, sys, time\nprint(subprocess.Popen(['sleep', '300']).pid, flush=True)\ntime.sleep(300)\n"
    result = python(code, timeout_s=1)
    assert result.timed_out
    assert result.signal == signal.SIGKILL
    assert result.seconds < 3
    assert not is_alive(int(result.stdout))


def test_a_child_in_another_session_that_ignores_signals_is_found(children):
    deaf = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(300)"
    code = (
        "import os, subprocess, sys, time\n"
        f"one = subprocess.Popen([sys.executable, '-c', {deaf!r}], start_new_session=True)\n"
        "print(one.pid, flush=True)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if (pid := os.fork()): print(pid, flush=True); os._exit(0)\n"
        "    time.sleep(300)\n"
        "time.sleep(0.5)\n"
    )
    result = python(code)
    assert result.returncode == 0
    pids = [int(word) for word in result.stdout.split()]
    assert len(pids) == 2
    assert not any(map(is_alive, pids))
    assert zombies(children()) == []


def test_what_an_orphan_leaves_when_it_dies_just_then_is_found(monkeypatch):
    look = processes.children
    code = (
        "import os, subprocess, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    left = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "    print(os.getpid(), left.pid, flush=True)\n"
        "    time.sleep(300)\n"
        "time.sleep(0.5)\n"
    )

    def orphans_that_die_when_they_are_seen():
        found = look()
        for pid in found:
            if b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                os.kill(pid, signal.SIGKILL)
                while is_alive(pid):
                    time.sleep(0.001)
        return found

    monkeypatch.setattr(processes, "children", orphans_that_die_when_they_are_seen)
    result = python(code)
    parent, left = map(int, result.stdout.split())
    assert not is_alive(left)
    assert not is_alive(parent)


def test_an_orphan_that_cleared_its_environment_is_found(children):
    result = sandbox.run(["sh", "-c", "env -i setsid sleep 300 & sleep 0.3"], timeout_s=5)
    assert result.returncode == 0
    assert children() == []


def test_of_runs_that_end_at_the_same_time_one_finds_it(monkeypatch, children):
    both, kill = threading.Barrier(2), processes.HOUSEHOLD._kill_strays

    def once_both_are_there(group, marker):
        both.wait()
        kill(group, marker)

    monkeypatch.setattr(processes.HOUSEHOLD, "_kill_strays", once_both_are_there)
    code = "import subprocess; subprocess.Popen(['/bin/sleep', '300'], start_new_session=True, env={})"
    other = threading.Thread(target=python, args=(code,))
    other.start()
    python("pass")
    other.join()
    assert children() == []


def test_an_orphan_without_a_marker_is_not_laid_to_a_run_that_leaves_none(children):
    long = threading.Thread(
        target=sandbox.run, args=(["sleep", "1.5"],), kwargs={"timeout_s": 5, "leaves_orphans": False}
    )
    long.start()
    time.sleep(0.2)
    result = sandbox.run(["sh", "-c", "env -i setsid sleep 300 & sleep 0.3"], timeout_s=5)
    assert result.returncode == 0
    assert len(children()) == 1  # the long run's
    long.join()
    assert children() == []


def a_forked_child(code):
    """A Fork, and the orphan's number: a process in between starts it and leaves."""

    def fork(environ, output):
        wait, go = os.pipe()
        started = subprocess.run(
            ["sh", "-c", 'setsid "$@" >/dev/null & echo $!', "sh", PYTHON, "-c", code.format(wait=wait, output=output)],
            env=environ, pass_fds=(wait, output), stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        os.close(wait)
        return int(started.stdout), go

    return fork


WAITS = "import os\nif not os.read({wait}, 1): os._exit(9)\nos.dup2({output}, 1)\n"


def test_a_child_that_another_process_forked_is_seen_to_its_end(children):
    result = sandbox.run(["by", "name"], timeout_s=20, fork=a_forked_child(WAITS + "os.write(1, b'out'); os._exit(3)"))
    assert (result.argv, result.returncode, result.stdout) == (("by", "name"), 3, b"out")
    assert children() == []


def test_a_forked_child_is_timed_out_like_any(children):
    code = WAITS + "import time; print('go', flush=True); time.sleep(300)"
    result = sandbox.run([], timeout_s=1, fork=a_forked_child(code))
    assert (result.timed_out, result.signal) == (True, signal.SIGKILL)
    assert children() == []


def test_a_process_that_is_not_handed_over_is_let_go(monkeypatch):
    monkeypatch.setattr(processes, "_adopt_orphans", lambda *, wanted: False)
    pids = []

    def fork(environ, output):
        pid, go = a_forked_child(WAITS)(environ, output)
        pids.append(pid)
        return pid, go

    with pytest.raises(sandbox.NotForked, match="does not hand orphans over"):
        sandbox.run([], timeout_s=5, fork=fork)
    deadline = time.monotonic() + 5
    while is_alive(pids[0]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(pids[0])


def test_what_could_not_be_forked_leaves_no_descriptor():
    def fork(environ, output):
        raise sandbox.NotForked("no")

    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(sandbox.NotForked):
        sandbox.run([], timeout_s=5, fork=fork)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_without_adoption_the_marker_finds_a_stray(monkeypatch):
    monkeypatch.setattr(processes, "_adopt_orphans", lambda *, wanted: False)
    result = python("import subprocess; print(subprocess.Popen(['sleep', '300'], start_new_session=True).pid)")
    pid = int(result.stdout)
    deadline = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(pid)


def test_without_proc_a_run_still_ends(monkeypatch):
    monkeypatch.setattr(processes, "_read", lambda path: b"")
    monkeypatch.setattr(processes, "_all_pids", list)
    monkeypatch.setattr(processes, "_children_of", lambda task: [])
    assert python("print(1)").stdout == b"1\n"
    begun = time.monotonic()
    assert python("import subprocess\nfor _ in 'ab': subprocess.Popen(['sleep', '300'])").returncode == 0
    assert time.monotonic() - begun < 5  # its orphans are dead, and nobody lists them


def test_a_flood_of_output_is_neither_kept_nor_waited_for():
    result = sandbox.run(["head", "-c", "64M", "/dev/zero"], timeout_s=50)
    assert result.returncode == 0
    assert result.truncated
    assert len(result.stdout) == 64 * 1024


def test_the_tail_is_kept_up_to_the_limit():
    result = python("print('a' * 100 + 'b' * 9)", max_output=10)
    assert (result.stdout, result.truncated) == (b"b" * 9 + b"\n", True)
    assert not python("print('b' * 9)", max_output=10).truncated


def test_a_stray_that_holds_the_pipe_does_not_delay_the_end():
    result = python("import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True); print('done')")
    assert result.stdout == b"done\n"
    assert result.seconds < 3


def test_a_poll_that_says_true_ends_the_run_as_timed_out():
    polls = []

    def third():
        polls.append(time.monotonic())
        return len(polls) == 3

    result = python("import time; time.sleep(300)", on_poll=third)
    assert result.timed_out
    assert len(polls) == 3
    assert 0.3 < polls[2] - polls[0] < 2


def test_what_a_poll_raises_is_raised_once_the_child_is_dead(children):
    pids = []

    def fail():
        pids.extend(children())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        python("import time; time.sleep(300)", on_poll=fail)
    assert pids
    assert not any(map(is_alive, pids))


def test_a_poll_is_called_while_output_floods():
    result = sandbox.run(["cat", "/dev/zero"], timeout_s=20, on_poll=lambda: True)
    assert result.timed_out
    assert result.seconds < 3


def test_only_named_descriptors_are_inherited(tmp_path):
    with (tmp_path / "a").open("w+b") as given, (tmp_path / "b").open("w+b") as kept:
        os.set_inheritable(kept.fileno(), True)  # noqa: FBT003 - positional only
        code = (
            "import os\n"
            f"os.write({given.fileno()}, b'yes')\n"
            f"try: os.write({kept.fileno()}, b'no')\n"
            "except OSError: print('closed')\n"
        )
        assert python(code, pass_fds=(given.fileno(),)).stdout == b"closed\n"
        assert os.pread(given.fileno(), 9, 0) == b"yes"


def test_memory_is_limited_where_asked():
    result = python("import time; time.sleep(0.3); x = bytearray(1 << 30)", memory_mib=512)
    assert result.returncode == 1
    assert b"MemoryError" in result.stderr


def test_the_environment_is_the_given_one_and_a_marker():
    result = sandbox.run(["env"], timeout_s=5, env={"PATH": os.environ["PATH"], "A": "1"})
    names = {line.partition(b"=")[0] for line in result.stdout.splitlines()}
    assert names == {b"PATH", b"A", b"FI_DOCTOR_CHILD"}


def test_several_threads_each_lose_only_their_own_strays(children):
    results = {}

    def one(number):
        seconds = 0.2 * number
        code = (
            "import subprocess, sys, time\n"
            "print(subprocess.Popen(['sleep', '300'], start_new_session=True).pid, flush=True)\n"
            f"time.sleep({seconds})\n"
            "import os; print(open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read())\n"
        )
        results[number] = python(code)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results.values():
        stray, its_own = result.stdout.split(b"\n")[:2]
        assert stray in its_own.split()  # it lived as long as its own parent
        assert not is_alive(int(stray))
    assert zombies(children()) == []


def test_a_process_that_is_not_ours_is_left_alone():
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as stranger:
        python("pass")
        alive = stranger.poll() is None
        stranger.kill()
    assert alive


def test_adoption_is_switched_off_again():
    python("pass")
    assert not processes._adopts_orphans()


def test_a_run_within_a_run_is_found_by_the_outer_marker():
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from fi_doctor import sandbox\n"
        "print(sandbox.run(['printenv', 'FI_DOCTOR_CHILD'], timeout_s=5).stdout.decode())\n"
        "import os; print(os.environ['FI_DOCTOR_CHILD'])\n"
    )
    inner, outer = python(code).stdout.split()
    assert inner.startswith(outer + b":")


def test_a_quick_tool_costs_little_more_than_itself():
    def fastest(call):
        times = []
        for _ in range(10):
            begun = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun)
        return min(times)

    sandbox.run(["true"], timeout_s=5)
    plain = fastest(lambda: subprocess.run(["true"], capture_output=True, check=False))
    assert fastest(lambda: sandbox.run(["true"], timeout_s=5)) - plain < 0.015


BETWEEN = """
import os, sys, threading
from fi_doctor import processes, sandbox

# It takes a while until the last of so many folders is looked at for the program to execute.
path = ":".join(["none"] * 20000 + [os.defpath])
env = {"PATH": path, "THIS_TEST": sys.argv[1]}
run = lambda: sandbox.run(["sleep", "600"], timeout_s=600, env=env)
threading.Thread(target=run).start()
while not processes.children():
    pass
print(processes.MARKER.encode() in processes.environ(processes.children()[0]), flush=True)
processes.HOUSEHOLD.end()
print(run().error, flush=True)
os._exit(0)
"""


def test_a_child_that_is_just_being_started_ends_with_all_others_and_none_is_started_after_that():
    name = f"between-{os.getpid()}"
    environ = {**os.environ, "THIS_TEST": name}
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN, name], env=environ, capture_output=True, text=True, timeout=60
    )
    everybody = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    left = [pid for pid in everybody if f"THIS_TEST={name}".encode() in processes.environ(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert done.stdout == "False\nsleep: fi-doctor is ending\n"
    assert left == []
