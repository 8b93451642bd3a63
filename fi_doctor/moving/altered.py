"""The settings that the other release of vLLM reads otherwise, and those that are set and would count for less."""

from __future__ import annotations

from fi_doctor import consequences, settings
from fi_doctor.knowledge import registry
from fi_doctor.knowledge.successors import successors
from fi_doctor.model import Facts, KnowledgeBase, Missing
from fi_doctor.model.given import Stated
from fi_doctor.model.plans import SettingMove
from fi_doctor.model.registry import Registered, Registry

_OWNER = "vllm"


def find(kb: KnowledgeBase, before: Facts, after: Facts, stated: tuple[Stated, ...]) -> tuple[SettingMove, ...]:
    """Those that are set first, by name; of the others those that have to do with FlashInfer."""
    names = {*before.environment, *(one.name for one in stated)}
    now, then = (settings.find(facts, stated) for facts in (before, after))
    found = {
        one.subject: SettingMove(
            name=one.subject,
            before=one.before,
            after=one.after,
            instead=tuple(other.setting for other in successors(one.subject, _OWNER, after.vllm_version)),
            remark=one.why,
            is_set=True,
            source=f"the settings of vLLM {after.vllm_version}",
        )
        for one in consequences.of_settings(now, then, names, before)
    }
    if before.vllm_version != after.vllm_version:
        old, new = (registry.at(_OWNER, facts.vllm_version) for facts in (before, after))
        if not isinstance(old, Missing) and not isinstance(new, Missing):
            known = {one.name for one in kb.settings if one.owner == _OWNER} | names
            of_releases = (_moved(name, old, new, is_set=name in names) for name in known - found.keys())
            found |= {one.name: one for one in of_releases if one is not None}
    return tuple(sorted(found.values(), key=lambda one: (not one.is_set, one.name)))


def untold(before: Facts, after: Facts) -> tuple[str, ...]:
    """What is not known of the settings of either release, a sentence each."""
    if before.vllm_version == after.vllm_version:
        return ()
    versions = [facts.vllm_version for facts in (before, after) if facts.vllm_version]
    found = {version: registry.at(_OWNER, version) for version in versions}
    return tuple(
        one.reason if isinstance(one, Missing) else f"vLLM {version} is taken to have the settings of {one.release}"
        for version, one in found.items()
        if isinstance(one, Missing) or one.release != version
    )


def _moved(name: str, old: Registry, new: Registry, *, is_set: bool) -> SettingMove | None:
    before, after = old.find(name), new.find(name)
    if before is None:
        return None  # it is new, or in neither: nothing that was set ends
    if after is None or (after.is_dead and not before.is_dead):
        others = successors(name, _OWNER, new.release)
        return SettingMove(
            name=name,
            before="read",
            after="not known" if after is None else "read by nothing",
            instead=tuple(one.setting for one in others if one.setting),
            remark="; ".join(one.what for one in others),
            is_set=is_set,
            source=f"{before.source} of vLLM {old.release}",
        )
    if before.default == after.default or any(isinstance(one.default, Missing) for one in (before, after)):
        return None
    return SettingMove(
        name=name,
        before=f"default {_said(before)}",
        after=f"default {_said(after)}",
        instead=(),
        remark="",
        is_set=is_set,
        source=f"{after.source} of vLLM {new.release}",
    )


def _said(one: Registered) -> str:
    return "unset" if one.default is None else str(one.default)
