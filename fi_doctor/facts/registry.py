"""The settings of an installed package, from its own source, which is read and never imported."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from fi_doctor.facts.collecting import collecting_paused
from fi_doctor.facts.files import why_no_folder
from fi_doctor.facts.registry_envs import read_elsewhere, read_envs
from fi_doctor.facts.registry_fields import Classes
from fi_doctor.facts.registry_flags import read_flags
from fi_doctor.facts.registry_readers import Readers, attribute_readers, named_in_program, texts
from fi_doctor.facts.registry_sglang import read_sglang_envs, read_sglang_flags
from fi_doctor.facts.registry_source import Modules
from fi_doctor.facts.registry_variables import Variables
from fi_doctor.model import Missing
from fi_doctor.model.registry import Registered, Registry

OWNERS = ("vllm", "flashinfer-python", "sglang")
_BINARY = "vllm-rs"  # the Rust front end of 0.25 and newer, which reads variables too
_ARGUMENTS = "engine/arg_utils.py"


def read_registry(root: Path, owner: str, version: str | Missing) -> Registry | Missing:
    """The settings of the package in the folder `root`, whatever its version: its files are what is believed.

    What reads a flag or key is not looked for, see `with_readers`. A file that is no Python is told in `unreadable`.
    Missing where there is no such folder, or nothing of it could be read.
    """
    if why := why_no_folder(root):
        return Missing(reason=why)
    if owner not in OWNERS:
        return Missing(reason=f"how {owner} registers its settings is not known")
    unreadable: dict[str, str] = {}
    read = {"vllm": _vllm, "flashinfer-python": _flashinfer, "sglang": _sglang}[owner]
    with collecting_paused():
        settings = read(Modules(root), unreadable)
    if not settings:
        return Missing(reason="; ".join(unreadable.values()) or f"{root} has no settings")
    return Registry(owner=owner, version=version, settings=settings, unreadable=unreadable)


def with_readers(registry: Registry, root: Path) -> Registry:
    """The registry with the files that read its flags and keys, by the name of an attribute. It takes seconds."""
    names = {name: _attribute(one) for name, one in registry.settings.items() if one.kind != "env"}
    found = attribute_readers(root, set(names.values()), passing_on=_ARGUMENTS if registry.owner == "vllm" else "")
    if isinstance(found, Missing):
        return registry
    read = {name: replace(registry.settings[name], read_in=found[attribute]) for name, attribute in names.items()}
    return replace(registry, settings={**registry.settings, **read})


def _attribute(one: Registered) -> str:
    """The name under which code reads the value of a flag or key."""
    return (one.sets or one.name).rpartition(".")[2].lstrip("-").replace("-", "_")


def _vllm(modules: Modules, unreadable: dict[str, str]) -> dict[str, Registered]:
    root = modules.root
    envs = _kept(read_envs(modules), "variables", unreadable)
    classes = Classes(modules, unreadable)
    flags = _kept(read_flags(modules, classes), "flags", unreadable)
    keys = classes.keys()
    readers = Readers(root, envs, (b"VLLM_", b"envs."), "envs.py")
    if why := readers.run():
        unreadable["readers"] = why.reason
        return {**envs, **flags, **keys}
    itself = read_elsewhere(modules)
    read = {name: [*readers.found.get(name, ()), *(["envs.py"] if name in itself else [])] for name in envs}
    unread = [name for name, files in read.items() if not files and name.startswith("VLLM_")]
    for name in named_in_program(root / _BINARY, unread):
        read[name].append(_BINARY)
    envs = {
        name: replace(one, read_in=tuple(read[name]), asks_if_set=name in readers.asked) for name, one in envs.items()
    }
    # Variables that modules read for themselves, such as VLLM_BATCH_INVARIANT in 0.14.1.
    others = {name for name in readers.others if name not in envs}
    files = sorted({path for name in others for path in readers.others[name]})
    kept = {path: readers.kept[path] for path in files}
    variables = Variables()
    found = variables.take(modules, kept, unreadable, sorted(others)) | variables.mention(kept, "VLLM_")
    wild = {name: one for name, one in found.items() if name in others}
    return {**envs, **wild, **flags, **keys}


def _flashinfer(modules: Modules, unreadable: dict[str, str]) -> dict[str, Registered]:
    # data/ holds sources to compile, and copies of other packages.
    found = {path: text for path, text in _texts(modules.root, unreadable).items() if not path.startswith("data/")}
    variables = Variables()
    read = variables.take(modules, found, unreadable)
    return read | variables.mention(found, "FLASHINFER_")


def _sglang(modules: Modules, unreadable: dict[str, str]) -> dict[str, Registered]:
    flags = _kept(read_sglang_flags(modules), "flags", unreadable)
    envs = read_sglang_envs(modules)
    found = _texts(modules.root, unreadable)
    others = Variables().take(
        modules, {path: text for path, text in found.items() if path.startswith("srt/")}, unreadable
    )
    readers = Readers(modules.root, envs, (b"envs.", b"SGLANG_"), "srt/environ.py")
    if why := readers.run():
        unreadable["readers"] = why.reason
    else:
        envs = {name: replace(one, read_in=tuple(readers.found.get(name, ()))) for name, one in envs.items()}
    return {**others, **envs, **flags}


def _texts(root: Path, unreadable: dict[str, str]) -> dict[str, bytes]:
    try:
        return dict(texts(root))
    except OSError as error:
        unreadable["variables"] = f"{error.filename or root}: {error.strerror or error}"
        return {}


def _kept(found: dict[str, Registered] | Missing, part: str, unreadable: dict[str, str]) -> dict[str, Registered]:
    if isinstance(found, Missing):
        unreadable[part] = found.reason
        return {}
    return found
