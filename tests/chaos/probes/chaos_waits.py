"""Is a process ended with the command that a signal ends? It says in $CHAOS_BEGUN that it is there."""

import os
import pathlib
import subprocess
import time

PROBE = {"id": "chaos.waits", "feature": "chaos.waits", "gpus": 0, "timeout_s": 60}


def run():
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    pathlib.Path(os.environ["CHAOS_BEGUN"]).touch()
    time.sleep(300)
