"""Is a record that holds what is no JSON, no text and no line seen, however it goes on?"""

import os

PROBE = {"id": "chaos.torn", "feature": "chaos.torn", "gpus": 0, "timeout_s": 20}


def run():
    for number in range(3, 50):
        try:
            if os.pread(number, 10, 0).startswith(b'{"stage"'):
                os.write(number, b'\xff\x00{"variant": "", "ending": "returned"\n')
        except OSError:
            continue
    return {}
