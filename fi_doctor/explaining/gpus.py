"""The compute capability of a GPU by its name.

Sources: NVIDIA's tables, https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus; for
the H20 https://docs.nvidia.com/datacenter/tesla/mig-user-guide/610/supported-gpus.html, for the L20
https://nvidia.github.io/TensorRT-LLM/supported-hardware.html. The A800, H800, A10G, A10M, T4G, V100S, L2 and B100 are
in none of them: they have the chips of A100, H100, A10, T4, V100, L4 and B200. Jetson Thor is 11.0 since CUDA 13, and
was 10.1 before.
"""

from __future__ import annotations

from fi_doctor.explaining.patterns import search

_RTX = r"(?:RTX ?|^)"  # people leave it out
# The first pattern that a name has decides: "RTX 4000 Ada" before "Quadro RTX 4000".
_NAMES: tuple[tuple[str, int], ...] = (
    (r"\bGB10\b|DGX Spark", 121),
    (rf"RTX PRO \d{{4}}|RTX \d{{4}} PRO|{_RTX}50[5-9]0", 120),
    (r"\bThor\b|Jetson T[45]000", 110),
    (r"\bG?B300\b", 103),
    (r"\bG?B[12]00\b", 100),
    (r"\bG?H200\b|\bH[18]00\b|\bH20e?\b", 90),
    (rf"\bL(?:40S?|4|20|2)\b|RTX \d{{3,4}}(?: SFF)? Ada|{_RTX}40[5-9]0", 89),
    (r"\bOrin\b", 87),
    (rf"\bA(?:40|16|10[GM]?|2)\b|RTX A\d{{3,4}}|{_RTX}30[5-9]0", 86),
    (r"\bA(?:100|800|30)X?\b", 80),
    (rf"\bT4G?\b|\bT(?:400|500|550|600|1000|1200|2000)\b|Quadro RTX|TITAN RTX|{_RTX}20[6-8]0|GTX ?16[356]0", 75),
    (r"\bXavier\b", 72),
    (r"\bG?V100S?\b|TITAN V\b", 70),
    (r"\bP(?:40|4)\b|GTX ?10[5-8]0|TITAN Xp\b|Quadro P\d{3,4}", 61),
    (r"\bG?P100\b", 60),
    (r"\bM(?:40|60)\b|GTX ?9[5-8]0|Quadro M[4-6]000", 52),
)


def sm_of(name: str) -> int | None:
    """The compute capability, 90 for 9.0; None for a name that is not known."""
    spaced = name.replace("_", " ").replace("-", " ")
    return next((sm for pattern, sm in _NAMES if search(f"(?i){pattern}", spaced) is not None), None)
