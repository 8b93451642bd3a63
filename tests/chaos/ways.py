"""Ways in which a command is run under a fault: plainly, behind another command, or with signals on the way."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import acting_user
import jit_stack
from machine import Done
from waiting import wait_for

LIMIT_S = 120
HERE = pathlib.Path(__file__).parent


def plain(*features, **variables):
    """Without the start of an interpreter."""
    return lambda machine: machine.check(*features, **variables)


def behind(prefix, *features, **variables):
    """A whole process, started by these words; $TMPDIR and $HOME are the machine's."""

    def run(machine):
        return _ended(_started(machine, [*prefix, *machine.argv(*features)], **variables))

    return run


def shell(text, *features, **variables):
    """As behind, after these commands of a shell."""
    return behind(["sh", "-c", f'{text}\nexec "$@"', "sh"], *features, **variables)


def mounted(text, *features, **variables):
    """As shell, in a mount namespace of its own, which ends with it."""
    return behind(["unshare", "-m", "sh", "-e", "-c", f'{text}\nexec "$@"', "sh"], *features, **variables)


def unprivileged(uid, limits, *features, **variables):
    """As a user of whom nothing else runs, under these limits of prlimit(1), who may look into every folder."""

    def run(machine):
        for path in (machine.folder, machine.home, machine.tmp):
            os.chown(path, uid, uid)
        prefix = [*_as_user(uid), "prlimit", *limits]
        return behind(prefix, *features, **variables)(machine)

    return run


def in_memory_group(limit, *features, **variables):
    """In a control group of its own with so many bytes of memory, where the kernel ends what takes the most."""

    def run(machine):
        with _memory_group(limit) as group:
            return shell(f"echo $$ > {group}/cgroup.procs", *features, **variables)(machine)

    return run


@contextlib.contextmanager
def _memory_group(limit):
    """A group of version 1 or 2 below the one that this process is in, for as long as it is needed."""
    v1 = pathlib.Path("/sys/fs/cgroup/memory")
    own = [line.split(":", 2)[1:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
    path = next((path for controllers, path in own if controllers == ("memory" if v1.exists() else "")), "/")
    group = (v1 if v1.exists() else v1.parent) / path.lstrip("/") / f"chaos-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if v1.exists() else "memory.max")).write_text(str(limit))
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def for_user(*features):
    """As root with --as-user, whose processes are that user's."""
    return lambda machine: machine.check(*features, options=_of_user(machine))


def _of_user(machine):
    machine.tmp.chmod(0o1777)
    return "--as-user", f"{acting_user.UID}:{acting_user.GID}", "--python", acting_user.python()


def signalled(number, *features, after_s=None, for_user=False, **variables):
    """Told to end once the probe runs, or so many seconds after it takes such a word. for_user: as above."""

    def run(machine):
        options = _of_user(machine) if for_user else ()
        if for_user:
            machine.folder.chmod(0o777)
        child = _started(machine, machine.argv(*features, options=options), **variables)
        if after_s is None:
            wait_for(machine.begun.exists)
        else:
            wait_for(lambda: _is_caught(signal.SIGTERM, child[0].pid))
            time.sleep(after_s)
        child[0].send_signal(number)
        return _ended(child)

    return run


def unread(number, *features):
    """Told to end while it writes its report, which nobody reads."""

    def run(machine):
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        child = _started(machine, machine.argv(*features), stdout=writing)
        os.close(writing)
        wait_for(lambda: struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, b"\0" * 4))[0] == 4096)
        child[0].send_signal(number)
        done = _ended(child)
        os.close(reading)
        return done

    return run


def unheard(*features):
    """As before `| head`: whoever reads its report has gone before it is written."""

    def run(machine):
        reading, writing = os.pipe()
        child = _started(machine, machine.argv(*features), stdout=writing)
        os.close(writing)
        os.close(reading)
        return _ended(child)

    return run


def jumping(*features):
    """With a wall clock that jumps, for the command and for all that it starts."""

    def run(machine):
        library = _compiled(machine.folder / "clock.so", HERE / "clock.c")
        return behind([], *features, LD_PRELOAD=library)(machine)

    return run


