"""Are the variants around one that crashes unharmed?"""

import ctypes
import os
import sys

PROBE = {
    "id": "fake.second_crashes",
    "feature": "fake.second_crashes",
    "gpus": 0,
    "timeout_s": 20,
    "variants": {"first": {}, "second": {}, "third": {}},
}


def build(variant):
    sys.stdout.write(f"building {variant}\n")


def run(variant):
    if variant == "second":
        ctypes.string_at(0)
    return {"pid": os.getpid()}
