"""Is an abort while building a row of its own?"""

import os

PROBE = {"id": "fake.abort", "feature": "fake.abort", "gpus": 0, "timeout_s": 20}


def build():
    os.abort()


def run():
    return {}
