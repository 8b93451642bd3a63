"""Is a segmentation fault a row of its own?"""

import ctypes

PROBE = {"id": "fake.segfault", "feature": "fake.segfault", "gpus": 0, "timeout_s": 20}


def run():
    ctypes.string_at(0)
