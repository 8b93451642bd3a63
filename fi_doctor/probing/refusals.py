"""Why FlashInfer's cache cannot be filled from here. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fi_doctor.errors import CannotTellError
from fi_doctor.model import Facts, Finding, FlashInfer, Missing, PlannedProbe, Severity
from fi_doctor.probing.plan import missing_tool

# Causes of findings about what compiles, not about what runs.
_STOPPED_BY = ("wrong-toolkit", "incomplete-toolkit", "nvcc-too-old", "no-host-compiler", "no-ninja", "no-toolkit")
_WHERE = "docker run --gpus all, or FLASHINFER_CUDA_ARCH_LIST=9.0a (the GPU that will serve)"


def refuse(facts: Facts, *, writes: bool) -> None:
    """Raise CannotTellError where modules cannot be compiled, or where the cache must not be written to.

    writes: whether the cache is written to.
    """
    flashinfer = facts.flashinfer
    if isinstance(flashinfer, Missing):
        raise _refusal("FlashInfer is not there to be compiled", flashinfer.reason, "fi-doctor warm --python PATH")
    _refuse_architectures(facts, flashinfer)
    if lacking := missing_tool(facts):
        what, why = lacking
        raise _refusal(f"nothing can be compiled here: {what}", why, "fi-doctor check")
    if writes:
        _refuse_cache(facts, flashinfer)


def refuse_toolkit(findings: Sequence[Finding], planned: Sequence[PlannedProbe]) -> None:
    """Raise CannotTellError where a known fault of the toolkit stops all that is asked for from being compiled."""
    asked = {probe.spec.feature for probe in planned if probe.is_tried}
    for finding in findings:
        stops = finding.severity is Severity.ERROR and finding.cause in _STOPPED_BY
        if stops and asked and asked <= set(finding.features):
            raise _refusal(
                f"nothing of this would compile here: {finding.title} [{finding.id}]",
                f"{finding.why} --anyway tries it all the same",
                next(iter(finding.fix), "fi-doctor check"),
            )


def foreign(place: str, owner: int, own: int | Missing) -> CannotTellError:
    """That a folder of the cache belongs to somebody else."""
    why = f"{place} belongs to user {owner} and this is user {own}, whose files would break its server"
    return _refusal("FlashInfer's cache is another user's", why, "run it as the user that serves")


def not_tried(planned: Sequence[PlannedProbe]) -> CannotTellError:
    """That nothing of what was asked for can be compiled here."""
    first = next(probe for probe in planned if probe.skip)
    return _refusal(
        "nothing of what was asked for is compiled here",
        f"{first.spec.id}: {first.skip}",
        "fi-doctor warm --python PATH (the interpreter that serves)",
    )


def _refuse_architectures(facts: Facts, flashinfer: FlashInfer) -> None:
    what = "it is not known for which GPU to compile"
    if isinstance(flashinfer.architectures, Missing):
        raise _refusal(what, flashinfer.architectures.reason, _WHERE)
    seen = not isinstance(facts.gpus.cuda_order, Missing) and bool(facts.gpus.cuda_order)
    if len(flashinfer.architectures) != 1 and not seen:
        named = ", ".join(flashinfer.architectures) or "none"
        raise _refusal(what, f"CUDA sees no GPU, and of architectures one must be named: {named}", _WHERE)


def _refuse_cache(facts: Facts, flashinfer: FlashInfer) -> None:
    owner, base = flashinfer.cache_owner, flashinfer.cache_base
    if not isinstance(owner, Missing) and owner != facts.system.uid:
        raise foreign(base if isinstance(base, str) else "its folder", owner, facts.system.uid)
    if flashinfer.cache_writable is not True:
        said = flashinfer.cache_writable.reason if isinstance(flashinfer.cache_writable, Missing) else base
        raise _refusal("FlashInfer's cache cannot be written to", said, "FLASHINFER_WORKSPACE_BASE=/a/folder/of/yours")


def _refusal(what: str, why: str, todo: str) -> CannotTellError:
    return CannotTellError(what, why=why, todo=todo)
