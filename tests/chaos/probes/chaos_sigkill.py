"""Is a process that the kernel kills, as it does where memory is short, a row of its own?"""

import os
import signal

PROBE = {"id": "chaos.sigkill", "feature": "chaos.sigkill", "gpus": 0, "timeout_s": 20}


def run():
    os.kill(os.getpid(), signal.SIGKILL)
