"""A child process that cannot outlive, flood or block its parent: the only place that starts one.

Every child gets its own session, /dev/null as stdin, a time limit and bounded output. After every ending its whole
group is killed, and then whoever left the group: while a child runs this process adopts orphans
(PR_SET_CHILD_SUBREAPER), and a marker in the environment, which children inherit, tells whose orphan one is. A child
may also be forked by another child (run's fork): it is then adopted in the same way, and is no different afterwards.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Protocol

from msgspec.structs import replace

from fi_doctor import acting, processes
from fi_doctor.model import Data

POLL_S = 0.2

_CHUNK = 1 << 16

# Given the environment and a descriptor for stdout and stderr, it has a process forked that is to become our child, and
# gives its number and a pipe, owned by us: the process goes on at the first byte and leaves at the end of the pipe.
Fork = Callable[[Mapping[str, str], int], tuple[int, int]]


class NotForked(Exception):  # noqa: N818 - the caller starts a fresh process instead
    """Why a process that was to be forked is not there, in words."""


class Result(Data, frozen=True):
    """How a child ended and the last of what it said."""

    argv: tuple[str, ...]
    returncode: int | None  # None when a signal ended it or it never started
    signal: int | None  # SIGKILL when timed_out: that one is ours
    timed_out: bool
    stdout: bytes  # the last max_output bytes
    stderr: bytes  # the same; empty when merged
    seconds: float
    truncated: bool  # whether older output was dropped
    error: str  # why it could not be started, in words; "" otherwise


def run(  # noqa: PLR0913  # the one door to a process: what varies between its callers is said here
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
    max_output: int = 64 * 1024,
    merge: bool = False,
    on_poll: Callable[[], bool | None] | None = None,
    memory_mib: int | None = None,
    fork: Fork | None = None,
    leaves_orphans: bool = True,
) -> Result:
    """Run a command to its end and leave nothing of it behind.

    merge sends stderr into stdout, in order. on_poll is called about every 0.2 s; when it returns True, the child has
    timed out; what it raises is raised here once the child is dead. memory_mib limits the address space of the child
    itself, set just after its start. Never raises because of the command: Result.error tells why it did not start.
    Safe in several threads at once. With fork the child does not come from argv, cwd and pass_fds, its streams are
    merged, and NotForked is raised where it did not start. leaves_orphans=False: an orphan without a marker is
    somebody else's while this one runs. Who it runs as, the variables say (acting.VARIABLE).
    """
    begun = time.monotonic()
    marker = _new_marker(processes.HOUSEHOLD.guard(_start_guard))
    outputs = (_Tail(max_output), _Tail(max_output))

    variables = os.environ if env is None else env
    account = acting.account_of(variables)
    environ = {**acting.without_word(variables), processes.MARKER: marker}

    def spawn() -> _Child:
        if fork is not None:
            return _Forked(fork, environ)
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            env=environ,
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            bufsize=0,
            # Before it becomes the program. The kernel takes all capabilities from who was root and is no more. What
            # is installed to raise rights may still do so, as for the server: CUDA has nvidia-modprobe make devices.
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=account.groups if account else None,
        )

    with processes.HOUSEHOLD.open_door():
        try:
            child = processes.HOUSEHOLD.start(spawn, suspect=leaves_orphans)
        except (OSError, ValueError) as exc:
            return replace(_result(argv, begun, outputs), error=_in_words(argv, exc, account))
        try:
            _limit_memory(child.pid, memory_mib)
            timed_out = _attend(child, outputs, begun + timeout_s, on_poll)
        finally:
            code, signum = processes.HOUSEHOLD.bury(child, marker)
            _drain(child, outputs)
    return replace(_result(argv, begun, outputs), returncode=code, signal=signum, timed_out=timed_out)


class _Child(Protocol):
    """What is needed of a started process: subprocess.Popen has it."""

    pid: int
    returncode: int

    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...


class _Forked:
    """A process that another one forked, adopted."""

    stderr = None

    def __init__(self, fork: Fork, environ: Mapping[str, str]) -> None:
        self.returncode = 0
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading, "rb", buffering=0)
        try:
            self.pid, go = fork(environ, writing)
            _let_go(self.pid, go)
        except BaseException:
            self.stdout.close()
            raise
        finally:
            os.close(writing)


def _let_go(pid: int, go: int) -> None:
    with os.fdopen(go, "wb", buffering=0) as pipe:
        if not processes.is_child(pid):
            raise NotForked("this system does not hand orphans over to fi-doctor")
        with contextlib.suppress(BrokenPipeError):  # it is dead already, which is for its end to tell
            pipe.write(b"g")


class _Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self.kept = bytearray()
        self.truncated = False
        self._limit = limit

    def add(self, chunk: bytes) -> None:
        self.kept += chunk
        if len(self.kept) > self._limit:
            del self.kept[: len(self.kept) - self._limit]
            self.truncated = True


def remove_when_killed(folder: str) -> None:
    """Have a temporary folder removed though this process is killed; once a child was started by run."""
    processes.HOUSEHOLD.keeper.folder(folder)


def _start_guard(argv: Sequence[str], stdin: int) -> int:
    """In a session of its own, which no signal to ours reaches, and without anything that a child of ours has."""
    if not sys.executable:
        raise FileNotFoundError
    aside = ("aside",) if processes.HOUSEHOLD.has_others else ()  # Ray kills all children of a worker
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", *argv, *aside],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"LC_ALL": "C"},
        cwd="/",
        start_new_session=True,
    )
    child.returncode = child.wait() if aside else 0  # else it is not Popen's to wait for
    return 0 if aside else child.pid


def _new_marker(guarded: str) -> str:
    """A fresh marker that holds the outer one, so that a run within a run is found by both, and the guard's word."""
    outer = os.environ.get(processes.MARKER, "")
    return ":".join([*filter(None, [outer]), guarded, os.urandom(8).hex()])


