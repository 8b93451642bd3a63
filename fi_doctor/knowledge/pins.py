"""What releases of vLLM, FlashInfer and torch require of each other, read from their metadata beforehand."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

PATH = Path(__file__).with_suffix(".json")


@functools.cache
def load() -> dict[str, dict[str, tuple[str, ...]]]:
    """Distribution -> release, the oldest first -> Requires-Dist lines about what moves with it."""
    return msgspec.json.decode(PATH.read_bytes(), type=dict[str, dict[str, tuple[str, ...]]])


def exact(line: str) -> str | None:
    """The one version that a Requires-Dist line allows; None where it allows several."""
    bounds = list(Requirement(line).specifier)
    return bounds[0].version if len(bounds) == 1 and bounds[0].operator == "==" else None
