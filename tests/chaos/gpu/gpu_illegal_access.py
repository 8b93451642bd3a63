"""Is an illegal memory access, which ends the context, a row of its own? The second variant needs a fresh one."""

import torch
import triton
import triton.language as tl

PROBE = {
    "id": "gpu.illegal_access",
    "feature": "gpu.illegal_access",
    "compiles": ["triton"],
    "timeout_s": 60,
    "variants": {"far": {}, "near": {}},
}


@triton.jit
def store(place, offset):
    tl.store(place + offset, 1)


def run(variant):
    numbers = torch.zeros(4, device="cuda", dtype=torch.int32)
    store[(1,)](numbers, 1 << 44 if variant == "far" else 1)
    torch.cuda.synchronize()
    return {"sum": int(numbers.sum())}
