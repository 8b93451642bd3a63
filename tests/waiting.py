"""Waiting, in a test, for what another process does."""

from __future__ import annotations

import time


def wait_for(condition, seconds=30.0):
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
