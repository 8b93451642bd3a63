"""The processes below a process and the memory that they hold, by proc(5); and those that lost their parent.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator

MARKER = "FI_DOCTOR_NINJA"  # which ninja a process comes from; its children inherit it

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 2.0  # how long killed compilers may take to go
_POLL_S = 0.01
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Table:
    """Who is whose child, at one moment. Not every kernel has /proc/PID/task/TID/children, so all are looked at."""

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):  # noqa: PTH208 - for hundreds of names, twice a second
            if name.isdigit():
                self._children.setdefault(_parent(int(name)), []).append(int(name))

    def children(self, pid: int) -> list[int]:
        """Those that it started and has not reaped, and orphans that it took over."""
        return self._children.get(pid, [])

    def below(self, pid: int) -> Iterator[int]:
        """Its children, theirs and so on."""
        for child in self.children(pid):
            yield child
            yield from self.below(child)

    def memory_mib(self, pid: int) -> float:
        """What a process and all below it hold for themselves; pages of files, which can be read again, aside."""
        return sum(_own_pages(one) for one in (pid, *self.below(pid))) * _PAGE / (1 << 20)

    def orphans(self, ninjas: set[int]) -> int:
        """How many processes are ours now that came from a ninja which is no more."""
        return sum(pid not in ninjas and MARKER.encode() in _environ(pid) for pid in self.children(os.getpid()))


def adopt_orphans() -> None:
    """Have the kernel hand compilers to this process when their ninja is killed."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_orphans(mark: str) -> list[str]:
    """Kill what a ninja with this mark left behind, for which adopt_orphans is needed; the command lines that it had.

    They would go on beside the compilers that are started in their place, and leave a file that is half written.
    """
    commands: list[str] = []
    killed: set[int] = set()
    wanted = f"{MARKER}={mark}\0".encode()
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        table = Table()
        ours = [pid for pid in table.children(os.getpid()) if wanted in _environ(pid)]
        for pid in [one for own in ours for one in (own, *table.below(own))]:
            commands += [command(pid)] if pid not in killed else []
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        # Those below have lost their parents as well, and are ours once these are gone.
        killed -= {pid for pid in killed if _is_reaped(pid)}
        for pid in filter(_is_dead_orphan, table.children(os.getpid())):
            _is_reaped(pid)
        if not ours and not killed:
            break
        time.sleep(_POLL_S)
    return commands


def _is_dead_orphan(pid: int) -> bool:
    """Whether it came from a ninja and has ended by itself; what this process started is in its own group."""
    state, _, group, *_ = [*_stat(pid), b"", b"", b"0"]
    return state == b"Z" and int(group) not in (0, os.getpgrp())


def _is_reaped(pid: int) -> bool:
    """Take over what is left of a process that was killed; whether nothing is."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not _read(f"/proc/{pid}/stat")


def command(pid: int) -> str:
    """Its command line, the words with a blank between; "" when it is gone."""
    return _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")


def _parent(pid: int) -> int:
    """0 for a process that is gone."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def _stat(pid: int) -> list[bytes]:
    """From its state on. Source: proc(5): the name in brackets before that may hold anything, brackets too."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _own_pages(pid: int) -> int:
    """Pages in memory that are not those of a file. Source: proc(5), statm: size, resident, shared."""
    fields = _read(f"/proc/{pid}/statm").split()
    return max(0, int(fields[1]) - int(fields[2])) if len(fields) > 2 else 0


def _environ(pid: int) -> bytes:
    return _read(f"/proc/{pid}/environ")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            return file.read()
    except OSError:
        return b""
