"""What a module in FlashInfer's cache is worth to the installed FlashInfer. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from fi_doctor.model import Binary, CachedModule, CacheEntry, CacheState, Facts, Library, Missing
from fi_doctor.model.gpu_code import Reach, architectures, of_file

_LINE = re.compile(r"^(\w+)\s*=\s*(.*)$", re.MULTILINE)
_GENCODE = re.compile(r"-gencode=?\s*(\S+)")
_CUDART = re.compile(r"(?:.*/)?libcudart\.so\.(\d+)[\d.]*")
_NUMBER = re.compile(r"(\d+)[af]?")

# What the head of a build.ninja says otherwise than would be written today, in words; "" for nothing.
Difference = Callable[[str], str]


def entry(module: CachedModule, facts: Facts, difference: Difference | Missing) -> CacheEntry:
    """The module, judged; the gravest is said.

    difference: Missing where it is not known what would be written today; then nothing is stale.
    """
    state, why = _judged(module, facts, difference if callable(difference) else lambda _: "")
    if state is CacheState.VALID and isinstance(difference, Missing):
        why = f"not compared with what would be built today: {difference.reason}"
    said = dict(_LINE.findall(module.head.replace("$\n", " ")))
    return CacheEntry(
        module=module,
        state=state,
        why=why,
        cuda_home=said.get("cuda_home", ""),
        flags=tuple(dict.fromkeys(_GENCODE.findall(module.head))),
    )


def compiled_next(one: CacheEntry) -> int:
    """How many objects its next use compiles; of one that nobody uses, or that another process builds, none."""
    match one.state:
        case CacheState.STALE | CacheState.POISONED | CacheState.PLANNED:
            return one.module.sources
        case CacheState.UNFINISHED:
            return max(1, one.module.sources - one.module.objects)  # at least the link, after one that is not whole
        case _:
            return 0


def _judged(module: CachedModule, facts: Facts, difference: Difference) -> tuple[CacheState, str]:
    if module.holder:
        return CacheState.LOCKED, f"process {module.holder} holds its lock"
    if why := _unused(module, facts):
        return CacheState.UNUSED, why
    if module.unread:
        return CacheState.UNREAD, module.unread
    if why := _poisoned(module, facts):
        return CacheState.POISONED, why
    if module.library is None:
        if not module.objects:
            return CacheState.PLANNED, "nothing of it is compiled"
        return CacheState.UNFINISHED, "it has no library yet: the next use goes on compiling"
    if why := _stale(module, difference):
        return CacheState.STALE, why
    return CacheState.VALID, ""


def _unused(module: CachedModule, facts: Facts) -> str:
    package = facts.flashinfer
    if isinstance(package, Missing):
        return f"no FlashInfer reads it: {package.reason}"
    if module.version != package.version:
        return f"FlashInfer {package.version} is installed"
    if not isinstance(package.architectures, Missing) and set(module.architectures) != set(package.architectures):
        return f"FlashInfer builds for {' '.join(package.architectures)} here"
    return ""


def _poisoned(module: CachedModule, facts: Facts) -> str:
    if module.damaged:
        return f"objects are empty, cut off or for another processor: {', '.join(module.damaged[:4])}"
    if module.lost:
        return f"its library cannot be loaded: {module.lost}"
    if module.library is None:
        return ""
    if isinstance(module.library.unresolved, tuple) and module.library.unresolved:
        names = ", ".join(module.library.unresolved[:2])
        return f"the installed apache-tvm-ffi lacks what its library needs: {names}"
    return _of_other_cuda(module.library, facts) or _of_other_gpus(module, module.library)


def _of_other_cuda(library: Binary, facts: Facts) -> str:
    """One process holds one libcudart, that of torch; another major is mostly not even there."""
    cudart = facts.libraries.get("cudart")
    needs = [found[1] for name in library.needed if (found := _CUDART.fullmatch(name))]
    if not needs or not isinstance(cudart, Library):
        return ""
    has = _CUDART.search(cudart.path)
    if has is None or has[1] in needs:
        return ""
    return f"its library is linked with libcudart.so.{needs[0]}, torch loads libcudart.so.{has[1]}"


def _of_other_gpus(module: CachedModule, library: Binary) -> str:
    """The folder says for which architectures it was built; of several a module may be compiled for some only."""
    sms = [int(found[1]) for one in module.architectures if (found := _NUMBER.fullmatch(one))]
    reached = [of_file(library, sm, Missing(reason="it does not matter here")) for sm in sms]
    if not reached or any(reach is not Reach.NOT for reach in reached):
        return ""
    return f"its library has code for {' '.join(architectures(library.units))} only"


def _stale(module: CachedModule, difference: Difference) -> str:
    if not module.head:
        return "it has no build.ninja"
    if said := difference(module.head):
        return f"built with {said}"
    if module.gone:
        return f"sources are gone: {', '.join(module.gone[:2])}"
    return f"younger than it: {', '.join(module.newer[:2])}" if module.newer else ""
