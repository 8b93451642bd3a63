"""Is a build that goes on for ever told from a hang?"""

import time

PROBE = {"id": "fake.slow_build", "feature": "fake.slow_build", "gpus": 0, "timeout_s": 20, "build_timeout_s": 1}


def build():
    time.sleep(300)


def run():
    return {}