def _in_words(argv: Sequence[str], exc: OSError | ValueError, account: acting.Account | None) -> str:
    if isinstance(exc, OSError):
        if account and exc.filename is None:  # it did not come to start the program
            return f"no process can be started as user {account.uid}: {exc.strerror or exc}"
        return f"{exc.filename or argv[0]}: {exc.strerror or exc}"
    return str(exc)


def _result(argv: Sequence[str], begun: float, outputs: tuple[_Tail, _Tail]) -> Result:
    """What is known of every run; how it ended is filled in by the caller."""
    out, err = outputs
    return Result(
        argv=tuple(argv),
        returncode=None,
        signal=None,
        timed_out=False,
        stdout=bytes(out.kept),
        stderr=bytes(err.kept),
        seconds=time.monotonic() - begun,
        truncated=out.truncated or err.truncated,
        error="",
    )


def _limit_memory(pid: int, memory_mib: int | None) -> None:
    """Limit the address space. Set from outside: code between fork and exec is not safe with threads."""
    if memory_mib is None:
        return
    import resource  # noqa: PLC0415  # rarely asked for

    limit = memory_mib << 20
    with contextlib.suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))


def _attend(
    child: _Child,
    outputs: tuple[_Tail, _Tail],
    deadline: float,
    on_poll: Callable[[], bool | None] | None,
) -> bool:
    """Read what the child says until it ends; whether its time was up first."""
    next_poll = time.monotonic() + POLL_S if on_poll is not None else float("inf")
    with selectors.DefaultSelector() as selector, _exit_event(child.pid) as exit_fd:
        if exit_fd is not None:
            selector.register(exit_fd, selectors.EVENT_READ)
        for stream, tail in _streams(child, outputs):
            selector.register(stream, selectors.EVENT_READ, tail)
        while not processes.has_ended(child.pid):
            now = time.monotonic()
            if now >= deadline:
                return True
            if on_poll is not None and now >= next_poll:
                next_poll = now + POLL_S
                if on_poll():
                    return True
            # A kernel without pidfd is asked every 10 ms instead.
            longest = 60.0 if exit_fd is not None else 0.01
            for key, _ in selector.select(min(max(min(deadline, next_poll) - now, 0.0), longest)):
                if isinstance(key.data, _Tail) and not _read(key.fd, key.data):
                    selector.unregister(key.fileobj)
    return False


@contextlib.contextmanager
def _exit_event(pid: int) -> Iterator[int | None]:
    """A descriptor that is readable once the process has ended; None where the kernel has no such thing."""
    try:
        fd = os.pidfd_open(pid)
    except (OSError, AttributeError):
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _streams(child: _Child, outputs: tuple[_Tail, _Tail]) -> list[tuple[IO[bytes], _Tail]]:
    pairs = zip((child.stdout, child.stderr), outputs, strict=True)
    return [(stream, tail) for stream, tail in pairs if stream is not None]


def _read(fd: int, tail: _Tail) -> bool:
    """Take one chunk; False at the end of the stream."""
    chunk = os.read(fd, _CHUNK)
    tail.add(chunk)
    return bool(chunk)


def _drain(child: _Child, outputs: tuple[_Tail, _Tail]) -> None:
    """Take what is left in the pipes without waiting for anybody who may still hold them, and close them."""
    for stream, tail in _streams(child, outputs):
        os.set_blocking(stream.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while _read(stream.fileno(), tail):
                pass
        stream.close()
