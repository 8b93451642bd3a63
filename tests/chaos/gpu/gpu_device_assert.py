"""Is a device-side assert, after which the context is dead, a row of its own? Its second variant needs a fresh one."""

PROBE = {
    "id": "gpu.device_assert",
    "feature": "gpu.device_assert",
    "timeout_s": 60,
    "variants": {"outside": {}, "inside": {}},
}


def run(variant):
    import torch

    index = torch.tensor([9 if variant == "outside" else 3], device="cuda")
    taken = torch.arange(4, device="cuda")[index]
    torch.cuda.synchronize()
    return {"taken": int(taken)}
