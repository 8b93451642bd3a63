"""What vLLM calls of FlashInfer: by its version, and as the environment tells it to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from packaging.version import Version

from fi_doctor.conditions.ranges import number_in, version_in, version_range
from fi_doctor.diagnosis.reads import is_read
from fi_doctor.model import (
    Action,
    ActionKind,
    Facts,
    Feature,
    KnowledgeBase,
    Missing,
    Package,
    Use,
    VllmUse,
)

_ANY = Version("9999")
_CALLED = {"vllm": "vLLM", "sglang": "SGLang"}
_Use = TypeVar("_Use", bound=Use)


class Server(NamedTuple):
    """A server for which settings are recommended, in one of its releases."""

    owner: str  # distribution: "vllm", "sglang"
    version: str

    @property
    def name(self) -> str:
        """In words, "SGLang 0.5.18"."""
        return f"{_CALLED[self.owner]} {self.version}".rstrip()

    def use_of(self, feature: Feature, sm: int | Missing) -> Use | None:
        """What this release does with a feature on this SM; None as for `vllm_use`."""
        uses = (use for use in self._uses(feature) if self.version and _holds(use, self.version, sm))
        return _unless_other(next(uses, None), sm)

    def knows(self, feature: Feature) -> bool:
        """Whether anything is known of what this release does with it."""
        return any(version_in(self.version, use.releases) for use in self._uses(feature))

    def _uses(self, feature: Feature) -> tuple[Use, ...]:
        return feature.sglang if self.owner == "sglang" else feature.vllm


def servers(facts: Facts) -> tuple[Server, ...]:
    """Those that are installed; vLLM always, without a version where none is known."""
    sglang = facts.version_of("sglang")
    return (Server("vllm", facts.vllm_version), *((Server("sglang", sglang),) if sglang else ()))


def use_of(feature: Feature, sm: int | Missing, facts: Facts) -> VllmUse | None:
    """What the installed vLLM does with it, without one (or where its version cannot be told) the newest known."""
    if facts.vllm_version:
        return vllm_use(feature, sm, facts)
    return newest_use(feature, sm)


def is_called(feature: Feature, sm: int | Missing, facts: Facts, kb: KnowledgeBase) -> bool:
    """Whether that is called without a flag of vllm serve."""
    use = use_of(feature, sm, facts)
    if use is None or not use.called:
        return False
    return is_on(use, facts, lambda name: is_read(name, facts, kb.settings))


def caller(kb: KnowledgeBase, facts: Facts) -> str:
    """Which vLLM that is, in words."""
    if version := facts.vllm_version:
        known = any(version_in(version, use.vllm) for feature in kb.features for use in feature.vllm)
        return f"vLLM {version}, which is installed{'' if known else ' and of which nothing is known'}"
    has_one = isinstance(facts.packages.get("vllm"), Package)
    ends = [end for feature in kb.features for use in feature.vllm if (end := _end(use)) < _ANY]
    major, minor, *_ = (*max(ends, default=Version("0.1")).release, 0)
    which = "a vLLM of unknown version is installed" if has_one else "no vLLM is installed"
    return f"{which}: as vLLM {major}.{minor - 1} would call them"


def vllm_use(feature: Feature, sm: int | Missing, facts: Facts) -> VllmUse | None:
    """What the installed vLLM does with a feature on this SM.

    None without vLLM, where nothing is known of it, and where it depends on a GPU of which nothing is known.
    """
    version = facts.vllm_version
    uses = (use for use in feature.vllm if version and _holds(use, version, sm))
    return _unless_other(next(uses, None), sm)


def newest_use(feature: Feature, sm: int | Missing) -> VllmUse | None:
    """What the newest known vLLM does with it; None as for the installed one."""
    return _unless_other(max((use for use in feature.vllm if _is_for(use, sm)), key=_end, default=None), sm)


def depends_on_gpu(feature: Feature, sm: int | Missing, facts: Facts) -> bool:
    """Whether something is known of this vLLM that depends on a GPU of which nothing is known."""
    version = facts.vllm_version
    uses = [use for use in feature.vllm if not version or _holds(use, version, sm)]
    return isinstance(sm, Missing) and use_of(feature, sm, facts) is None and any(use.sm for use in uses)


def is_on(use: Use, facts: Facts, is_read: Callable[[str], bool]) -> bool:
    """Whether it is called as this environment stands; what a command line will say is not known."""
    if use.default:
        return not _is_set(use.avoid, facts, is_read)
    return _is_set(use.enable, facts, is_read)


def _is_set(actions: tuple[Action, ...], facts: Facts, is_read: Callable[[str], bool]) -> bool:
    return any(
        action.line == f"export {action.setting}={facts.environment.get(action.setting, '')}"
        for action in actions
        if action.kind is ActionKind.SET and is_read(action.setting)
    )


def _holds(use: Use, version: str, sm: int | Missing) -> bool:
    return bool(version_in(version, use.releases)) and _is_for(use, sm)


def _is_for(use: Use, sm: int | Missing) -> bool:
    """Whether it is for this GPU; where nothing is known of it, whether it may be."""
    return not use.sm or isinstance(sm, Missing) or number_in(sm, use.sm)


def _unless_other(use: _Use | None, sm: int | Missing) -> _Use | None:
    """What comes first of all that may be: where it is for some GPUs, others have another."""
    return None if use is None or (use.sm and isinstance(sm, Missing)) else use


def _end(use: VllmUse) -> Version:
    """Before which release it ends; of several that end alike, the first one holds, as for an installed vLLM."""
    ends = [Version(bound.version) for bound in version_range(use.vllm) if bound.operator == "<"]
    return min(ends, default=_ANY)
