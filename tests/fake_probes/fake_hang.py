"""Is a hang ended together with its grandchildren, those in other sessions too?"""

import os
import subprocess
import sys
import time

PROBE = {"id": "fake.hang", "feature": "fake.hang", "gpus": 0, "timeout_s": 1, "build_timeout_s": 20}

DEAF = "import os, signal, time; os.setsid(); [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(300)"


def run():
    subprocess.Popen(["sleep", "300"])
    subprocess.Popen([sys.executable, "-c", DEAF])
    if os.fork() == 0:  # a daemon: its parent leaves and its session is its own
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
    time.sleep(300)
