"""Does FlashInfer's own gate let an FP8 block-scale CUTLASS MoE call through on this GPU with this nvcc?

Shapes: 4 tokens of 256, 2 experts of 128, top 1; e4m3 weights with one float32 scale for each block of 128x128.

Nothing is computed. No kernel is compiled or run: the function that would build the module is replaced, and reaching it
is all that is asked. A call that the gate refuses raises what a server would raise.

Upstream: flashinfer/fused_moe/core.py (cutlass_fused_moe)
"""

import os
import sys

PROBE = {
    "id": "moe.fp8_block_gate",
    "feature": "moe.fp8_block",
    "module": "",
    "requires": {
        "sm": ">=90,<91",
        "flashinfer": ">=0.5",
        "symbols": ["flashinfer.fused_moe.core.cutlass_fused_moe"],
    },
    "gpus": 1,
    "timeout_s": 60,
    "checks": "gate",
}

TOKENS, HIDDEN, INTERMEDIATE, EXPERTS, BLOCK = 4, 256, 128, 2, 128


class _GateOpenError(Exception):
    """Raised in place of the build that follows the gate."""


def run():
    from flashinfer.fused_moe import core
    from flashinfer.jit.cpp_ext import get_cuda_version

    def build_nothing(*_, **__):
        raise _GateOpenError

    original = core.get_cutlass_fused_moe_module
    core.get_cutlass_fused_moe_module = build_nothing
    try:
        _call(core)
    except _GateOpenError:
        return {"gate": "open", "gate_version": str(get_cuda_version())}
    finally:
        core.get_cutlass_fused_moe_module = original
    raise RuntimeError("cutlass_fused_moe returned without asking for its module: this probe does not fit this version")


def _call(core):
    import torch

    device = _device()

    def weights(*shape):
        return torch.ones(shape, device=device).to(torch.float8_e4m3fn)

    def scales(rows, columns):
        return torch.ones(EXPERTS, rows // BLOCK, columns // BLOCK, device=device)

    core.cutlass_fused_moe(
        torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device),
        torch.zeros(TOKENS, 1, dtype=torch.int32, device=device),
        torch.ones(TOKENS, 1, device=device),
        weights(EXPERTS, 2 * INTERMEDIATE, HIDDEN),
        weights(EXPERTS, HIDDEN, INTERMEDIATE),
        torch.bfloat16,
        quant_scales=[scales(2 * INTERMEDIATE, HIDDEN), scales(HIDDEN, INTERMEDIATE)],
        use_deepseek_fp8_block_scale=True,
    )


def _device():
    """The GPU; the CPU only where the checks themselves are tested against a stand-in for FlashInfer."""
    import torch

    name = os.environ.get("FI_DOCTOR_PROBE_DEVICE", "cuda")
    return torch.device(name, 0) if name == "cuda" else torch.device(name)


if __name__ == "__main__":
    import torch

    if torch.cuda.device_count() < PROBE["gpus"]:
        sys.exit(f"{PROBE['id']} needs {PROBE['gpus']} GPU, torch sees {torch.cuda.device_count()}")
    sys.exit(print(run()))
