"""What FlashInfer's compiled modules need of apache-tvm-ffi, which loads them."""

from __future__ import annotations

from collections.abc import Callable

from fi_doctor.conditions.binaries import undefined
from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.relations import Relation
from fi_doctor.conditions.requirements import required
from fi_doctor.model import Facts, Missing

_MOST_NAMED = 6


def cached_undefined(facts: Facts) -> Relation:
    """Modules in FlashInfer's cache of today that need what the installed apache-tvm-ffi lacks: "norm.so: TVMFFIX"."""
    return _told(undefined(facts, lambda one: one.owner == "flashinfer cache"))


def jit_cache_undefined(facts: Facts) -> Relation:
    """The same of flashinfer-jit-cache's."""
    return _told(undefined(facts, lambda one: one.owner == "flashinfer-jit-cache"))


def requirement_of_flashinfer(facts: Facts) -> Relation:
    """The apache-tvm-ffi that FlashInfer's metadata asks for: "apache-tvm-ffi<0.2,>=0.1.11"."""
    wanted = required("apache-tvm-ffi", facts, by="flashinfer-python")
    if wanted is None:
        return Missing(reason="FlashInfer's metadata names no apache-tvm-ffi")
    return (f"apache-tvm-ffi{wanted.specifier}",)


def _told(found: Relation) -> Relation:
    """Not more than can be read; what could not be compared is not among it."""
    if isinstance(found, Missing):
        return found
    named = [one for one in found if not isinstance(one, Missing)]
    rest = len(named) - _MOST_NAMED
    return (*named[:_MOST_NAMED], f"and {rest} more") if rest > 0 else tuple(named)


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "cached_undefined": (Kind.TEXT, cached_undefined),
    "jit_cache_undefined": (Kind.TEXT, jit_cache_undefined),
    "flashinfer_tvm_ffi": (Kind.TEXT, requirement_of_flashinfer),
}
