"""Is a gibibyte of output neither kept nor waited for?"""

import sys

PROBE = {"id": "fake.loud", "feature": "fake.loud", "gpus": 0, "timeout_s": 40}


def run():
    chunk = b"x" * (1 << 20)
    for _ in range(1024):
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.write(b"the last words\n")
    return {}
