"""The facts at the end of a move: what is named and what that pins, and of the rest what is there before."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor import targeting, upgraded
from fi_doctor.facts.architectures import VARIABLE, architectures
from fi_doctor.model import Depth, Facts, Missing
from fi_doctor.model.plans import Pin
from fi_doctor.model.targets import Target
from fi_doctor.moving import pins

_UNSEEN = Missing(reason="it is of a move that was not made (--to)")

Memo = dict[tuple[tuple[str, str], ...], Facts]  # the packages that moved -> the facts


class End(NamedTuple):
    """What is there once everything has moved."""

    facts: Facts
    target: Target  # what was named
    pins: tuple[Pin, ...]  # packages first


def end(facts: Facts, target: Target, *, is_here: bool, memo: Memo | None = None) -> End:
    """The end of a move that begins with these facts. is_here: whether they are of this machine, whose files count.

    memo: the same facts with other packages, for who asks for many ends of one begin.
    """
    found = pins.packages(facts, target.versions)
    aimed = replace(target, sm=target.sm or next(iter(pins.sms_of(facts)), 0), versions={})
    key = tuple(sorted(found.versions.items()))
    moved = memo.get(key) if memo is not None else None
    if moved is None:
        moved = _with_packages(facts, aimed, found.versions)
        if memo is not None:
            memo[key] = moved
    after = targeting.facts_for(_with_gpus(moved, target), aimed, Depth.STATIC)
    after = _with_architectures(facts, after, is_here=is_here)
    machine = pins.machine(facts, after, asks_torch="torch" in target.versions)
    return End(after, target, (*found.pins, *machine))


def _with_packages(facts: Facts, target: Target, versions: dict[str, str]) -> Facts:
    exact = {name: version for name, version in versions.items() if version}
    after = targeting.facts_for(facts, replace(target, versions=exact, cuda=""), Depth.STATIC)
    if len(exact) < len(versions):
        after = upgraded.facts_with(after, {name: "" for name in versions if name not in exact})
    return after


def _with_gpus(facts: Facts, target: Target) -> Facts:
    driver = targeting.driver_of(target.driver) if target.driver else facts.gpus.driver
    if target.sm:
        return replace(facts, gpus=targeting.gpu_facts(target, driver))
    return replace(facts, gpus=replace(facts.gpus, driver=driver)) if target.driver else facts


def _with_architectures(before: Facts, after: Facts, *, is_here: bool) -> Facts:
    """The same with what FlashInfer compiles for: by the installed rule, else by the GPUs' numbers.

    Which suffix another release gives is not known, and nothing that is judged asks for it.
    """
    package, old, sms = after.flashinfer, before.flashinfer, pins.sms_of(after)
    if isinstance(package, Missing) or VARIABLE in after.environment:
        return after
    tags = package.architectures
    were = tags if isinstance(old, Missing) else old.architectures
    are_others = sms != pins.sms_of(before)
    is_other = pins.installed(pins.FLASHINFER, before) != pins.installed(pins.FLASHINFER, after)
    if not sms:
        tags = were
    elif tags != were and (not isinstance(tags, Missing) or "requires CUDA" in tags.reason):
        pass  # it was looked up with the release
    elif package.root and is_here and not is_other:
        if are_others or pins.nvcc_of(after) != pins.nvcc_of(before):
            tags, _ = architectures(Path(package.root), {}, after.gpus, after.toolkit)
    elif are_others or isinstance(tags, Missing):
        tags = tuple(f"{sm}{'a' if sm >= 90 else ''}" for sm in sms)
    package = replace(package, architectures=tags)
    if are_others:
        package = replace(package, cache_dir=_UNSEEN, cached_modules=(), stale_modules={})
    return replace(after, flashinfer=package)
