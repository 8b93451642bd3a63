"""The compute capability of a GPU by its name. Source: NVIDIA's table, https://developer.nvidia.com/cuda-gpus."""

from __future__ import annotations

from fi_doctor.explaining.patterns import search

# The first pattern that a name has decides: "RTX PRO 6000 Blackwell" before "RTX 6000", "GB200" before "B200".
_NAMES: tuple[tuple[str, int], ...] = (
    (r"GB10\b|DGX Spark|THOR-?SPARK", 121),
    (r"RTX PRO \d{4}|RTX 50\d\d|50\d0 ?(?:D|Ti)?$", 120),
    (r"\bG?B300\b", 103),
    (r"\bG?B[12]00\b|HGX B200|DGX B200", 100),
    (r"Jetson (?:AGX )?Thor|Thor", 110),
    (r"\bG?H[128]00\b|\bH20\b|\bGH200\b|\bL20Y\b|H100|H200|H800", 90),
    (r"\bL40S?\b|\bL4\b|\bL20\b|\bL2\b|RTX 40\d\d|RTX (?:4000|4500|5000|5880|6000) Ada|RTX 6000 Ada", 89),
    (r"Jetson (?:AGX )?Orin|\bOrin\b", 87),
    (r"\bA10G?\b|\bA16\b|\bA2\b|\bA40\b|RTX 30\d\d|RTX A[2-6]\d{3}", 86),
    (r"\bA100\b|\bA30\b|\bA800\b", 80),
    (r"\bT4\b|RTX 20\d\d|GTX 16\d\d|TITAN RTX|Quadro RTX", 75),
    (r"\bV100\b|TITAN V\b", 70),
    (r"\bP100\b", 60),
    (r"\bP40\b|\bP4\b|GTX 10\d\d", 61),
)


def sm_of(name: str) -> int | None:
    """The compute capability, 90 for 9.0; None for a name that is not known."""
    spaced = name.replace("_", " ").replace("-", " ")
    return next((sm for pattern, sm in _NAMES if search(pattern, spaced) is not None), None)
