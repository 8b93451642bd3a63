"""Does reading standard input end at once?"""

import sys

PROBE = {"id": "fake.stdin", "feature": "fake.stdin", "gpus": 0, "timeout_s": 20, "checks": "nothing"}


def run():
    return {"read": len(sys.stdin.read()), "path": repr([entry for entry in sys.path if entry.endswith("inside")])}
