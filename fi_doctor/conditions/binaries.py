"""What conditions can ask about binaries: which of them a visible GPU, its driver or the loader would not take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from packaging.version import Version

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.relations import Relation, visible_gpus
from fi_doctor.model import Binary, Facts, Loads, Missing, cuda_of_ptx, loads

# Of vLLM's extensions those that every server needs; others are for some GPUs only, by design.
_CORE = re.compile(r"_(?:moe_)?C(?:_stable_libtorch)?(?:\.abi3|\.cpython\S*)?\.so")
_FLASH_ATTENTION = re.compile(r"_vllm_fa\d+_C\b")
# Modules that FlashInfer builds for one architecture say so in their name: fused_moe_90, gemm_sm120, trtllm_gen_fmha.
_OF_ONE_KIND = re.compile(r"(?:^|_|sm)(?:[789]\d|1[0-2]\d)a?(?:_|$)|trtllm|sm\d+")


def not_loadable(facts: Facts) -> Relation:
    """Binaries that are needed and have no code for a visible GPU: "_C.abi3.so (sm_80, sm_90a) on SM121"."""
    return _judged(facts, lambda path, binary, sm: _is_needed(path, binary) and loads(binary.code, sm) is Loads.NOT)


def by_ptx(facts: Facts) -> Relation:
    """Binaries whose code the driver of a visible GPU has to compile first; not where another one of the kind is."""
    return _judged(facts, lambda path, binary, sm: _is_by_ptx(path, binary, sm, facts))


def ptx_too_new(facts: Facts) -> Relation:
    """Of these the ones whose PTX is of a newer CUDA than the driver knows."""
    driver = facts.gpus.driver
    if isinstance(driver, Missing):
        return driver
    if isinstance(driver.cuda, Missing):
        return driver.cuda
    try:
        known = Version(driver.cuda)
    except ValueError:
        return Missing(reason=f"CUDA {driver.cuda[:40]} of the driver is no version")

    def is_newer(_: str, binary: Binary, sm: int) -> bool:
        cuda = cuda_of_ptx(binary.ptx)
        return bool(cuda) and loads(binary.code, sm) is Loads.PTX and Version(cuda) > known

    return _judged(facts, is_newer, lambda binary: f"PTX {binary.ptx} of CUDA {cuda_of_ptx(binary.ptx)}")


def cached_for_other_gpu(facts: Facts) -> Relation:
    """Built modules in FlashInfer's cache that have no code for a visible GPU."""
    return _judged(facts, lambda _, binary, sm: binary.package == "JIT cache" and loads(binary.code, sm) is Loads.NOT)


def prebuilt_for_other_gpu(facts: Facts) -> Relation:
    """Modules of flashinfer-jit-cache for any GPU that have no code for a visible one."""

    def is_other(path: str, binary: Binary, sm: int) -> bool:
        is_general = not _OF_ONE_KIND.search(PurePosixPath(path).stem)
        return binary.package == "flashinfer-jit-cache" and is_general and loads(binary.code, sm) is Loads.NOT

    return _judged(facts, is_other)


def lacking_libraries(facts: Facts) -> Relation:
    """Binaries for which the loader does not find all that they are linked with: "_C.abi3.so: libcudart.so.12"."""
    known = _known(facts)
    unread = next((one.not_found for one in known.values() if isinstance(one.not_found, Missing)), None)
    told = tuple(
        f"{PurePosixPath(path).name}: {', '.join(binary.not_found)}"
        for path, binary in known.items()
        if not isinstance(binary.not_found, Missing) and binary.not_found
    )
    return unread if unread is not None and not told else told


def not_readable(facts: Facts) -> Relation:
    """Why binaries cannot be read, each with its path."""
    return tuple(one.reason for one in facts.binaries.values() if isinstance(one, Missing))


def _judged(
    facts: Facts,
    holds: Callable[[str, Binary, int], bool],
    words: Callable[[Binary], str] = lambda binary: ", ".join(binary.code),
) -> Relation:
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing):
        return gpus
    unread = next((gpu.sm for gpu in gpus if isinstance(gpu.sm, Missing)), None)
    sms = sorted({gpu.sm for gpu in gpus if not isinstance(gpu.sm, Missing)})
    told = tuple(
        f"{PurePosixPath(path).name} ({words(binary)}) on SM{sm}"
        for path, binary in _known(facts).items()
        for sm in sms
        if holds(path, binary, sm)
    )
    return unread if unread is not None and not told else told


def _known(facts: Facts) -> dict[str, Binary]:
    return {path: binary for path, binary in facts.binaries.items() if isinstance(binary, Binary)}


def _is_needed(path: str, binary: Binary) -> bool:
    is_core = binary.package == "vllm" and _CORE.fullmatch(PurePosixPath(path).name) is not None
    return is_core or (binary.package in ("--binary", "torch") and _is_main(path, binary))


def _is_main(path: str, binary: Binary) -> bool:
    """Of torch the library that all of its kernels are in."""
    return binary.package != "torch" or PurePosixPath(path).name == "libtorch_cuda.so"


def _is_by_ptx(path: str, binary: Binary, sm: int, facts: Facts) -> bool:
    if binary.package not in ("vllm", "--binary") or loads(binary.code, sm) is not Loads.PTX:
        return False
    return not _FLASH_ATTENTION.match(PurePosixPath(path).name) or Loads.NATIVE not in _flash_attention(facts, sm)


def _flash_attention(facts: Facts, sm: int) -> Iterator[Loads]:
    """How the GPU would load each of vLLM's copies of FlashAttention."""
    known = _known(facts).items()
    return (loads(one.code, sm) for path, one in known if _FLASH_ATTENTION.match(PurePosixPath(path).name))


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "binary_without_code_for_gpu": (Kind.TEXT, not_loadable),
    "binary_by_ptx": (Kind.TEXT, by_ptx),
    "binary_ptx_too_new": (Kind.TEXT, ptx_too_new),
    "binary_lacks_library": (Kind.TEXT, lacking_libraries),
    "binary_not_readable": (Kind.TEXT, not_readable),
    "cached_module_for_other_gpu": (Kind.TEXT, cached_for_other_gpu),
    "prebuilt_module_for_other_gpu": (Kind.TEXT, prebuilt_for_other_gpu),
}
