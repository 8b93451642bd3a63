"""Probes that other packages bring, code that nobody here has read: they run only where asked for, and are named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from fi_doctor.model import Depth, PlannedProbe, ProbeSpec, Request, selects
from fi_doctor.model.probes import OWN


def is_asked(spec: ProbeSpec, request: Request) -> bool:
    """Whether a probe whose row is selected may run: our own always, one of another package where rows are named."""
    named = (*request.required, *(one.feature for one in request.policy.requirements))
    return spec.origin == OWN or bool(request.features) or spec.feature in named


def unasked(planned: PlannedProbe) -> PlannedProbe:
    """The plan for one that is not to run, with how to ask for it; what would not have run anyway keeps its reason."""
    spec = planned.spec
    if spec.fault or planned.depth is Depth.STATIC:
        return planned
    skip = f"its probe is of {spec.origin}, and runs only where it is asked for: --feature {spec.feature}"
    return replace(planned, depth=Depth.STATIC, variants=(), skip=skip)


def told(specs: Iterable[ProbeSpec], request: Request) -> Iterator[str]:
    """A line for each of them that may run."""
    for spec in specs:
        is_run = is_asked(spec, request) and selects(request.features, spec.feature)
        if spec.origin != OWN and is_run and not spec.fault and request.depth is not Depth.STATIC:
            yield f"note: {spec.feature} is measured by a probe of {spec.origin}: {spec.path}"
