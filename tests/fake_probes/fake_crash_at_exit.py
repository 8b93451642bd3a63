"""Is a verdict kept when Python crashes on its way out?"""

import atexit
import os

PROBE = {"id": "fake.crash_at_exit", "feature": "fake.crash_at_exit", "gpus": 0, "timeout_s": 20}


def run():
    atexit.register(os.abort)
    return {"done": True}
