"""Giving way to others on the machine, for this process and for all that it starts from then on."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

_LEAST = 19  # nice(2)
_OOM = Path("/proc/self/oom_score_adj")
_FIRST = 800  # oom_score_adj, proc(5): rather we are ended than a server, where memory runs out
_IDLE = 3 << 13  # ioprio_set(2): IOPRIO_CLASS_IDLE, which has the disk when nobody else wants it
_THIS_PROCESS = 1  # IOPRIO_WHO_PROCESS, of which number 0 is the caller
_NUMBERS = {"x86_64": 251, "aarch64": 30}  # of ioprio_set, which the C library has no function for


def give_way() -> None:
    """Take the processor and the disk after everybody else, and be the first to go; what is refused is left."""
    import ctypes

    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _LEAST)
    if (number := _NUMBERS.get(platform.machine())) is not None:
        ctypes.CDLL(None).syscall(number, _THIS_PROCESS, 0, _IDLE)
    with contextlib.suppress(OSError, ValueError):
        if int(_OOM.read_text(encoding="ascii")) < _FIRST:
            _OOM.write_text(str(_FIRST), encoding="ascii")
