"""Ends what a process started, once that process is gone: however it went, it holds the other end of a pipe no more.

    python guard.py WORD [aside]

On stdin come "+N" for a session that begins, "-N" for one that is over, and "=PATH" for a folder that is to go. At its
end all processes are ended that are of such a session, or that have WORD in their environment, which children inherit:
first they are asked to, so that a ninja can delete what is half written, then killed. Then the folders are removed.
With "aside" it is nobody's child: Ray kills those of its workers.
Standard library, Python >= 3.9. Linux only: proc(5).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

GRACE_S = 1.0  # between SIGTERM and SIGKILL
PATIENCE_S = 10.0  # how long a killed process may take to go: one that holds a GPU context needs a while
PAUSE_S = 0.02
QUIET = 3  # looks that find nobody: what is becoming another program seems to have no environment


def main(word: str) -> None:
    """Wait, then end them."""
    sessions: set[int] = set()
    folders: list[bytes] = []
    for line in sys.stdin.buffer:
        if line[:1] == b"=":
            folders.append(line[1:].rstrip(b"\n"))
        else:
            (sessions.add if line[:1] == b"+" else sessions.discard)(int(line[1:]))
    begun = time.monotonic()
    signal_all(left(word, sessions), signal.SIGTERM)
    quiet = 0
    while quiet < QUIET and time.monotonic() < begun + GRACE_S + PATIENCE_S:
        found = left(word, sessions)
        quiet = 0 if found else quiet + 1
        if time.monotonic() > begun + GRACE_S:
            signal_all(found, signal.SIGKILL)
        time.sleep(PAUSE_S)
    import shutil  # what is seldom needed is not waited for by every start

    for folder in folders:
        shutil.rmtree(os.fsdecode(folder), ignore_errors=True)


def left(word: str, sessions: set[int]) -> list[int]:
    """Who is to be ended and lives."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and _is_alive(pid) and _belongs(pid, word.encode(), sessions)]


def signal_all(pids: Iterable[int], number: int) -> None:
    """Those that are gone, or somebody else's, are left alone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _belongs(pid: int, word: bytes, sessions: set[int]) -> bool:
    fields = _stat(pid)
    return (len(fields) > 3 and int(fields[3]) in sessions) or word in _read(pid, "environ")


def _is_alive(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], [b"Z"], [b"X"])


def _stat(pid: int) -> list[bytes]:
    """From its state on. Source: proc(5): the name in brackets before that may hold anything, brackets too."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    if sys.argv[2:] and os.fork():
        os._exit(0)
    main(sys.argv[1])
