"""Is a GPU without that much memory told as such? It asks for more than any has."""

PROBE = {"id": "gpu.out_of_memory", "feature": "gpu.out_of_memory", "timeout_s": 60}


def run():
    import torch

    return {"bytes": torch.empty(1 << 44, device="cuda", dtype=torch.uint8).numel()}
