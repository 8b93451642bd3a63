"""The smallest change of versions that mends what fails where no setting helps, by the knowledge that is shipped."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.version import Version

from fi_doctor import conditions, consequences, upgraded
from fi_doctor.conditions import View
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.conditions.requirements import applicable, required
from fi_doctor.conditions.wheels import jit_cache_requirement, jit_cache_tag
from fi_doctor.diagnosis import upgrades
from fi_doctor.diagnosis.upgrades import Fault
from fi_doctor.knowledge import pins
from fi_doctor.model import Facts, KnowledgeBase, Missing, Package, ProbeSpec, Report
from fi_doctor.model.given import Stated
from fi_doctor.model.upgrade import Mended, Move, Upgrade

FLASHINFER = "flashinfer-python"
CUBIN, JIT_CACHE = "flashinfer-cubin", "flashinfer-jit-cache"
_INDEX = "https://flashinfer.ai/whl"


class _Release(NamedTuple):
    """A release that could be installed, with the FlashInfer that comes with it."""

    package: str
    version: str
    flashinfer: str  # "": it moves no FlashInfer

    @property
    def versions(self) -> dict[str, str]:
        of_flashinfer = {FLASHINFER: self.flashinfer} if self.flashinfer else {}
        return {self.package: self.version, **of_flashinfer}


def find(
    kb: KnowledgeBase, report: Report, specs: tuple[ProbeSpec, ...], stated: tuple[Stated, ...] = ()
) -> Upgrade | None:
    """What is to be upgraded; None where nothing fails, a setting helps, or no known release is free of the problem.

    FlashInfer alone where all that is installed admits it, else the first vLLM that brings it: the smallest change that
    mends most of the rows that vLLM calls, or, where it calls none of them, of those that it can be told to call.
    """
    facts = report.facts
    found = upgrades.faults(kb, report)
    if not found:
        return None
    alone, with_vllm = _of_flashinfer(facts), _of_vllm(facts)
    mends = {
        one: [fault for fault in found if upgrades.mended(fault, judged, kb, report.outcomes)]
        for one in (*alone, *with_vllm)
        if (judged := _put_in(facts, one))
    }
    chosen = _best({one: of for one, of in mends.items() if one.package == "vllm" or not _objects(facts, one.version)})
    if chosen is None:
        return None
    moves = _moves(chosen, facts)
    versions = {move.package: pins.exact(f"{move.package}{move.wanted}") or "" for move in moves}
    target = upgraded.facts_with(facts, versions)
    rows = tuple(_mended(fault, next(one for one in mends if fault in mends[one])) for fault in mends[chosen])
    return Upgrade(
        package=chosen.package,
        installed=_installed(chosen.package, facts),
        version=chosen.version,
        line=_line(chosen, moves, facts, target),
        is_needed=any(one.is_called for one in rows),
        why=_why(chosen, facts),
        mends=rows,
        moves=moves,
        changes=consequences.find(kb, report, target, specs, stated, besides={one.row for one in rows}),
        notes=(*upgraded.unshipped(versions), *_without_wheel(moves, target)),
    )


def _of_flashinfer(facts: Facts) -> list[_Release]:
    """The known releases that are newer than the installed one, the oldest first."""
    now = parse_version(_installed(FLASHINFER, facts))
    newer = (one for one in pins.load()[FLASHINFER] if now is not None and Version(one) > now)
    return [_Release(FLASHINFER, one, one) for one in newer]


def _of_vllm(facts: Facts) -> list[_Release]:
    """The same of vLLM, those left out that take FlashInfer back."""
    now, flashinfer = parse_version(_installed("vllm", facts)), parse_version(_installed(FLASHINFER, facts))
    found = []
    for version, lines in pins.load()["vllm"].items():
        pinned = next((exact for line in lines if _name(line) == FLASHINFER and (exact := pins.exact(line))), "")
        is_newer = now is not None and Version(version) > now
        if is_newer and flashinfer is not None and not (pinned and Version(pinned) < flashinfer):
            found.append(_Release("vllm", version, pinned))
    return found


def _objects(facts: Facts, version: str) -> list[str]:
    """The installed packages that require another FlashInfer than this."""
    wanted = {name: required(FLASHINFER, facts, by=name) for name in facts.packages if name not in (CUBIN, JIT_CACHE)}
    return [name for name, one in wanted.items() if one and not one.specifier.contains(version, prereleases=True)]


def _put_in(facts: Facts, release: _Release) -> Facts:
    """The facts with that release, and with the torch that it pins where another is installed."""
    facts = upgrades.with_versions(facts, release.versions)
    torch = next((line for line in pins.load()[release.package][release.version] if _name(line) == "torch"), "torch")
    version = pins.exact(torch)
    if version is None or _is_met(Requirement(torch), facts):
        return facts
    return replace(facts, toolkit=replace(facts.toolkit, torch_cuda=upgraded.cuda_of_torch(version)))


def _best(mends: dict[_Release, list[Fault]]) -> _Release | None:
    """The first that mends most of what is called, else of what can be turned on; for what never is none is named."""

    def counts(one: _Release) -> tuple[int, int]:
        called = sum(fault.is_called for fault in mends[one])
        return called, 0 if called else sum(fault.row.vllm_calls for fault in mends[one])

    best = max(mends, key=counts, default=None)
    return best if best is not None and any(counts(best)) else None


def _mended(fault: Fault, first: _Release) -> Mended:
    return Mended(
        row=fault.row.name,
        rules=tuple(rule.id for rule in fault.rules),
        since=f"{first.package} {first.version}",
        is_called=fault.is_called,
    )


def _moves(release: _Release, facts: Facts) -> tuple[Move, ...]:
    """The package itself, then what it requires otherwise than is installed, and what has to be of one version."""
    lines = {f"{release.package}=={release.version}": "it is what is to be installed"}
    for package, version in release.versions.items():
        required_by = f"{'vLLM' if package == 'vllm' else 'FlashInfer'} {version} requires it"
        lines |= dict.fromkeys(pins.load()[package].get(version, ()), required_by)
    if release.flashinfer:
        for package in (CUBIN, JIT_CACHE):
            if isinstance(facts.packages.get(package), Package):
                lines |= {f"{package}=={release.flashinfer}": "it has to be of FlashInfer's version"}
    found: dict[str, Move] = {}
    for line, why in lines.items():
        wanted = applicable(line, facts)
        if wanted is not None and wanted.name not in found and not _is_met(wanted, facts):
            found[wanted.name] = Move(
                package=wanted.name,
                installed=_installed(wanted.name, facts),
                wanted=str(wanted.specifier),
                why=f"{why}{_built_for(line) if wanted.name == 'torch' else ''}",
            )
    return tuple(found.values())


def _built_for(line: str) -> str:
    cuda = upgraded.cuda_of_torch(pins.exact(line) or "")
    return "" if isinstance(cuda, Missing) else f"; its wheel on PyPI is for CUDA {cuda}"


def _is_met(wanted: Requirement, facts: Facts) -> bool:
    installed = _installed(wanted.name, facts)
    is_version = parse_version(installed) is not None
    return is_version and (not wanted.specifier or wanted.specifier.contains(installed, prereleases=True))


def _line(release: _Release, moves: tuple[Move, ...], facts: Facts, target: Facts) -> str:
    """One command; what comes along by itself is not named in it."""
    words, indexes = [f"{release.package}=={release.version}"], []
    along = {_name(line) for line in pins.load()[release.package].get(release.version, ())}
    moved = {move.package for move in moves}
    if CUBIN in moved - along:
        words.append(f"{CUBIN}=={release.flashinfer}")
        indexes.append(_INDEX)
    requirement, tag = jit_cache_requirement(target), jit_cache_tag(target)
    if JIT_CACHE in moved and not isinstance(requirement, Missing) and not isinstance(tag, Missing):
        words.append(str(requirement[0]))
        indexes.append(f"{_INDEX}/{tag[0]}")
    install = conditions.fill("{pip_install}", View(facts), quote=True)
    return " ".join((install, *map(shlex.quote, words), *(f"--extra-index-url {index}" for index in indexes)))


def _without_wheel(moves: tuple[Move, ...], target: Facts) -> Iterator[str]:
    requirement = jit_cache_requirement(target)
    if any(move.package == JIT_CACHE for move in moves) and isinstance(requirement, Missing):
        yield f"which {JIT_CACHE} goes with it: {requirement.reason}; FlashInfer works without that package"


def _why(release: _Release, facts: Facts) -> str:
    asked = required(FLASHINFER, facts, by="vllm")
    pinned = f"vLLM {_installed('vllm', facts)} requires {FLASHINFER}{asked.specifier}" if asked else ""
    if release.package == FLASHINFER:
        return f"the first known release of FlashInfer that mends it{f'; {pinned}' if pinned else ''}"
    brings = f", and brings FlashInfer {release.flashinfer}" if release.flashinfer else ""
    return f"the first known release of vLLM that mends it{brings}{f'; {pinned}' if pinned else ''}"


def _installed(name: str, facts: Facts) -> str:
    """Its version; "" where it is not installed or not known."""
    package = facts.packages.get(name)
    if isinstance(package, Package):
        return "" if isinstance(package.version, Missing) else package.version
    if name == FLASHINFER and not isinstance(facts.flashinfer, Missing):
        return "" if isinstance(facts.flashinfer.version, Missing) else facts.flashinfer.version
    return ""


def _name(line: str) -> str:
    return Requirement(line).name
