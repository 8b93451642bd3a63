"""The children of this process: those that were started, and orphans that the kernel hands over.

Linux only: prctl(2) and proc(5). Where /proc or prctl is missing, less is found and nothing fails.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from fi_doctor.guarding import Guard, Start

MARKER = "FI_DOCTOR_CHILD"

_PATIENCE_S = 10.0  # how long a killed process may take to go: one that holds a GPU context needs a while
_END_PATIENCE_S = 2.0  # the same at the end of this process, when nobody needs to know how it ended
_LOOKS = 20  # for orphans, each after some that died meanwhile; for an environment
_EXEC_S = 0.001  # between two looks at a process that is becoming another program
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


class Child(Protocol):
    """What is needed of a started process: subprocess.Popen has it."""

    pid: int
    returncode: int


C = TypeVar("C", bound=Child)


class Household:
    """Who belongs to whom. One for all threads (HOUSEHOLD), because the kernel adopts orphans per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._started: set[int] = set()  # our own children, not yet reaped
        self._suspects: set[int] = set()  # of them, those that may leave orphans behind
        self._strangers: set[int] = set()  # children that were there before the first run
        self._adopting = False
        self._adopted_before = False
        self._is_over = False
        # This process has children that are none of ours, and adopts no orphan: it could not be told from one of them.
        self.has_others = False
        self.keeper = Guard()

    @contextlib.contextmanager
    def open_door(self) -> Iterator[None]:
        """Adopt orphans for as long as at least one run is inside."""
        with self._lock:
            if self._runs == 0:
                self._strangers = set(children())
                self._adopted_before = _adopts_orphans()
                self._adopting = not self.has_others and _adopt_orphans(wanted=True)
            self._runs += 1
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1
                if self._runs == 0 and self._adopting and not self._adopted_before:
                    _adopt_orphans(wanted=False)

    def guard(self, start: Start) -> str:
        """A word for the environment of children, so that they are ended, too, when this process is killed."""
        with self._lock:
            self.keeper.post(start)
            return self.keeper.word

    def start(self, spawn: Callable[[], C], *, suspect: bool = True) -> C:
        """Start a child and know it before another thread can take it for an orphan; an OSError after end()."""
        with self._lock:
            if self._is_over:
                raise OSError(errno.ECANCELED, "fi-doctor is ending")
            child = spawn()
            self._started.add(child.pid)
            self._suspects.update({child.pid} if suspect else ())
            self.keeper.session(child.pid, is_over=False)
        return child

    def bury(self, child: Child, marker: str) -> tuple[int | None, int | None]:
        """Kill the child's group, reap the child, kill and reap who left the group; its exit status or signal.

        The order matters: until the child is reaped its number cannot be given to another group.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        code, signum = _wait(child.pid)
        with self._lock:
            self.keeper.session(child.pid, is_over=True)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)
            # Popen would wait for the child by itself, and must not: its number may be somebody else's by then.
            child.returncode = code if code is not None else -(signum or 0)
            self._started.discard(child.pid)
            self._suspects.discard(child.pid)
        self._kill_strays(child.pid, marker.encode())
        return code, signum

    def end(self) -> None:
        """For the end of this process: kill all children, start none any more, wait a while until they are buried.

        A child between fork and exec does not carry the marker yet: nobody is looked for while one is being started.
        """
        patience = time.monotonic() + _END_PATIENCE_S
        is_locked = self._lock.acquire(timeout=_END_PATIENCE_S / 2)  # a start may be stuck: exec from a dead server
        try:
            self._is_over = True
            # Ctrl-C may have come between a start and the note of it.
            outer = os.environ.get(MARKER, "")
            mark = f"{MARKER}={outer}{':' if outer else ''}".encode()
            killed = [*self._started, *(pid for pid in children() if mark in environ(pid))]
            for pid in killed:
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
        finally:
            if is_locked:
                self._lock.release()
        while (self._runs or not all(map(_is_dead, killed))) and time.monotonic() < patience:
            time.sleep(0.002)
        self.keeper.dismiss()

    def _kill_strays(self, group: int, marker: bytes) -> None:
        """Kill until nobody is left, in rounds: the children of a dead stray arrive here once it is dead."""
        patience = time.monotonic() + _PATIENCE_S
        for pause in itertools.chain((0.0005, 0.001, 0.002, 0.005, 0.01), itertools.repeat(0.02)):
            strays = self._strays(marker, group)
            if (not strays and not _group_exists(group)) or time.monotonic() > patience:
                return
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(pause)

    def _strays(self, marker: bytes, group: int) -> list[int]:
        """Who carries this marker and is still alive; dead orphans are reaped on the way."""
        with self._lock:
            if group not in self._started:  # nobody has its number anew: a dead orphan is found without /proc, too
                _reap(-group)
            # What an orphan leaves arrives here when it dies, which may be after the list was made: look again, but
            # not for ever, since another run may let orphans die without end.
            for _ in range(_LOOKS):
                orphans = [pid for pid in children() if self._is_orphan(pid)] if self._adopting else []
                belonging = [pid for pid in orphans if self._belongs(environ(pid), marker)]
                dead = {pid for pid in orphans if _is_dead(pid)}
                if not sum(map(_reap, dead)):
                    break
            strays = [pid for pid in belonging if pid not in dead]
            if not self._adopting:  # orphans went to init: only the marker finds them
                strays += [pid for pid in _all_pids() if marker in environ(pid) and not _is_dead(pid)]
        return [pid for pid in strays if pid != os.getpid()]

    def _is_orphan(self, pid: int) -> bool:
        """Whether a child came by adoption. Nothing that a run started can be in our own session."""
        return pid not in self._started and pid not in self._strangers and _session(pid) not in (-1, os.getsid(0))

    def _belongs(self, environ: bytes, marker: bytes) -> bool:
        """An orphan that cleared its environment belongs to the last run whose child is buried."""
        return marker in environ or (not self._suspects and MARKER.encode() not in environ)


def _reap(pid: int) -> bool:
    """Whether a child was; a negative number is that of a group, of which one is."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    return False


