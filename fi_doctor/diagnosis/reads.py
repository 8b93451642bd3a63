"""Which settings the installed packages read: by what is known of their versions, and by their own source."""

from __future__ import annotations

import re

from fi_doctor.conditions.ranges import version_in
from fi_doctor.model import Facts, FlashInfer, Missing, Package, Setting, Vllm

_FLASHINFER = "flashinfer-python"
_SERVERS = frozenset(("vllm", "sglang"))


def is_read(name: str, facts: Facts, settings: tuple[Setting, ...], server: str = "vllm") -> bool:
    """Whether an installed package reads this setting in its installed version.

    server: the one that is told it; of another one, which calls flags alike, no setting counts.
    """
    return _read_by(name, facts, settings, server) is not None


def is_awaited(name: str, facts: Facts, settings: tuple[Setting, ...]) -> bool:
    """Whether it is a variable of FlashInfer, none is installed, and every release from some one on reads it."""
    if not isinstance(_version(_FLASHINFER, facts), Missing):
        return False
    own = [one for one in settings if (one.name, one.owner) == (name, _FLASHINFER)]
    return any(re.fullmatch(r">=[\d.]+", one.read_by) for one in own)


def read_in(name: str, facts: Facts, settings: tuple[Setting, ...], server: str = "vllm") -> str:
    """The versions that read a setting, "vllm >=0.17.1,<0.34", by the entry that holds here; "" for no setting."""
    one = _read_by(name, facts, settings, server) if name else None
    return f"{one.owner} {one.read_by}" if one else ""


def _read_by(name: str, facts: Facts, settings: tuple[Setting, ...], server: str) -> Setting | None:
    named = (one for one in settings if one.name == name and one.owner not in _SERVERS - {server})
    return next((one for one in named if _owner_reads(one, facts)), None)


def _owner_reads(setting: Setting, facts: Facts) -> bool:
    version = _version(setting.owner, facts)
    # "" is a name that no release reads.
    if isinstance(version, Missing) or not setting.read_by or version_in(version, setting.read_by) is not True:
        return False
    return setting.owner != "vllm" or isinstance(facts.vllm, Missing) or _source_has(setting, facts.vllm)


def _version(owner: str, facts: Facts) -> str | Missing:
    package = facts.packages.get(owner, Missing(reason="nothing is known of it"))
    if isinstance(package, Package):
        return package.version
    if owner == _FLASHINFER and isinstance(facts.flashinfer, FlashInfer):
        return facts.flashinfer.version  # a checkout on PYTHONPATH has no metadata
    return package


def _source_has(setting: Setting, vllm: Vllm) -> bool:
    """Whether the installed source has the setting, and not merely registers it; what was not read cannot object."""
    if setting.kind == "env":
        if setting.name in vllm.variables:
            return setting.name not in vllm.unread_variables
        return setting.name in vllm.other_variables or bool({"variables", "other_variables"} & set(vllm.unreadable))
    table, names = ("flags", vllm.flags) if setting.kind == "flag" else ("keys", vllm.keys)
    return setting.name in names or table in vllm.unreadable
