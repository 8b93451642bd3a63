"""Which releases of CUDA's compilers, nvcc and ptxas, know an architecture."""

from __future__ import annotations

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
_LOWEST_OF_13 = 75


def nvcc_architectures(release: str) -> tuple[str, ...]:
    """What nvcc of that release compiles for, of the above: "sm_90". release: "12.8"."""
    found = tuple(int(part) for part in release.split(".")[:2])
    return tuple(
        f"sm_{sm}"
        for sm, since in sorted(SINCE.items())
        if since <= found and not (found >= (13, 0) and sm < _LOWEST_OF_13)
    )


def runs_from(sm: int) -> tuple[int, int]:
    """The first release that makes code which such a GPU runs: its own, or that of an older one of its major."""
    return min(since for one, since in SINCE.items() if one // 10 == sm // 10 and one <= sm)
