"""Is a daemon that a good probe leaves behind ended as well?"""

import subprocess

PROBE = {"id": "fake.daemon", "feature": "fake.daemon", "gpus": 0, "timeout_s": 20}


def run():
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    return {"pid": child.pid}
