"""Why FlashInfer's cache cannot be filled from here. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fi_doctor.errors import CannotTellError
from fi_doctor.model import Facts, FlashInfer, Missing, Place, PlannedProbe, command
from fi_doctor.probing.plan import missing_tool

_WHERE = "docker run --gpus all, or FLASHINFER_CUDA_ARCH_LIST=9.0a (the GPU that will serve)"
_OTHER = "fi-doctor warm --python /path/to/venv/bin/python"


class Obstacle(NamedTuple):
    """What is in the way of compiling, and matters only where something is to be compiled."""

    error: CannotTellError
    harmless: frozenset[Place]  # where a module is of which a server can make use all the same


def refuse(facts: Facts) -> None:
    """Raise CannotTellError where it cannot be found out what modules there are."""
    flashinfer = facts.flashinfer
    if isinstance(flashinfer, Missing):
        raise _refusal("FlashInfer is not there to be compiled", flashinfer.reason, _OTHER)
    _refuse_architectures(facts, flashinfer)


def obstacle(facts: Facts, known: CannotTellError | None) -> Obstacle | None:
    """The first one that the facts tell of. known: that compiling is vain, by what is known of the toolkit."""
    if isinstance(facts.flashinfer, FlashInfer) and (error := _of_cache(facts, facts.flashinfer)):
        return of_folder(error)
    if lacking := missing_tool(facts):
        what, why = lacking
        look = command.line(facts.interpreter, "check", "--depth", "static")
        known = _refusal(f"nothing can be compiled here: {what}", why, look)
    return Obstacle(known, frozenset(place for place in Place if place.is_there)) if known else None


def of_folder(error: CannotTellError) -> Obstacle:
    """One of the cache: FlashInfer also locks a file there before it loads what it has compiled."""
    return Obstacle(error, frozenset([Place.IN_JIT_CACHE]))


def foreign(place: str, owner: int, own: int | Missing) -> CannotTellError:
    """That a folder of the cache belongs to somebody else."""
    why = f"{place} belongs to user {owner} and this is user {own}, whose files would break its server"
    return _refusal("FlashInfer's cache is another user's", why, "run it as the user that serves")


def not_tried(facts: Facts, planned: Sequence[PlannedProbe]) -> CannotTellError:
    """That nothing of what was asked for can be compiled here."""
    first = next(probe for probe in planned if probe.skip)
    has_torch = not isinstance(facts.packages.get("torch"), Missing)
    return _refusal(
        "nothing of what was asked for is compiled here",
        f"{first.spec.id}: {first.skip}",
        "fi-doctor features" if has_torch else _OTHER,
    )


def _refuse_architectures(facts: Facts, flashinfer: FlashInfer) -> None:
    what = "it is not known for which GPU to compile"
    if isinstance(flashinfer.architectures, Missing):
        raise _refusal(what, flashinfer.architectures.reason, _WHERE)
    if len(flashinfer.architectures) != 1 and not facts.gpus.cuda_sees_any:
        named = ", ".join(flashinfer.architectures) or "none"
        raise _refusal(what, f"CUDA sees no GPU, and of architectures one must be named: {named}", _WHERE)


def _of_cache(facts: Facts, flashinfer: FlashInfer) -> CannotTellError | None:
    owner, base = flashinfer.cache_owner, flashinfer.cache_base
    if not isinstance(owner, Missing) and owner != facts.system.uid:
        return foreign(base if isinstance(base, str) else "its folder", owner, facts.system.uid)
    if flashinfer.cache_writable is not True:
        said = flashinfer.cache_writable.reason if isinstance(flashinfer.cache_writable, Missing) else base
        return _refusal("FlashInfer's cache cannot be written to", said, "FLASHINFER_WORKSPACE_BASE=/a/folder/of/yours")
    return None


def _refusal(what: str, why: str, todo: str) -> CannotTellError:
    return CannotTellError(what, why=why, todo=todo)
