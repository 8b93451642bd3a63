"""A process whose child is killed and leaves processes behind; what end_orphans() makes of them, as JSON.

    python orphans.py plain | traced

"traced": of one of them the kernel tells its parent only when the tracer has gone, as it is with one that cannot die.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fi_doctor.inside import below

PTRACE_SEIZE, PR_SET_PTRACER, ANYBODY = 0x4206, 0x59616D61, -1


def descend(depth, ready):
    """A process that starts one that starts one: each waits for a signal."""
    if depth and os.fork() == 0:
        descend(depth - 1, ready)
    elif not depth:
        os.write(ready, b".")
    time.sleep(60)
    os._exit(0)


def ninja(mark):
    """Start a process that starts two families, with the mark in their environment; it is killed then."""
    code = (
        "import os, sys; sys.path[:0] = sys.argv[2:]; import orphans\n"
        "for _ in range(2):\n    if os.fork() == 0: orphans.descend(2, int(sys.argv[1]))\n"
        "orphans.time.sleep(60)"
    )
    reading, ready = os.pipe()
    command = [sys.executable, "-c", code, str(ready), str(Path(__file__).parent), *sys.path[1:]]
    run = subprocess.Popen(command, pass_fds=[ready], env={**os.environ, below.MARKER: mark})
    for _ in range(2):
        os.read(reading, 1)
    run.kill()
    run.wait()


def traced(pid):
    """A process that traces this one, which is its parent's then only when the tracer has gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    reading, ready = os.pipe()
    tracer = os.fork()
    if tracer == 0:
        os.write(ready, b"+" if libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0 else b"-")
        time.sleep(60)
        os._exit(0)
    return tracer if os.read(reading, 1) == b"+" else 0


def main(how):
    below.adopt_orphans()
    ninja("mark")
    left = below.Table().children(os.getpid())
    tracer = traced(left[0]) if how == "traced" else 0
    begun = time.monotonic()
    commands = below.end_orphans("mark")
    seconds = time.monotonic() - begun
    table = below.Table()
    told = {"families": len(left), "commands": len(commands), "seconds": seconds, "traced": bool(tracer)}
    told["left"] = [pid for pid in table.children(os.getpid()) if pid != tracer]
    if tracer:
        os.kill(tracer, signal.SIGKILL)
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
