"""What is said of a probe for which the budget did not suffice: where it was, and the command that settles it. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping

from fi_doctor.model import Facts, ProbeSpec, Request
from fi_doctor.probing import estimates
from fi_doctor.probing.plan import deepest

_MOST_MINUTES = 7 * 24 * 60  # as much as --budget takes


def used_up(  # noqa: PLR0913 - what it was, where it was, and all that the same request depends on
    spec: ProbeSpec, facts: Facts, request: Request, *, how: str, used_s: float, fresh: bool
) -> str:
    """That the budget does not suffice, what would have been needed and how to get it.

    how: "used up while building". used_s: seconds that this probe had. fresh: with empty caches.
    """
    estimate_s = estimates.probe_seconds(spec, facts, fresh=fresh)
    command = settle(spec.feature, facts, request, needed_s=2 * (estimate_s + used_s))
    return f"budget of {request.budget_s:g} s {how}; estimated {estimate_s} s; settle it with: {command}"


def not_compiled(modules: Mapping[str, int], jobs: int) -> str:
    """The state of modules (name -> objects) of which only parts were compiled."""
    first, *rest = modules
    names = f"{first} and {len(rest)} more are" if rest else f"{first} is"
    minutes = math.ceil(estimates.wall_seconds(modules, jobs) / 60)
    return f"{names} not compiled: {sum(modules.values())} objects, estimated {minutes} min with {jobs} jobs"


def needs_whole(name: str, objects: int, jobs: int, command: str) -> str:
    """That a variant needs a module of which only a part was compiled. command: compiles it, `warm` below."""
    return f"{not_compiled({name: objects}, jobs)}; a server's first start compiles it; settle it with: {command}"


def warm(facts: Facts, request: Request, *, is_all: bool = False) -> str:
    """The command that compiles the modules of these rows, with the same jobs and memory."""
    words = _command("warm", facts)
    if is_all:
        words.append("--all")
    for feature in request.features:
        words += ["--feature", feature]
    return shlex.join([*words, *_bounds(request)])


def settle(feature: str, facts: Facts, request: Request, *, needed_s: float) -> str:
    """The command that asks the same of one feature, with so many seconds and no less than there were."""
    words = [*_command("check", facts), "--feature", feature]
    if request.depth is not deepest(facts):
        words += ["--depth", request.depth.value]
    if request.fresh_cache:
        words.append("--fresh-cache")
    minutes = min(math.ceil(max(needed_s, request.budget_s) / 60), _MOST_MINUTES)
    return shlex.join([*words, *_bounds(request), "--budget", f"{minutes}m"])


def _command(name: str, facts: Facts) -> list[str]:
    """One of ours, for the interpreter that is examined."""
    own = facts.interpreter.is_own
    return ["fi-doctor", name, *([] if own else ["--python", facts.interpreter.executable])]


def _bounds(request: Request) -> list[str]:
    """Those on compilers that were asked for."""
    jobs = ["--jobs", str(request.jobs)] if request.jobs else []
    return jobs + (["--memory", f"{request.memory_mib}m"] if request.memory_mib else [])
