"""Is a record that holds what is no JSON, no text and no line seen, however it goes on?"""

import os

PROBE = {"id": "chaos.torn", "feature": "chaos.torn", "gpus": 0, "timeout_s": 20}


def run():
    os.write(next(fd for fd in range(3, 50) if _is_record(fd)), b'\xff\x00{"variant": "", "ending": "returned"\n')
    return {}


def _is_record(fd):
    try:
        return os.pread(fd, 10, 0).startswith(b'{"stage"')
    except OSError:
        return False
