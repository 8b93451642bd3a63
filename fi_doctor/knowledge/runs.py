"""What kernels were seen to do on recorded machines, cell by cell, and what their modules took to compile there.

Written by benchmarks/runs.py from tests/machines.
"""

from __future__ import annotations

import functools
import lzma
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fi_doctor.model import Data, Verdict

PATH = Path(__file__).with_name("runs.json.xz")


class Cost(Data, frozen=True):
    """What one module took to compile there."""

    objects: int
    cpu_seconds: float
    peak_mib: int  # the most that one compile command held


class Run(Data, frozen=True):
    """One recorded machine."""

    machine: str  # name of its folder in tests/machines
    gpu: str
    sm: int
    flashinfer: str
    nvcc: str  # the CUDA version that FlashInfer's gates read
    torch: str
    rows: dict[str, dict[str, Verdict]]  # row -> variant -> what was seen, the worst of several checks
    modules: dict[str, dict[str, tuple[str, ...]]]  # row -> variant -> JIT modules that it asked for
    costs: dict[str, Cost]  # module -> cost; those only of which all was compiled


@functools.cache
def load() -> tuple[Run, ...]:
    """All of them, by name."""
    return msgspec.json.decode(lzma.decompress(PATH.read_bytes()), type=tuple[Run, ...])


def seen(runs: Sequence[Run], row: str, variant: str, flashinfer: str, sm: int) -> tuple[Run, ...]:
    """The machines of that SM that ran the variant with that release of FlashInfer."""
    alike = (run for run in runs if run.flashinfer == flashinfer and run.sm == sm)
    return tuple(run for run in alike if variant in run.rows.get(row, {}))


def costs(runs: Sequence[Run], module: str, flashinfer: str) -> tuple[Run, Cost] | None:
    """Where a module was compiled whole, with that release first; the dearest of them."""
    found = [(run, run.costs[module]) for run in runs if module in run.costs]
    return max(found, key=lambda one: (one[0].flashinfer == flashinfer, one[1].cpu_seconds), default=None)
