"""Is a process that the kernel ends, since memory of the control group ran out, told as such? It stops at 1 GiB."""

PROBE = {"id": "chaos.memory_used", "feature": "chaos.memory_used", "gpus": 0, "timeout_s": 20}


def run():
    return {"bytes": sum(map(len, [bytearray(b"\1") * (16 << 20) for _ in range(64)]))}
