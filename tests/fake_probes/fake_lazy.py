"""Does the first call of what is compiled when it is called count as the build?"""

import time

PROBE = {
    "id": "fake.lazy",
    "feature": "fake.lazy",
    "gpus": 0,
    "timeout_s": 1,
    "build_timeout_s": 20,
    "compiles": ["triton"],
}

calls = []


def run():
    calls.append(1)
    if len(calls) == 1:
        time.sleep(1.5)
    return {"calls": len(calls)}
