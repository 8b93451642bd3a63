"""Which releases of CUDA's compilers, nvcc and ptxas, know an architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.version import Version

# Compute capability -> the first release. Source: the release notes of CUDA 10.0, 11.0, 11.1, 11.4, 11.8, 12.8, 12.9
# and 13.0, which also takes those below 75 away.
SINCE = {
    70: (9, 0),
    75: (10, 0),
    80: (11, 0),
    86: (11, 1),
    87: (11, 4),
    89: (11, 8),
    90: (11, 8),
    100: (12, 8),
    120: (12, 8),
    103: (12, 9),
    121: (12, 9),
    110: (13, 0),
}
# The releases of the toolkit. Source: https://developer.nvidia.com/cuda-toolkit-archive, and nvidia-cuda-nvcc 13.4 and
# 13.5 on PyPI. There was no 12.7: only nvidia-smi of the driver 565 names it.
TOOLKITS = (
    *("11.0", "11.1", "11.2", "11.3", "11.4", "11.5", "11.6", "11.7", "11.8"),
    *("12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.8", "12.9"),
    *("13.0", "13.1", "13.2", "13.3", "13.4", "13.5"),
)
_LOWEST_OF_13 = 75
# Code for a family, "sm_120f", came with 12.9, and "sm_90a" with the release after Hopper's own: the release notes.
_OF_FAMILY, _SUFFIXED = (12, 9), {90: (12, 0)}


def nvcc_architectures(release: str) -> tuple[str, ...]:
    """What nvcc of that release compiles for, of the above: "sm_90". release: "12.8"."""
    found = tuple(int(part) for part in release.split(".")[:2])
    return tuple(
        f"sm_{sm}"
        for sm, since in sorted(SINCE.items())
        if since <= found and not (found >= (13, 0) and sm < _LOWEST_OF_13)
    )


def takes_suffix(architecture: str, release: Version) -> bool:
    """Whether nvcc of that release takes the end of "90a", whose number it knows; `--list-gpu-code` names no ends."""
    found = re.fullmatch(r"(\d{2,4})([af])", architecture)
    if found is None:
        return True
    return release.release[:2] >= _suffix_from(int(found[1]), found[2])


def takes_from(architecture: str, numbers: Mapping[int, tuple[int, int]] = SINCE) -> tuple[int, int] | None:
    """The first release that takes an architecture with its letter: "90a", "120f", "75"; None where that is not known.

    numbers: compute capability -> the first release, for those who know of more.
    """
    number = int(architecture.rstrip("af"))
    since = numbers.get(number)
    return None if since is None else max(since, _suffix_from(number, architecture.lstrip("0123456789")))


def _suffix_from(number: int, letter: str) -> tuple[int, int]:
    return _OF_FAMILY if letter == "f" else _SUFFIXED.get(number, (0, 0)) if letter else (0, 0)


def compiles_from(sm: int) -> tuple[int, int]:
    """The first release that compiles what FlashInfer asks for on such a GPU: for SM90 that is sm_90a."""
    return _SUFFIXED.get(sm, SINCE[sm])


def runs_from(sm: int) -> tuple[int, int]:
    """The first release that makes code which such a GPU runs: its own, or that of an older one of its major."""
    return min(since for one, since in SINCE.items() if one // 10 == sm // 10 and one <= sm)
