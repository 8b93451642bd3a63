"""GPUs by the names that people give to --target.

Compute capabilities: NVIDIA's tables, https://developer.nvidia.com/cuda-gpus and
https://developer.nvidia.com/cuda-legacy-gpus; the H20, A800, H800, A10G, L2 and B100 are in none of them and have the
chips of H100, A100, H100, A10, L4 and B200.
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple


class Named(NamedTuple):
    """One GPU."""

    name: str  # as the driver calls it, without variants of memory and form
    sm: int
    others: tuple[str, ...] = ()  # what else people call it


def _geforce(number: str, sm: int) -> Named:
    return Named(f"NVIDIA GeForce RTX {number}", sm, (f"RTX {number}", number))


def _with_forms(*numbers: str) -> tuple[str, ...]:
    """Each number, before it the same without "Ti" or "Super"."""
    return tuple(dict.fromkeys(form for one in numbers for form in (one.split()[0], one)))


GPUS = (
    Named("Tesla V100", 70),
    Named("Tesla T4", 75),
    Named("Quadro RTX 6000", 75, ("RTX 6000",)),
    Named("Quadro RTX 8000", 75),
    Named("NVIDIA TITAN RTX", 75),
    *(_geforce(one, 75) for one in _with_forms("2060 Super", "2070 Super", "2080 Super", "2080 Ti")),
    Named("NVIDIA A100", 80),
    Named("NVIDIA A800", 80),
    Named("NVIDIA A30", 80),
    Named("NVIDIA A10", 86),
    Named("NVIDIA A10G", 86),
    Named("NVIDIA A40", 86),
    Named("NVIDIA A16", 86),
    Named("NVIDIA A2", 86),
    *(Named(f"NVIDIA RTX A{one}", 86, (f"A{one}",)) for one in (2000, 4000, 4500, 5000, 5500, 6000)),
    *(_geforce(one, 86) for one in _with_forms("3050", "3060 Ti", "3070 Ti", "3080 Ti", "3090 Ti")),
    Named("NVIDIA Jetson AGX Orin", 87, ("Orin",)),
    Named("NVIDIA L2", 89),
    Named("NVIDIA L4", 89),
    Named("NVIDIA L40", 89),
    Named("NVIDIA L40S", 89),
    Named("NVIDIA L20", 89),
    *(Named(f"NVIDIA RTX {one} Ada Generation", 89, (f"RTX {one} Ada",)) for one in (2000, 4000, 4500, 5000)),
    Named("NVIDIA RTX 6000 Ada Generation", 89, ("RTX 6000 Ada", "RTX 6000")),
    *(_geforce(one, 89) for one in _with_forms("4060 Ti", "4070 Ti", "4070 Super", "4080 Super", "4090")),
    _geforce("4070 Ti Super", 89),
    Named("NVIDIA H100", 90),
    Named("NVIDIA H800", 90),
    Named("NVIDIA H200", 90),
    Named("NVIDIA H20", 90),
    Named("NVIDIA GH200", 90),
    Named("NVIDIA B100", 100),
    Named("NVIDIA B200", 100),
    Named("NVIDIA GB200", 100),
    Named("NVIDIA B300", 103),
    Named("NVIDIA GB300", 103),
    Named("NVIDIA Thor", 110, ("Jetson Thor", "Jetson AGX Thor", "AGX Thor")),
    *(Named(f"NVIDIA RTX PRO {one}", 120, (f"RTX {one} PRO",)) for one in (2000, 4000, 4500, 5000)),
    Named("NVIDIA RTX PRO 6000", 120, ("RTX PRO 6000 Blackwell", "RTX 6000 PRO", "RTX 6000")),
    *(_geforce(one, 120) for one in _with_forms("5050", "5060 Ti", "5070 Ti", "5080", "5090")),
    Named("NVIDIA GB10", 121, ("DGX Spark", "Spark", "dgxspark")),
)
# What people say of a generation -> its compute capabilities.
GENERATIONS = {
    "turing": (75,),
    "ampere": (80, 86, 87),
    "ada": (89,),
    "adalovelace": (89,),
    "hopper": (90,),
    "blackwell": (100, 103, 110, 120, 121),
}
# Those that are in one module or chip with an Arm CPU: Grace, and the Tegra of Jetson and Spark.
ON_ARM = frozenset(
    {"NVIDIA GH200", "NVIDIA GB200", "NVIDIA GB300", "NVIDIA GB10", "NVIDIA Thor", "NVIDIA Jetson AGX Orin"}
)
# What tells cards of one GPU apart: "A100-SXM4-80GB", "H200 NVL", "RTX PRO 6000 Blackwell Server Edition", a MIG slice.
_FORMS = re.compile(
    r"\b(?:nvidia|geforce|tesla|generation|[hd]gx|sxm\d?(?: ac)?|pcie|nvl\d*|hbm\d?e?|3e|mig|\d+ ?gb?"
    r"|blackwell|max q|workstation|server|edition|developer kit|(?<=\d )d)\b|[^a-z0-9]"
)


def named(words: str) -> tuple[Named, ...]:
    """The GPUs that go by that name: one, several between which the name does not decide, or none."""
    wanted = _bare(words)
    return tuple(one for one in GPUS if wanted in map(_bare, (one.name, *one.others)))


def of_generation(words: str) -> tuple[int, ...]:
    """The compute capabilities of a generation that goes by that name."""
    return GENERATIONS.get(re.sub(r"nvidia|[^a-z]", "", words.lower()), ())


def near(words: str) -> tuple[str, ...]:
    """Names that are like it and fit one GPU, the nearest first."""
    names = {_bare(name): name for one in GPUS for name in (one.name, *one.others) if len(named(name)) == 1}
    found = difflib.get_close_matches(_bare(words), names, n=3, cutoff=0.7)
    return tuple(names[one].removeprefix("NVIDIA ") for one in found)


def _bare(words: str) -> str:
    spaced = re.sub(r"(?<=\d)(?=nvl|pcie|sxm)", " ", re.sub(r"[^a-z0-9]", " ", words.lower()))
    return _FORMS.sub("", spaced)
