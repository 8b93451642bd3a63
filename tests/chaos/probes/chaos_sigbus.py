"""Is a bus error (a file that was cut off under a mapping) a row of its own?"""

import mmap
import os
import tempfile

PROBE = {"id": "chaos.sigbus", "feature": "chaos.sigbus", "gpus": 0, "timeout_s": 20}


def run():
    with tempfile.TemporaryFile() as file:
        os.truncate(file.fileno(), mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        os.truncate(file.fileno(), 0)
        return {"byte": mapped[0]}
