"""What is said of a probe for which the budget did not suffice: where it was, and the command that settles it. Pure."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping

from fi_doctor.model import Facts, ProbeSpec, Request, command
from fi_doctor.model.phrases import REMEDY
from fi_doctor.probing import estimates
from fi_doctor.probing.plan import deepest

_LONG = 40
_MOST_MINUTES = 7 * 24 * 60  # as much as --budget takes


def used_up(  # noqa: PLR0913 - what it was, where it was, and all that the same request depends on
    spec: ProbeSpec,
    facts: Facts,
    request: Request,
    *,
    how: str,
    used_s: float,
    fresh: bool,
    building_s: float | None = None,
) -> str:
    """That the budget does not suffice, what would have been needed and how to get it.

    how: "used up while building". used_s: seconds that this probe had. fresh: with empty caches. building_s: what its
    modules take, where that is known better than by their names.
    """
    if building_s is None:
        estimate_s = estimates.probe_seconds(spec, facts, fresh=fresh)
    else:
        estimate_s = round(estimates.IMPORT_S + building_s + estimates.RUN_S)
    line = settle(spec.feature, facts, request, needed_s=2 * (estimate_s + used_s))
    return f"budget of {request.budget_s:g} s {how}; estimated {estimates.in_words(estimate_s)}{REMEDY}{line}"


def not_compiled(modules: Mapping[str, int], jobs: int, here: estimates.Here) -> str:
    """The state of modules (name -> objects) of which only parts were compiled."""
    name = _family(list(modules))
    names = f"{name} ({len(modules)} modules) are" if len(modules) > 1 else f"{name} is"
    minutes = math.ceil(estimates.wall_seconds(modules, jobs, here) / 60)
    used = estimates.usable_jobs(modules, jobs, here)
    gib = max(map(estimates.peak_mib, modules)) / 1024
    objects = sum(modules.values())
    return f"{names} not compiled: {objects} objects, estimated {minutes} min with {used} jobs of up to {gib:.1f} GiB"


def _family(names: list[str]) -> str:
    """One name for all of these: attention's go on with dtypes and sizes, up to 180 characters."""
    begin = os.path.commonprefix(names)  # noqa: RUF071 - names, no paths
    if len(names) == 1 and len(begin) <= _LONG:
        return begin
    return f"{begin[: begin.rfind('_', 0, _LONG) + 1]}*"


def needs_whole(lack: str, line: str) -> str:
    """That a variant needs a module that is `not_compiled` but for a part. line: compiles it, `warm` below."""
    return f"{lack}; a server's first start compiles it{REMEDY}{line}"


def warm(facts: Facts, request: Request, *, is_all: bool = False, is_forced: bool = False) -> str:
    """The command that compiles the modules of these rows, with the same jobs and memory."""
    asked = ["--all"] if is_all else []
    asked += ["--anyway"] if is_forced else []
    for feature in request.features:
        asked += ["--feature", feature]
    budget = request.typed.get("--budget")
    return command.line(facts.interpreter, "warm", *asked, *_share(request), *(["--budget", budget] if budget else []))


def look(facts: Facts, request: Request, features: Iterable[str]) -> str:
    """The command that says why modules of these rows do not compile, with the same jobs and memory."""
    asked = [word for feature in features for word in ("--feature", feature)]
    return command.line(facts.interpreter, "check", *asked, *_share(request))


def settle(feature: str, facts: Facts, request: Request, *, needed_s: float) -> str:
    """The command that asks the same of one feature, with so many seconds and no less than there were."""
    asked = ["--feature", feature]
    if request.depth is not deepest(facts):
        asked += ["--depth", request.depth.value]
    if request.fresh_cache:
        asked.append("--fresh-cache")
    minutes = min(math.ceil(max(needed_s, request.budget_s) / 60), _MOST_MINUTES)
    return command.line(facts.interpreter, "check", *asked, *_share(request), "--budget", f"{minutes}m")


def _share(request: Request) -> list[str]:
    """The options that bound compilers, as they were typed."""
    words = ["--jobs", str(request.jobs)] if request.jobs else []
    if request.memory_mib:
        words += ["--memory", request.typed.get("--memory", f"{request.memory_mib}m")]
    return words
