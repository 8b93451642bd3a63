"""Is a kernel that never ends ended, with its context? It spins on the GPU's clock for some centuries."""

PROBE = {"id": "gpu.endless_kernel", "feature": "gpu.endless_kernel", "timeout_s": 5, "build_timeout_s": 300}


def run():
    import torch

    torch.cuda._sleep(1 << 62)
    torch.cuda.synchronize()
    return {}
