"""Is an import that never ends ended, with all that it started?"""

import subprocess
import time

PROBE = {"id": "chaos.import_hangs", "feature": "chaos.import_hangs", "gpus": 0, "build_timeout_s": 1}

subprocess.Popen(["sleep", "300"])
time.sleep(300)


def run():
    return {}
