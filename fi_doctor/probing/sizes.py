"""What modules take on the disk, by those that were measured. Pure.

Objects, library and ninja's files of one module, compiled for sm_90a with nvcc 13.0; the larger of FlashInfer 0.5.3 and
0.7.2.post1. Of any other module nothing is said.
"""

from __future__ import annotations

from fi_doctor.model import Missing

DISK_MIB = {
    "norm": 3.7,  # 2.2 with 0.5.3
    "page": 1.9,  # 1.2 with 0.5.3
    "sampling": 13.0,  # 0.5.3
    "silu_and_mul": 0.3,
    "gelu_and_mul": 0.3,
}


def disk_mib(module: str) -> float | Missing:
    """What the whole module takes once it is compiled."""
    known = DISK_MIB.get(module)
    return Missing(reason="no such module was measured") if known is None else known
