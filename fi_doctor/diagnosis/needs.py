"""Which needs of a probe the installed packages and the GPU do not meet, with where that is known from."""

from __future__ import annotations

from fi_doctor.conditions.peers import no_peers
from fi_doctor.conditions.ranges import number_in, version_in
from fi_doctor.model import Facts, Feature, Majors, Missing, PlannedProbe, Requires
from fi_doctor.model.phrases import UNPROBED

# How it is said of a variant that our probe of it is for other GPUs.
OTHER_GPUS = "it is for SM"


def unmet(planned: PlannedProbe, variant: str, facts: Facts) -> str:
    """The first need that is surely not met, in words; "" where all are met or it cannot be told."""
    needs = (planned.spec.requires, planned.spec.variants.get(variant, Requires()))
    return next((said for need in needs if (said := _unmet(need, planned.sm, facts))), "")


def not_installed(feature: Feature, facts: Facts) -> str:
    """That there is no FlashInfer to have the feature; "" where there is one."""
    absent = isinstance(facts.flashinfer, Missing) and isinstance(facts.packages.get("flashinfer-python"), Missing)
    return f"flashinfer-python is not installed in {facts.interpreter.executable}" if feature.entry and absent else ""


def lacks_entry(feature: Feature, facts: Facts) -> str:
    """That the installed FlashInfer has no such function, and where that was read; "" where it has."""
    if not feature.entry or isinstance(facts.flashinfer, Missing):
        return ""
    # A name without a dot is the package itself.
    place = facts.flashinfer.symbols.get(feature.entry[0]) if "." in feature.entry[0] else None
    return f"{feature.entry[0]}: {place.reason}" if isinstance(place, Missing) and place.absent else ""


def not_compiled_for(feature: Feature, sm: int | Missing, facts: Facts) -> str:
    """That FlashInfer compiles the feature's module for other GPUs only, and where that was read; "" else."""
    if not feature.generator or isinstance(sm, Missing) or isinstance(facts.flashinfer, Missing):
        return ""
    found = facts.flashinfer.majors.get(feature.generator)
    if not isinstance(found, Majors) or not found.majors or sm // 10 in found.majors:
        return ""
    majors = ", ".join(f"{major}.x" for major in found.majors)
    return f"FlashInfer compiles it for compute capability {majors} only ({found.source}), this is SM{sm}"


def turned_away(feature: Feature, sm: int | Missing, facts: Facts) -> str:
    """That the installed source refuses the feature's call on this GPU, and at which place; "" else.

    What Python refuses comes first: a kernel's own runner is asked when all else was done.
    """
    calls = (feature.call or feature.entry[0], feature.runner) if feature.entry else ()
    return next((said for call in calls if (said := _refused(call, sm, facts))), "")


def offered_at(feature: Feature, facts: Facts) -> str:
    """That the installed FlashInfer has what nothing here runs, and where; "" when that is not known."""
    place = declared_at(feature, facts).removeprefix("declared in ")
    return f"offered (flashinfer/{place}), {UNPROBED}" if place and "." in feature.entry[0] else ""


def declared_at(feature: Feature, facts: Facts) -> str:
    """Where the installed package has the feature's entry point; "" when that is not known."""
    if not feature.entry or isinstance(facts.flashinfer, Missing):
        return ""
    if "." not in feature.entry[0]:
        return f"installed in {facts.flashinfer.root}" if facts.flashinfer.root else ""  # it is named by --target only
    place = facts.flashinfer.symbols.get(feature.entry[0])
    return f"declared in {place}" if isinstance(place, str) else ""


def _unmet(need: Requires, sm: int | Missing, facts: Facts) -> str:
    package = facts.flashinfer
    if not isinstance(package, Missing):
        for name in need.symbols:
            place = package.symbols.get(name)
            if isinstance(place, Missing) and place.absent:
                return f"{name}: {place.reason}"
    if need.sm and not isinstance(sm, Missing) and not number_in(sm, need.sm):
        # A probe may need several functions of which one will do here.
        refused = [_refused(name, sm, facts) for name in need.symbols]
        return refused[0] if refused and all(refused) else f"{OTHER_GPUS} {need.sm}, this is SM{sm}"
    version = Missing(reason="") if isinstance(package, Missing) else package.version
    if said := _outside("flashinfer-python", version, need.flashinfer):
        return said
    if said := _outside("the CUDA version that FlashInfer's gates read", facts.toolkit.gate_version, need.nvcc):
        return said
    if need.peer_access and (said := no_peers(facts, sm)):
        return said
    return next((said for name, wanted in need.packages.items() if (said := _no_package(name, wanted, facts))), "")


def _refused(call: str, sm: int | Missing, facts: Facts) -> str:
    """Where the installed source turns this GPU away from a call, "flashinfer/mla.py:612 admits ..."."""
    if isinstance(sm, Missing) or isinstance(facts.flashinfer, Missing):
        return ""
    places = facts.flashinfer.admissions.get(call, ())
    found = next((place for place in places if sm in place.refuses), None)
    if found is None:
        return ""
    return f"flashinfer/{found.source} admits compute capability {', '.join(map(str, found.admits))}; this is {sm}"


def _no_package(name: str, wanted: str, facts: Facts) -> str:
    found = facts.packages.get(name)
    # What is not installed says nothing about this machine: it can be installed.
    return "" if found is None or isinstance(found, Missing) else _outside(name, found.version, wanted)


def _outside(what: str, version: str | Missing, wanted: str) -> str:
    if not wanted or isinstance(version, Missing) or version_in(version, wanted) is not False:
        return ""
    return f"it needs {what} {wanted}, here it is {version}"