def with_nvml(mode, *features):
    """With a driver's library that is at fault in this way."""

    def run(machine):
        _compiled(machine.folder / "libnvidia-ml.so.1", HERE.parent / "fake_nvml/nvml.c")
        return behind([], *features, LD_LIBRARY_PATH=machine.folder, FAKE_NVML_MODE=mode)(machine)

    return run


def _compiled(library, source):
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def compiled(source, holder="", budget_s=600, **variables):
    """Two modules are built for their probes, of which one has this script in place of a source.

    holder: who has taken FlashInfer's lock of that module, "live" or "dead".
    """

    def run(machine):
        stack = jit_stack.Stack(machine.folder / "stack", place=machine.site)
        stack.write("a", source)
        stack.write("b", "true")
        with contextlib.ExitStack() as held:
            if holder:
                _hold(stack.ops / "tmp/a.lock", held, is_dead=holder == "dead")
            words = {**stack.environ, "TMPDIR": machine.tmp, **variables}
            return machine.check(
                "chaos.module_a", "chaos.module_b", budget=f"{budget_s}s", **words
            )  # what modules may take

    return run


def building(machine):
    """The variables of an environment in which the module of chaos.module_b is to be built, and the compiler's log."""
    stack = jit_stack.Stack(machine.folder / "stack", place=machine.site)
    stack.write("b", "true")
    return stack.environ, stack.sources / "log"


def _hold(lock, held, *, is_dead):
    """Another process has the lock, and goes with it where it is dead."""
    lock.parent.mkdir(parents=True)
    code = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(99)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, lock], stdout=subprocess.PIPE)
    other.stdout.readline()
    held.callback(other.communicate)
    (other.kill if is_dead else functools.partial(held.callback, other.kill))()


def resized(*features):
    """On a terminal whose size changes all the time; progress goes to it, and the report does not."""

    def run(machine):
        ours, theirs = pty.openpty()
        child = _started(machine, machine.argv(*features), stderr=theirs, start_new_session=True)
        os.close(theirs)
        os.set_blocking(ours, False)
        said = b""
        size = 0
        while child[0].poll() is None:
            size = (size + 7) % 90
            fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", size % 3, size, 0, 0))
            child[0].send_signal(signal.SIGWINCH)
            time.sleep(0.02)
            said += _now(ours)
        said += _now(ours)
        os.close(ours)
        done = _ended(child)
        return done._replace(err=said.decode(errors="replace"))

    return run


def _now(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def _as_user(uid):
    reading = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")  # the interpreter may lie in a closed folder
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *reading]


def _is_caught(number, pid):
    """Whether a process has a handler for that signal: what comes before, the system answers."""
    [caught] = re.findall(r"SigCgt:\s*([0-9a-f]+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (number - 1) & 1)


def _started(machine, argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options):
    named = {"start_new_session": options.pop("start_new_session", False)}
    child = subprocess.Popen(
        argv,
        env=machine.environ(**options),
        cwd=machine.folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        **named,
    )
    return child, time.monotonic()


def _ended(started):
    child, begun = started
    try:
        out, err = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
    text = [(part or b"").decode(errors="replace") for part in (out, err)]
    return Done(child.returncode, *text, time.monotonic() - begun)


@functools.cache
def no_mounts():
    """Why nothing can be mounted here; "" where it can."""
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"mounting is not allowed: {done.stderr.strip()}"


@functools.cache
def no_memory_groups():
    """Why no control group can limit memory here; "" where one can."""
    try:
        with _memory_group(1 << 30) as group:
            return "" if os.access(group / "cgroup.procs", os.W_OK) else "its processes cannot be set"
    except OSError as error:
        return f"a control group for memory is not allowed: {error.strerror}: {error.filename}"


def no_ninja():
    return "" if shutil.which("ninja") else "no ninja"


def no_compiler():
    return "" if shutil.which("cc") else "no cc, which makes the stand-in"


@functools.cache
def no_users():
    """Why the interpreter cannot be started as another user; "" where it can."""
    code = "import os, sys; sys.exit(not os.access(sys.executable, os.X_OK))"
    done = subprocess.run([*_as_user(61234), "prlimit", sys.executable, "-c", code], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"another user cannot start {sys.executable} {done.stderr.strip()}".strip()
