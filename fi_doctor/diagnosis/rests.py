"""On which facts a row can rest, whatever is known of it: what compiles it, versions, GPU, driver, variables."""

from __future__ import annotations

from typing import NamedTuple

from fi_doctor import conditions
from fi_doctor.diagnosis.findings import concerns
from fi_doctor.model import CauseKind, Feature, FeatureRow, KnowledgeBase, ProbeSpec

# Kind, name, and how the row rests on it.
On = tuple[CauseKind, str, str]
_FLASHINFER = (CauseKind.FLASHINFER, "flashinfer-python", "it is from this package")
_TOOLKIT = ("toolkit.jit.", "toolkit.gate_")
_TOOLS = ("toolkit.ninja", "toolkit.host_compiler", "toolkit.nvcc_on_path")
_CACHES = ("flashinfer.cached_modules", "flashinfer.jit_cache_", "flashinfer.stale_modules", "flashinfer.cache_")
_GPUS = ("gpus.sm", "gpus.name", "gpus.count", "flashinfer.architectures")
_ENVIRONMENTS = ("env", "env_set")


class Rests(NamedTuple):
    """A row with what is known of its feature and its probes."""

    row: FeatureRow
    feature: Feature | None
    specs: tuple[ProbeSpec, ...]
    kb: KnowledgeBase

    @property
    def compiles(self) -> bool:
        """Whether something is compiled for it by nvcc."""
        has_generator = self.feature is not None and bool(self.feature.generator)
        return has_generator or any(spec.module and "nvcc" in spec.compiles for spec in self.specs)

    def on(self, fact: str) -> On | None:
        """What the fact of this name is a part of, if the row can rest on it."""
        group, _, rest = fact.partition(".")
        if group == "packages":
            return self._package(rest)
        if fact in ("flashinfer.version", "flashinfer.commit"):
            return _FLASHINFER
        if group == "environment":
            return self._variable(rest)
        if group == "libraries":
            return self._library(rest)
        if self.compiles and (built := _built_by(fact)) is not None:
            return built
        if self.row.needs_gpu and fact.startswith("gpus.driver"):
            return CauseKind.DRIVER, "driver", "kernels run on it"
        if self.row.needs_gpu and fact.startswith(_GPUS):
            return CauseKind.GPU, "gpu", "kernels are built for it and run on it"
        return None

    def _package(self, rest: str) -> On | None:
        name, _, field = rest.partition(".")
        if field not in ("", "version", "commit", "editable"):
            return None
        if name == "flashinfer-python":
            return _FLASHINFER
        needs = [need for spec in self.specs for need in (spec.requires, *spec.variants.values())]
        if any(name in need.packages for need in needs):
            return CauseKind.PACKAGE, name, "its probe needs this package"
        if name == "vllm":
            return CauseKind.PACKAGE, name, "it decides which variants count"
        if name == "torch":
            return CauseKind.PACKAGE, name, "its tensors are handed over"
        return CauseKind.OTHER, name, "a package beside it"

    def _variable(self, name: str) -> On | None:
        if name in _known_variables(self.kb, self.row.feature):
            return CauseKind.VARIABLE, name, "FlashInfer, vLLM or a rule reads it"
        return None

    def _library(self, rest: str) -> On | None:
        name, _, field = rest.partition(".")
        if not self.row.needs_gpu or field not in ("", "version"):
            return None
        return CauseKind.LIBRARY, name, "it is loaded at run time"


def _built_by(fact: str) -> On | None:
    if fact.startswith(_TOOLKIT):
        return CauseKind.NVCC, "nvcc", "it compiles this, and FlashInfer's gates ask for its version"
    if fact.startswith(_TOOLS):
        return CauseKind.BUILD_TOOL, "build tools", "they build it"
    if fact.startswith(_CACHES):
        return CauseKind.CACHE, "caches", "modules may come from there"
    return None


def _known_variables(kb: KnowledgeBase, feature: str) -> set[str]:
    """The variables that are settings, and those that rules about this row, or about none in particular, ask for."""
    rules = (rule for rule in kb.rules if not rule.features or concerns(rule, feature))
    asked = (part for rule in rules for part in conditions.parts(rule.when))
    named = {name for part in asked for word in _ENVIRONMENTS for name in part.get(word, ())}
    return named | {setting.name for setting in kb.settings if setting.kind == "env"}
