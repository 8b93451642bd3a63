"""Whether modules of FlashInfer are compiled already where rows are to run. Pure."""

from __future__ import annotations

from fi_doctor.model import Facts, FlashInfer, Missing
from fi_doctor.model.gpu_code import Reach, of_architecture

_FAMILIES = ("batch_prefill", "batch_decode", "batch_mla", "xqa", "selective_state_update")  # names go on with types


def as_family(name: str) -> str:
    """What a probe calls a module as a glob of those of its kind."""
    return f"{name}*" if name.startswith(_FAMILIES) else name


def has(name: str, sm: int | Missing, facts: Facts) -> bool:
    """Whether a module is compiled in the image, for that GPU: what FlashInfer's cache has is by its folder.

    flashinfer-jit-cache says from 0.7 on for which GPUs it is; of older ones a finding says where it is for others.
    """
    package = facts.flashinfer
    if not isinstance(package, FlashInfer):
        return False
    if _is_among(name, package.cached_modules):
        return True
    tags = () if isinstance(package.jit_cache_architectures, Missing) else package.jit_cache_architectures
    reached = [of_architecture(f"sm_{tag}", sm) for tag in tags if not isinstance(sm, Missing)]
    if reached and all(reach is Reach.NOT for reach in reached):
        return False
    return _is_among(name, package.jit_cache_modules)


def _is_among(name: str, modules: tuple[str, ...]) -> bool:
    """Whether one of them has that name, or begins with what comes before the "*" at its end."""
    return any(module.startswith(name[:-1]) for module in modules) if name.endswith("*") else name in modules
