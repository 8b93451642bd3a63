"""Permissions that stop root too, so that what they do to a program is tested whoever runs the tests."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PR_CAPBSET_DROP = 24
_OVERRIDES = (1, 2)  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


def obey_permissions():
    """For preexec_fn: root that has dropped these before it starts a program is stopped by permissions like anybody."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in _OVERRIDES:
        if os.geteuid() == 0 and libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "this root cannot give up its powers")


def printed_by(code, *args):
    """What this Python prints for `code`, with permissions obeyed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *map(str, args)]
    done = subprocess.run(command, env=env, preexec_fn=obey_permissions, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
