"""Does output that is no text, and steers terminals, harm no report?"""

import os

PROBE = {"id": "chaos.escapes", "feature": "chaos.escapes", "gpus": 0, "timeout_s": 20}

STEERING = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b1m [bold]rich[/] <b>html</b> ]]> ::error::no \u202e"


def run():
    os.write(1, bytes(range(256)) * 64 + STEERING.encode() + b"\n")
    raise RuntimeError(STEERING)
