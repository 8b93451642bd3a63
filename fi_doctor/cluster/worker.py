"""On a node, in a Ray worker: an order's child process is run, and how it ended is given back as plain values."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from fi_doctor import sandbox
from fi_doctor.processes import HOUSEHOLD, children

_MOST_OUTPUT = 64 << 20  # bytes, as much as a report may have
STOPPED_S = 5.0
_START = "import sys; sys.path[:0] = [sys.argv.pop(1)]; from fi_doctor.__main__ import main; main(sys.argv[1:])"
_OWN = Path(__file__).parents[1]


def run(
    words: tuple[str, ...], *, script: str, limit_s: float, gpus: int, variables: tuple[tuple[str, str], ...]
) -> tuple[int | None, int | None, bool, bytes, bytes, float, str]:
    """The fields of `grid.Ended`: of fi-doctor with these words, or of a script of fi_doctor/inside.

    The child has the environment of the worker, as what serves on this cluster would have it. It is killed with all
    that it started, also when this worker is, and when somebody has stopped it: that is known long before its limit.
    """
    HOUSEHOLD.has_others = True  # a worker may have children that are Ray's
    environ = {**environment(os.environ, gpus), **dict(variables)}
    for name in (name for name, value in variables if not value):
        del environ[name]
    if script:  # not isolated: it imports what serves, wherever PYTHONPATH has it
        argv = (sys.executable, str(_OWN / "inside" / script), *words)
    else:
        argv = (sys.executable, "-I", "-c", _START, str(_OWN.parent), *words)
    watch = Watch()
    done = sandbox.run(
        argv, timeout_s=limit_s, env=environ, max_output=_MOST_OUTPUT, leaves_orphans=False, on_poll=watch.is_over
    )
    error = done.error or watch.said
    return (done.returncode, done.signal, done.timed_out, done.stdout, done.stderr, done.seconds, error)


class Watch:
    """Looks whether a child is stopped, as by SIGSTOP: then it does nothing until somebody continues it."""

    def __init__(self) -> None:
        self.said = ""  # what it was ended for
        self._since: float | None = None

    def is_over(self) -> bool:
        """Whether one has been stopped for so long that nobody is about to continue it."""
        if not any(map(_is_stopped, children())):
            self._since = None
            return False
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since < STOPPED_S:
            return False
        self.said = f"it was stopped by a signal (state T), not continued within {STOPPED_S:g} s, and killed"
        return True


def environment(found: Mapping[str, str], gpus: int) -> dict[str, str]:
    """That of the worker without what Ray adds to a task that asks for no GPU: that it sees none.

    An older Ray sets CUDA_VISIBLE_DEVICES to nothing for it: then the raylet's own stands.
    """
    environ = dict(found)
    if not gpus and environ.get("CUDA_VISIBLE_DEVICES") == "":
        environ.pop("CUDA_VISIBLE_DEVICES")
        environ.update(_of_raylet(environ.get("RAY_RAYLET_PID", "")))
    return environ


def _is_stopped(pid: int) -> bool:
    """Source: proc(5), the state behind the name in brackets, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1] == [b"T"]
    except OSError:
        return False


def _of_raylet(pid: str) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES as the node was started with, where it was and that can be read."""
    try:
        entries = Path(f"/proc/{int(pid)}/environ").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return {}
    pairs = [os.fsdecode(entry).partition("=") for entry in entries]
    return {name: value for name, _, value in pairs if name == "CUDA_VISIBLE_DEVICES"}