HOUSEHOLD = Household()


def has_ended(pid: int) -> bool:
    """Whether a child of ours has ended; it is not reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # SIGCHLD is ignored here: the kernel reaps by itself
        return True


def is_child(pid: int) -> bool:
    """Whether a process is a child of ours, not yet reaped."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children() -> list[int]:
    """Children of all threads of this process, adopted ones included; the guard is none of those that are guarded."""
    try:
        tasks = list(Path("/proc/self/task").iterdir())
        found = [pid for task in tasks for pid in _children_of(task)]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN, or no /proc
        found = [pid for pid in _all_pids() if _stat(pid)[1:2] == [str(os.getpid()).encode()]]
    return [pid for pid in found if pid != HOUSEHOLD.keeper.pid]


def environ(pid: int) -> bytes:
    """The environment that a process started with; empty when it is gone, dead, a kernel's or not ours to read.

    While a process is becoming another program it seems to have none: it is asked again for a while.
    """
    for _ in range(_LOOKS):
        found = _read(Path(f"/proc/{pid}/environ"))
        if found or not _has_program(pid):
            break
        time.sleep(_EXEC_S)
    return found


def _has_program(pid: int) -> bool:
    """Whether it lives and executes a file that is ours to see."""
    try:
        return bool(Path(f"/proc/{pid}/exe").readlink()) and not _is_dead(pid)
    except OSError:
        return False


def _wait(pid: int) -> tuple[int | None, int | None]:
    """Exit status and signal of a child that has ended or is being killed, without reaping it."""
    patience = time.monotonic() + _PATIENCE_S
    while not has_ended(pid) and time.monotonic() < patience:
        time.sleep(0.002)
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None, None
    if ended is None:  # stuck in the kernel; SIGKILL will reach it some day
        return None, signal.SIGKILL
    return (ended.si_status, None) if ended.si_code == os.CLD_EXITED else (None, ended.si_status)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _adopts_orphans() -> bool:
    import ctypes  # noqa: PLC0415  # costs start-up time and is needed only once a process is started

    value = ctypes.c_int(0)
    return ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0) == 0 and value.value != 0


def _adopt_orphans(*, wanted: bool) -> bool:
    import ctypes  # noqa: PLC0415  # as above

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0)


def _children_of(task: Path) -> list[int]:
    try:
        return [int(pid) for pid in (task / "children").read_bytes().split()]
    except (FileNotFoundError, ProcessLookupError):
        if task.exists():  # the thread is there, so it is the kernel that has no such file
            raise
        return []


def _all_pids() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on (proc(5) calls it field 3); empty when it is gone."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()


def _session(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[3]) if len(fields) > 3 else -1


def _is_dead(pid: int) -> bool:
    return _stat(pid)[:1] in ([], [b"Z"], [b"X"])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
