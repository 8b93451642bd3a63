"""What a server's first start compiles at one end of a move, roughly: nothing of FlashInfer is asked for it. Pure."""

from __future__ import annotations

import re

from fi_doctor.model import Facts, Missing, PlannedProbe
from fi_doctor.model.plans import StartUp
from fi_doctor.probing import estimates
from fi_doctor.probing.measured import OBJECTS

_OF_ONE_GPU = re.compile(r"_(?:sm)?(?:90|100)$")  # a probe names the module of the GPU that it was written on


def start_up(planned: tuple[PlannedProbe, ...], facts: Facts) -> StartUp:
    """The modules that what vLLM calls by default needs, and that are neither prebuilt nor in the JIT cache.

    Sizes are those that such modules have on SM90; the names are without the GPU.
    """
    package = facts.flashinfer
    there = () if isinstance(package, Missing) else (*package.cached_modules, *package.jit_cache_modules)
    wanted = {one.spec.module for one in planned if one.served and one.spec.has_build and one.spec.module}
    objects = {name: _objects(name) for name in sorted(wanted - {*there})}
    jobs = max(1, facts.system.cpus)
    seconds = estimates.wall_seconds(objects, jobs) if objects else 0.0
    names = dict.fromkeys(_OF_ONE_GPU.sub("", name) for name in objects)
    return StartUp(modules=tuple(names), seconds=round(seconds, 1), jobs=jobs)


def _objects(module: str) -> int:
    known = [prefix for prefix in OBJECTS if module.startswith(prefix)]
    return OBJECTS[max(known, key=len)] if known else 1
