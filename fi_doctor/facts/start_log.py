"""What vLLM's log says of the kernels that it chose, where a server or a tiny model was started. Pure.

The lines are those of vLLM 0.14.1, 0.20.2, 0.28.0 and 0.33.0: platforms/cuda.py:315 and :352 (0.14.1), :369 (0.20.2),
:487 (0.28.0), :448 and :509 (0.33.0) for attention; layers/fused_moe/oracle/*.py, and in 0.14.1 oracle/fp8.py:70,
oracle/nvfp4.py:82 and quantization/mxfp4.py:100-171 for experts; kernels/linear/__init__.py:390 (0.20.2), :690
(0.28.0), :779 (0.33.0) for FP8, :648 (0.20.2), :1060 (0.28.0), :1259 (0.33.0) for NVFP4 and modelopt.py:1142 (0.14.1);
v1/sample/ops/topk_topp_sampler.py:48 (0.14.1), :52 (0.20.2), :62 (0.28.0), :149 (0.33.0) for sampling. 0.14.1 logs
nothing of FP8 linear kernels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fi_doctor.model.choices import Served

_KINDS = r"(?:Unquantized|Fp8|Int8|WNA16|Mxfp4|MxFp8|NvFp4|W4A8|W4A8 Int8)"
_LINES: tuple[tuple[Served, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"Using (\w+) attention backend out of potential backends")),
    ("attention", re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) backend\.")),
    ("moe", re.compile(rf"Using '?([\w ]+?)'? {_KINDS} MoE backend")),
    ("moe", re.compile(r"Using ([\w ]+?) backend for (?:FP8|NvFp4) MoE")),
    ("moe", re.compile(r"Using (FlashInfer MXFP4 [\w ]+ backend for SM\d+)")),
    ("moe", re.compile(r"Using (Marlin|Triton) backend\s*$")),
    ("linear", re.compile(r"Selected (\w+) for \w+")),
    ("linear", re.compile(r"Using ([\w-]+) for (?:NVFP4|MXFP4|MXFP6|MXFP8) GEMM")),
    ("sampling", re.compile(r"Using (FlashInfer) for top-p & top-k sampling")),
    ("sampling", re.compile(r"FlashInfer (top-p/top-k sampling) (?:is available but disabled|disabled|unavailable)")),
)
# Where the log calls a choice otherwise than the enumeration that holds it.
_NAMES: Mapping[str, str] = {
    "FlashInfer MXFP4 BF16 backend for SM90": "SM90_FI_MXFP4_BF16",
    "FlashInfer MXFP4 BF16 backend for SM100": "SM100_FI_MXFP4_BF16",
    "FlashInfer MXFP4 MXFP8 CUTLASS backend for SM100": "SM100_FI_MXFP4_MXFP8_CUTLASS",
    "vLLM CUTASS": "VLLM_CUTLASS",
    "vLLM MARLIN": "MARLIN",
    "ROCm AITER": "AITER",
    "top-p/top-k sampling": "PYTORCH",
}


def read_log(text: str) -> dict[Served, tuple[str, ...]]:
    """Operator -> the names that vLLM's enumerations and classes have for what it took, in order, each once."""
    found: dict[Served, dict[str, None]] = {}
    for line in text.splitlines():
        for operator, pattern in _LINES:
            if match := pattern.search(line):
                found.setdefault(operator, {})[_name(operator, match[1])] = None
                break
    return {operator: tuple(names) for operator, names in found.items()}


def _name(operator: Served, said: str) -> str:
    if said in _NAMES:
        return _NAMES[said]
    return said if operator == "linear" else said.upper().replace(" ", "_")
