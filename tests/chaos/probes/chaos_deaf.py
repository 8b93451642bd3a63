"""Are children ended that left the session, cleared their environment and ignore signals?"""

import subprocess

PROBE = {"id": "chaos.deaf", "feature": "chaos.deaf", "gpus": 0, "timeout_s": 20}
DEAF = 'trap "" TERM INT HUP; while :; do sleep 300; done'


def run():
    subprocess.Popen(["/bin/sh", "-c", DEAF], start_new_session=True, env={})
    subprocess.Popen(["/bin/sh", "-c", DEAF], start_new_session=True)
    return {}
