"""Settings that somebody wrote down, judged by the registries of what is installed: a part of every verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from packaging.version import Version

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.diagnosis import clashes, given
from fi_doctor.knowledge import registry as shipped
from fi_doctor.knowledge.successors import load, successors
from fi_doctor.model import Facts, Finding, FlashInfer, Missing, Package, Severity, Vllm
from fi_doctor.model.given import Stated
from fi_doctor.model.registry import Registry
from fi_doctor.model.secrets import HIDDEN

_TABLES = ("variables", "other_variables", "unread_variables")
# Where FlashInfer and SGLang lie below the folder that holds the package.
_FOLDERS = {"vllm": "vllm", "flashinfer-python": "flashinfer", "sglang": "sglang"}


class _Installed(NamedTuple):
    """A package that the settings are for."""

    owner: str
    version: str
    root: str
    is_release: bool  # whether its files are those of the release


def find(
    facts: Facts, stated: tuple[Stated, ...] = (), readings: Mapping[str, Registry] = MappingProxyType({})
) -> tuple[Finding, ...]:
    """What the installed versions make of the variables that are set, and of what is stated beside; pure.

    readings: registries that were read from the installed files, see `installed`.
    """
    everything = (*_of_environment(facts), *stated)
    if not everything:
        return ()
    sources: dict[str, given.Source] = {}
    for owners in _owners(everything):
        packages = (one for owner in owners if (one := _package(facts, owner)) is not None)
        sources |= {one.owner: _source(facts.vllm, one, readings) for one in packages}
        if _are_known(everything, [source.registry for source in sources.values()]):
            break
    why = {owner: one.reason for owner, one in facts.packages.items() if isinstance(one, Missing)}
    return (
        *given.find(everything, sources),
        *clashes.find(everything, sources),
        *_not_judged(stated, sources, why),
    )


def find_in_releases(stated: tuple[Stated, ...], releases: Mapping[str, str]) -> tuple[Finding, ...]:
    """What releases make of settings, wherever they are to run; pure.

    releases: distribution -> its version. Of one that was not read, and of others than these, nothing is judged.
    """
    named = [_Installed(owner, version, "", is_release=True) for owner, version in releases.items()]
    sources = {one.owner: _source(Missing(reason="nothing is installed"), one, MappingProxyType({})) for one in named}
    return (
        *given.find(stated, sources),
        *clashes.find(stated, sources),
        *_not_judged(stated, sources, dict.fromkeys(given.CALLED, "its release is not named")),
    )


def read_installed(facts: Facts, stated: tuple[Stated, ...]) -> dict[str, Registry]:
    """The registries of packages that are no release as it was shipped, from their files: a second each.

    Only of those that some setting is for. What cannot be read is left out.
    """
    from fi_doctor.facts.registry import read_registry  # noqa: PLC0415 - hardly ever needed, and slow to import

    everything = (*_of_environment(facts), *stated)
    found: dict[str, Registry] = {}
    known: list[Registry | Missing] = []
    for owners in _owners(everything):
        for one in (one for owner in owners if (one := _package(facts, owner)) is not None):
            release = _shipped(one)
            known.append(release or read_registry(Path(one.root), one.owner, one.version))
            if release is None and isinstance(known[-1], Registry):
                found[one.owner] = known[-1]
        if _are_known(everything, known):
            break
    return found


def _of_environment(facts: Facts) -> tuple[Stated, ...]:
    return tuple(
        Stated(name=name, kind="env", value=None if value == HIDDEN else value)
        for name, value in facts.environment.items()
        if given.owner_of(name)
    )


def _owners(stated: Iterable[Stated]) -> tuple[set[str], set[str]]:
    """The packages whose settings they are, and those that may read a few of their names beside."""
    found = {owner for one in stated if one.kind == "env" and (owner := given.owner_of(one.name))}
    found |= {one.server or "vllm" for one in stated if one.kind == "flag"}
    return found, set(_FOLDERS) - found if found else set()


def _are_known(stated: Iterable[Stated], registries: list[Registry | Missing]) -> bool:
    """Whether one of the registries has each variable that is some package's own."""
    names = {one.name for one in stated if one.kind == "env" and given.owner_of(one.name)}
    return all(any(isinstance(one, Registry) and name in one.settings for one in registries) for name in names)


def _package(facts: Facts, owner: str) -> _Installed | None:
    package = facts.packages.get(owner)
    if (
        not isinstance(package, Package)
        or isinstance(package.version, Missing)
        or parse_version(package.version) is None
    ):
        return None
    source = {"vllm": facts.vllm, "flashinfer-python": facts.flashinfer}.get(owner)
    altered = source.altered if isinstance(source, Vllm | FlashInfer) else {}
    root = source.root if isinstance(source, Vllm | FlashInfer) else str(Path(package.location) / _FOLDERS[owner])
    return _Installed(owner, package.version, root, is_release=not altered and not package.editable)


def _shipped(one: _Installed) -> Registry | None:
    """The settings of the release, where it is that release to the letter."""
    return _of_release(one) if one.is_release else None


def _of_release(one: _Installed) -> Registry | None:
    """The settings that the release of this very version has; None where it was not read."""
    found = shipped.at(one.owner, one.version)
    if isinstance(found, Missing) or Version(found.release) != Version(Version(one.version).public):
        return None
    return found


def _source(installed: Vllm | Missing, one: _Installed, readings: Mapping[str, Registry]) -> given.Source:
    vllm = installed if one.owner == "vllm" and isinstance(installed, Vllm) else None
    is_damaged = vllm is not None and any(table in vllm.unreadable for table in _TABLES)
    registry = readings.get(one.owner) or _shipped(one)
    release = _of_release(one) if one.owner in readings else None
    return given.Source(
        owner=one.owner,
        version=one.version,
        registry=registry or Missing(reason=f"what {one.owner} {one.version} registers is not known"),
        releases=shipped.releases(one.owner),
        history=lambda name: shipped.history(name, one.owner).known,
        successors=lambda name: successors(name, one.owner, one.version),
        mapped=lambda name: tuple(each for each in load() if (each.name, each.owner) == (name, one.owner)),
        named=frozenset({*vllm.variables, *vllm.other_variables}) if vllm is not None and not is_damaged else None,
        unread=frozenset(vllm.unread_variables) if vllm is not None else frozenset(),
        released=frozenset(release.settings) if release else None,
        is_damaged=is_damaged,
    )


def _not_judged(
    stated: tuple[Stated, ...], sources: dict[str, given.Source], why: Mapping[str, str]
) -> tuple[Finding, ...]:
    """What of that which was given could not be looked at, and why: silence would read as consent."""
    reasons: dict[str, str] = {}
    for one in stated:
        owner = given.owner_of(one.name) if one.kind == "env" else one.server or "vllm"
        if owner is None or owner in reasons or (owner == "sglang" and one.server != "sglang"):
            continue
        if owner not in sources:
            reasons[owner] = why.get(owner, f"{owner} is not installed")
        elif sources[owner].is_damaged:
            reasons[owner] = "its files could not all be read"
        elif isinstance(sources[owner].registry, Missing):
            reasons[owner] = sources[owner].registry.reason  # type: ignore[union-attr] # just asked
    return tuple(_unjudged(owner, why) for owner, why in sorted(reasons.items()))


def _unjudged(owner: str, why: str) -> Finding:
    return Finding(
        id=given.NOT_JUDGED,
        cause=given.NOT_JUDGED,
        severity=Severity.INFO,
        title=f"the settings for {given.CALLED[owner]} that were given are not judged",
        why=why,
        fix=(),
        features=(),
        source="nothing was looked up",
    )
