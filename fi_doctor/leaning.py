"""Which measurements predictions lean on: of each row the nearest that is known."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from fi_doctor.knowledge import atlas
from fi_doctor.model import Facts, FeatureRow, PlannedProbe
from fi_doctor.model.targets import Measured, Target

_GENERATION = re.compile(r"_(?:sm)?\d{2,3}$")  # of a module that there is for each generation of GPUs: fused_moe_90


def leant(
    target: Target,
    facts: Facts,
    rows: Sequence[FeatureRow],
    planned: Sequence[PlannedProbe],
) -> Target:
    """The target, with the nearest run and build of each of its rows that needs a GPU."""
    asked = atlas.asked_of(facts, target.sm)
    if asked is None:
        return target
    features = sorted({row.feature for row in rows if row.needs_gpu})
    told = {feature: nearest(asked, feature, planned) for feature in features}
    return replace(target, nearest={feature: found for feature, found in told.items() if found})


def nearest(asked: atlas.Asked, feature: str, planned: Sequence[PlannedProbe]) -> tuple[Measured, ...]:
    """What was run nearest to it of the variants that decide the row, and which of its modules was built nearest."""
    ours = [probe for probe in planned if probe.spec.feature == feature]
    modules = {_GENERATION.sub("", probe.spec.module) for probe in ours if probe.spec.module}
    deciding = {name for probe in ours for name in probe.deciding}
    known = atlas.load()
    ran = atlas.nearest_run(known, asked, feature, deciding)
    built = [atlas.nearest_build(known, asked, f"{module}*") for module in sorted(modules)]
    return tuple(near.measured for near in (ran, *built) if near is not None)
