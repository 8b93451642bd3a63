"""Is host memory that runs out under a limit told as such?"""

PROBE = {"id": "chaos.memory", "feature": "chaos.memory", "gpus": 0, "timeout_s": 20}


def run():
    return {"bytes": len(bytearray(1 << 40))}
