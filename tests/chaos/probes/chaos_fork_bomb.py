"""Is a process that forks without end, and each of which does, ended to the last?"""

import contextlib
import os
import time

PROBE = {"id": "chaos.fork_bomb", "feature": "chaos.fork_bomb", "gpus": 0, "timeout_s": 1}
MOST_S = 30.0  # a bomb that nobody ends does not outlive the test by much


def run():
    end = time.monotonic() + MOST_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            os.fork()
    os._exit(0)
