"""On which GPUs compiled code runs: cubins by the rules for their suffix, PTX by the driver's compiler.

Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility" and "Feature Set Compiler Targets"; the
PTX version of each CUDA release: PTX ISA, "Release Notes".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fi_doctor.model.base import Closed, Missing
from fi_doctor.model.binaries import Binary

# Binary compatibility does not hold between these (Jetson) and others of their major.
_TEGRA = (53, 62, 72, 87)
_ARCHITECTURE = re.compile(r"(sm|compute)_(\d{2,3})([af]?)")
_RELEASE = re.compile(r"(\d{1,3})\.(\d{1,3})")
# PTX version -> the CUDA release that brought it, where they do not follow from one another.
_PTX_OF_CUDA = {(8, 6): (12, 7), (8, 7): (12, 8), (8, 8): (12, 9)}


class Reach(Closed):
    """How code comes to run on a GPU."""

    UNSURE = "unsure"  # not to be told
    NOT = "not at all"
    REFUSED = "refused"  # PTX that is newer than the driver, and nothing else
    JIT = "by PTX JIT"
    NATIVE = "natively"


def of_architecture(name: str, sm: int) -> Reach:
    """How code of one architecture, "sm_90a" or "compute_80", comes to run on a GPU of compute capability `sm`.

    A cubin runs on its own major from its minor on; with "a" only on its own, with "f" on the family, which is so far
    that of the major. PTX is compiled for whatever is newer, with a suffix only for what a cubin with it would run on.
    """
    match = _ARCHITECTURE.fullmatch(name)
    if match is None:
        return Reach.UNSURE
    kind, number, suffix = match[1], int(match[2]), match[3]
    there = Reach.NATIVE if kind == "sm" else Reach.JIT
    if number == sm:
        return there
    if suffix == "a":
        return Reach.NOT
    if kind == "compute" and not suffix:
        return there if number < sm else Reach.NOT
    if number // 10 != sm // 10 or number > sm:
        return Reach.NOT
    return Reach.UNSURE if {number, sm} & set(_TEGRA) else there


def of_unit(names: str, sm: int, ptx: Mapping[str, str], driver_cuda: str | Missing) -> Reach:
    """The same of a unit, "sm_80 compute_80": the best that any of its code reaches."""
    reached = [_with_driver(name, of_architecture(name, sm), ptx, driver_cuda) for name in names.split()]
    if Reach.UNSURE in reached and Reach.NATIVE not in reached:
        return Reach.UNSURE
    return max(reached, key=lambda one: one.rank, default=Reach.NOT)


def counts(binary: Binary, sm: int, driver_cuda: str | Missing) -> dict[Reach, int]:
    """Of how many units each holds; empty for a file without GPU code."""
    found: dict[Reach, int] = {}
    for names, number in binary.units.items():
        reach = of_unit(names, sm, binary.ptx, driver_cuda)
        found[reach] = found.get(reach, 0) + number
    return found


def of_file(binary: Binary, sm: int, driver_cuda: str | Missing) -> Reach | None:
    """The best that any unit reaches, unsure where another might reach more; None for a file without GPU code."""
    found = counts(binary, sm, driver_cuda)
    if not found:
        return None
    best = max(found, key=lambda one: one.rank)
    return Reach.UNSURE if Reach.UNSURE in found and best is not Reach.NATIVE else best


def architectures(names: Iterable[str]) -> tuple[str, ...]:
    """Those of units, each once: cubins before PTX, by number."""

    def place(name: str) -> tuple[bool, int, str]:
        match = _ARCHITECTURE.fullmatch(name)
        return not name.startswith("sm_"), int(match[2]) if match else 0, name

    return tuple(sorted({name for unit in names for name in unit.split()}, key=place))


def cuda_of_ptx(version: str) -> tuple[int, int] | None:
    """The first CUDA release whose driver compiles PTX of this version: "9.0" is 13.0, "8.7" is 12.8, "7.8" is 11.8."""
    match = _RELEASE.fullmatch(version)
    if match is None:
        return None
    ptx = int(match[1]), int(match[2])
    return _PTX_OF_CUDA.get(ptx, (ptx[0] + 4, ptx[1]))


def _with_driver(name: str, reach: Reach, ptx: Mapping[str, str], driver_cuda: str | Missing) -> Reach:
    """PTX under a driver that is older than the toolkit that made it is refused; minor versions count here."""
    if reach is not Reach.JIT or isinstance(driver_cuda, Missing):
        return reach
    needs, has = cuda_of_ptx(ptx.get(name, "")), _RELEASE.match(driver_cuda)
    if needs is None or has is None:
        return reach
    return Reach.REFUSED if needs > (int(has[1]), int(has[2])) else reach
