"""Findings on vLLM's calls of FlashInfer that do not fit what the installed FlashInfer takes: known without running."""

from __future__ import annotations

import re

from fi_doctor.diagnosis import called
from fi_doctor.model import (
    ActionKind,
    Calls,
    Facts,
    Feature,
    Finding,
    KnowledgeBase,
    Misfit,
    MisfitKind,
    Missing,
    Outcome,
    Package,
    Severity,
)

IDS = tuple(kind.value for kind in MisfitKind)
CAUSE = "vllm-and-flashinfer-do-not-fit"
LISTING = "fi-doctor features --calls"
VLLM_ISSUES = "https://github.com/vllm-project/vllm/issues"
_MOST_TOLD = 4
_PIN = re.compile(r"flashinfer-python\s*==\s*([\w.+!-]+)")
_TITLES = {
    MisfitKind.MISSING_LAZILY: "vLLM {vllm} looks for {count} that FlashInfer {flashinfer} lacks",
    MisfitKind.MISSING_NAME: "vLLM {vllm} uses {count} that FlashInfer {flashinfer} lacks",
    MisfitKind.UNKNOWN_KEYWORD: "vLLM {vllm} passes keywords to {count} that FlashInfer {flashinfer} does not take",
    MisfitKind.TOO_MANY: "vLLM {vllm} passes more to {count} than FlashInfer {flashinfer} takes",
    MisfitKind.MISSING_ARGUMENT: "vLLM {vllm} does not pass what {count} of FlashInfer {flashinfer} cannot do without",
}


def find(kb: KnowledgeBase, facts: Facts, outcomes: tuple[Outcome, ...]) -> list[Finding]:
    """One finding for each kind of misfit, with places on both sides; what cannot be told is no finding."""
    calls = facts.calls
    if isinstance(calls, Missing):
        return []
    kinds = {kind: [one for one in calls.misfits if one.kind is kind] for kind in MisfitKind}
    return [_finding(kind, several, kb, facts, outcomes) for kind, several in kinds.items() if several]


def _finding(
    kind: MisfitKind, several: list[Misfit], kb: KnowledgeBase, facts: Facts, outcomes: tuple[Outcome, ...]
) -> Finding:
    names = sorted({one.name for one in several})
    features = tuple(feature for feature in kb.features if _concerns(feature, several, facts))
    title = _TITLES[kind].format(
        vllm=facts.vllm_version or "of unknown version",
        flashinfer=_version(facts, "flashinfer-python") or "of unknown version",
        count=names[0] if len(names) == 1 else f"{len(names)} names",
    )
    return Finding(
        id=kind.value,
        cause=CAUSE,
        severity=_severity(kind, features, kb, facts, outcomes),
        title=title,
        why=_told(several),
        fix=_fixes(facts),
        features=tuple(feature.id for feature in features),
        source=f"vllm/{several[0].caller}",
    )


def _told(several: list[Misfit]) -> str:
    """The first place of each name, on both sides."""
    first = {one.name: one for one in reversed(several)}
    told = [_place(first[name]) for name in sorted(first)[:_MOST_TOLD]]
    more = len(several) - len(told)
    return "; ".join(told) + (f"; and {more} more: {LISTING}" if more > 0 else "")


def _place(misfit: Misfit) -> str:
    callee = f" (flashinfer/{misfit.callee})" if misfit.callee else ""
    return f"vllm/{misfit.caller}: {misfit.name}{callee}: {misfit.text}"


def _concerns(feature: Feature, several: list[Misfit], facts: Facts) -> bool:
    """Whether a row enters FlashInfer where one of the misfits would, or by a class whose method it is."""
    flashinfer = facts.flashinfer
    symbols = {} if isinstance(flashinfer, Missing) else flashinfer.symbols
    entries = {*feature.entry, *(use.entry for use in feature.vllm if use.entry)}
    places = {place for name in entries if isinstance(place := symbols.get(name), str)}
    names = {one.name.partition("()")[0] for one in several}
    calls = facts.calls.places if isinstance(facts.calls, Calls) else {}
    entered = {one.callee for one in several} | {calls.get(name, "") for name in names}
    return bool(entries & names) or bool(places & entered)


def _severity(
    kind: MisfitKind,
    features: tuple[Feature, ...],
    kb: KnowledgeBase,
    facts: Facts,
    outcomes: tuple[Outcome, ...],
) -> Severity:
    """An error where a row is concerned that this vLLM calls here without being told to; which path it takes, no more.

    Of an entry with many callers it is not known which of them a server takes: that is why it is no verdict.
    """
    if kind is MisfitKind.MISSING_LAZILY:
        return Severity.INFO
    sms = {outcome.sm for outcome in outcomes}
    if any(called.is_called(feature, sm, facts, kb) for feature in features for sm in sms):
        return Severity.ERROR
    return Severity.WARNING


def _fixes(facts: Facts) -> tuple[str, ...]:
    """The FlashInfer that this vLLM asks for, where it is another one; else it is a fault of this vLLM."""
    package = facts.packages.get("vllm")
    requires = " ".join(package.requires) if isinstance(package, Package) else ""
    pin = _PIN.search(requires)
    if pin is not None and pin[1] != _version(facts, "flashinfer-python"):
        return (f"pip install flashinfer-python=={pin[1]}", LISTING)
    return (f"{ActionKind.REPORT}: {VLLM_ISSUES}, with the output of {LISTING}", LISTING)


def _version(facts: Facts, name: str) -> str:
    package = facts.packages.get(name)
    return package.version if isinstance(package, Package) and isinstance(package.version, str) else ""
