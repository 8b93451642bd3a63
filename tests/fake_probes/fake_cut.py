"""Is a record that ends in the middle of a line seen?"""

import os

PROBE = {"id": "fake.cut", "feature": "fake.cut", "gpus": 0, "timeout_s": 20}


def run():
    os.write(next(fd for fd in range(3, 50) if _is_record(fd)), b'{"variant": "", "endi')
    os._exit(0)


def _is_record(fd):
    try:
        return os.pread(fd, 10, 0).startswith(b'{"stage"')
    except OSError:
        return False
