"""Which settings the installed packages read: by what is known of their versions, and by their own source."""

from __future__ import annotations

from fi_doctor.conditions.ranges import version_in
from fi_doctor.model import Facts, FlashInfer, Missing, Package, Setting, Vllm


def is_read(name: str, facts: Facts, settings: tuple[Setting, ...]) -> bool:
    """Whether an installed package reads this setting in its installed version."""
    return any(setting.name == name and _owner_reads(setting, facts) for setting in settings)


def read_in(name: str, facts: Facts, settings: tuple[Setting, ...]) -> str:
    """The versions that read a setting, "vllm >=0.17.1,<0.34", by the entry that holds here; "" for no setting."""
    found = (one for one in settings if name and one.name == name and _owner_reads(one, facts))
    one = next(found, None)
    return f"{one.owner} {one.read_by}" if one else ""


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
    if owner == "flashinfer-python" and isinstance(facts.flashinfer, FlashInfer):
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
