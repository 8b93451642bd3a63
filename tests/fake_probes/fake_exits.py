"""Is leaving in the middle seen, whatever the status?"""

import os
import sys

PROBE = {
    "id": "fake.exits",
    "feature": "fake.exits",
    "gpus": 0,
    "timeout_s": 20,
    "variants": {"zero": {}, "three": {}, "sys_exit": {}, "fine": {}},
}


def run(variant):
    if variant == "zero":
        os._exit(0)
    if variant == "three":
        os._exit(3)
    if variant == "sys_exit":
        sys.exit(4)
    return {}
