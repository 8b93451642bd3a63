"""Is an exception in a thread held against the probe?"""

import threading

PROBE = {"id": "fake.thread", "feature": "fake.thread", "gpus": 0, "timeout_s": 20}


def run():
    thread = threading.Thread(target=lambda: 1 / 0, name="worker")
    thread.start()
    thread.join()
    return {}
