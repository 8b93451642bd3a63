"""What conditions can ask about the GPU code of shared objects, and what they need of CUDA and torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.relations import Relation, visible_gpus
from fi_doctor.conditions.requirements import required
from fi_doctor.model import Binary, Facts, Missing, command
from fi_doctor.model.gpu_code import Reach, architectures, counts, cuda_of_ptx, of_file, of_unit
from fi_doctor.model.numbers import whole

# Without these vLLM has no kernels at all. Others are for one architecture by design (FlashMLA, FA3, qutlass).
_CORE = re.compile(r"_(moe_)?C(_stable_libtorch)?(\.abi3|\.cpython-[\w-]+)?\.so")
_CUDART = re.compile(r"libcudart\.so\.(\d+)(?:\.\d+)*")
_FILE_MAJOR = re.compile(r"libcudart(?:-[0-9a-f]+)?\.so\.(\d+)")
_NUMBER = re.compile(r"(\d+)[a-z]?")
_MOST_NAMED = 6
_SM_OF_FA3 = 90  # where vLLM takes FlashAttention 3, and FlashAttention 2 lies idle


def vllm_not_here(facts: Facts) -> Relation:
    """Libraries of vLLM's own kernels without any code for a visible GPU: "_C.abi3.so (sm_80, sm_90)"."""
    return _of_gpus(facts, _is_core, lambda reach: reach is Reach.NOT)


def vllm_by_jit(facts: Facts) -> Relation:
    """Those that hold nothing but PTX for a visible GPU."""
    return _of_gpus(facts, _is_core, lambda reach: reach is Reach.JIT)


def vllm_ptx_refused(facts: Facts) -> Relation:
    """Those, and FlashAttention 2, whose only code for a visible GPU is PTX that its driver does not compile yet."""
    sms = _sms(facts)
    is_meant = _is_core if sms == (_SM_OF_FA3,) else _is_compiled_at_load
    return _of_gpus(facts, is_meant, lambda reach: reach is Reach.REFUSED)


def vllm_ptx_cuda(facts: Facts) -> Relation:
    """The CUDA whose driver compiles the PTX of all those, "13.0"."""
    files = _files(facts, _is_compiled_at_load)
    if isinstance(files, Missing):
        return files
    known = [cuda for one in files for version in one.ptx.values() if (cuda := cuda_of_ptx(version))]
    return ("{}.{}".format(*max(known)),) if known else Missing(reason="they hold no PTX")


def vllm_for_sibling(facts: Facts) -> Relation:
    """Libraries of which a part is compiled for another GPU of this major: "_C.abi3.so: 16 of 120 units (sm_120a)"."""
    files, sms = _files(facts, _is_core), _sms(facts)
    if isinstance(files, Missing):
        return files
    if isinstance(sms, Missing):
        return sms
    return tuple(words for one in files for sm in sms if (words := _sibling(one, sm)))


def torch_not_here(facts: Facts) -> Relation:
    """Libraries of torch's kernels that have no code for a visible GPU."""
    return _of_gpus(facts, lambda one: _name(one) == "libtorch_cuda.so", lambda reach: reach is Reach.NOT)


def cached_not_here(facts: Facts) -> Relation:
    """Modules in FlashInfer's cache that no visible GPU runs, and whose architectures FlashInfer would not take now.

    One that is for an architecture in FlashInfer's list may be there for another GPU of the list.
    """
    package, driver = facts.flashinfer, _driver_cuda(facts)
    files, sms = _files(facts, lambda one: one.owner == "flashinfer cache"), _sms(facts)
    if isinstance(package, Missing) or isinstance(files, Missing) or isinstance(sms, Missing):
        return next(one for one in (package, files, sms) if isinstance(one, Missing))
    if isinstance(package.architectures, Missing):
        return package.architectures
    listed = {match[1] for tag in package.architectures if (match := _NUMBER.fullmatch(tag))}

    def is_elsewhere(one: Binary) -> bool:
        built = {name.partition("_")[2].rstrip("af") for name in architectures(one.units)}
        return not built & listed and bool(sms) and all(of_file(one, sm, driver) is Reach.NOT for sm in sms)

    return tuple(_in_words(one, PurePosixPath(one.path).parent.name) for one in files if is_elsewhere(one))


def cached_not_here_folders(facts: Facts) -> Relation:
    """The folders of those modules, for a command; Missing when they are too many for one."""
    found = cached_not_here(facts)
    files = _files(facts, lambda one: one.owner == "flashinfer cache")
    if isinstance(found, Missing) or isinstance(files, Missing):
        return found if isinstance(found, Missing) else files
    if len(found) > _MOST_NAMED:
        return Missing(reason=f"there are {len(found)} of them")
    folders = (PurePosixPath(one.path).parent for one in files)
    return tuple(str(one) for one in folders if any(str(words).startswith(f"{one.name} (") for words in found))


def jit_cache_not_here(facts: Facts) -> Relation:
    """The architectures of flashinfer-jit-cache, when none of its modules has code for any visible GPU."""
    files, sms = _files(facts, lambda one: one.owner == "flashinfer-jit-cache" and bool(one.units)), _sms(facts)
    if isinstance(files, Missing):
        return files
    if isinstance(sms, Missing):
        return sms
    driver = _driver_cuda(facts)
    if not files or not sms or any(of_file(one, sm, driver) is not Reach.NOT for one in files for sm in sms):
        return ()
    return (", ".join(architectures(name for one in files for name in one.units)),)


def named_not_here(facts: Facts) -> Relation:
    """Files that --binary names without any code for a visible GPU."""
    return _of_gpus(facts, lambda one: one.owner == "--binary", lambda reach: reach is Reach.NOT)


def vllm_cudart_absent(facts: Facts) -> Relation:
    """The libcudart that vLLM's libraries are linked with, where only other majors are installed: "libcudart.so.13"."""
    return _cudart_absent(facts, _is_core)


def cached_cudart_absent(facts: Facts) -> Relation:
    """The same of modules in FlashInfer's cache."""
    return _cudart_absent(facts, lambda one: one.owner == "flashinfer cache")


def _cudart_absent(facts: Facts, is_meant: Callable[[Binary], bool]) -> Relation:
    files, library = _files(facts, is_meant), facts.libraries.get("cudart", Missing(reason="it was not looked for"))
    if isinstance(files, Missing):
        return files
    if isinstance(library, Missing):
        return library
    majors = {match[1] for path in (library.path, *library.copies) if (match := _FILE_MAJOR.search(path))}
    if isinstance(library.version, str):
        majors.add(library.version.partition(".")[0])
    if not majors:
        return Missing(reason=f"{library.path} does not say its version")
    wanted = {match[0]: match[1] for one in files for name in one.needed if (match := _CUDART.fullmatch(name))}
    return tuple(name for name, major in sorted(wanted.items()) if major not in majors)


def vllm_cudart_major(facts: Facts) -> Relation:
    """The CUDA major of that libcudart."""
    found = vllm_cudart_absent(facts)
    return found if isinstance(found, Missing) else tuple(str(name).split(".")[2] for name in found)


def vllm_undefined(facts: Facts) -> Relation:
    """What vLLM's own libraries need of torch and the installed one does not define: "_C.abi3.so: torch_call"."""
    return undefined(facts, _is_core)


def other_undefined(facts: Facts) -> Relation:
    """The same of its libraries for single architectures, and of files that --binary names."""
    return undefined(facts, lambda one: one.owner in ("vllm", "--binary") and not _is_core(one))


def vllm_requirement_of_torch(facts: Facts) -> Relation:
    """The torch that vLLM's metadata asks for: "torch==2.14.0"."""
    vllm = facts.packages.get("vllm", Missing(reason="vllm was not looked for"))
    if isinstance(vllm, Missing):
        return vllm
    torch = required("torch", facts, by="vllm")
    if torch is None or not torch.specifier:
        return Missing(reason="vllm's metadata names no version of torch")
    return (f"torch{torch.specifier}",)


def undefined(facts: Facts, is_meant: Callable[[Binary], bool]) -> Relation:
    """Files and what the installed libraries lack for them: "_C.abi3.so: torch_call"."""
    files = _files(facts, is_meant)
    if isinstance(files, Missing):
        return files
    told = [
        f"{_name(one)}: {', '.join(one.unresolved[:3])}"
        for one in files
        if not isinstance(one.unresolved, Missing) and one.unresolved
    ]
    # What could not be compared matters only where nothing else is known.
    return tuple(told or [one.unresolved for one in files if isinstance(one.unresolved, Missing)])


def _of_gpus(facts: Facts, is_meant: Callable[[Binary], bool], counts_as: Callable[[Reach], bool]) -> Relation:
    """Files that reach any visible GPU so; of a Jetson and its like nothing is known where compatibility is not."""
    files, sms = _files(facts, is_meant), _sms(facts)
    if isinstance(files, Missing):
        return files
    if isinstance(sms, Missing):
        return sms
    driver = _driver_cuda(facts)
    found: list[object] = []
    for one in files:
        reached = [reach for sm in sms if (reach := of_file(one, sm, driver)) is not None]
        if any(counts_as(reach) for reach in reached):
            found.append(_in_words(one, _name(one)))
        elif Reach.UNSURE in reached:
            found.append(Missing(reason=f"it is not known whether {_name(one)} runs on this GPU"))
    return tuple(found)


def _files(facts: Facts, is_meant: Callable[[Binary], bool]) -> tuple[Binary, ...] | Missing:
    """Files that were read to their end: one that was not may hold what is missed."""
    binaries = facts.binaries
    if isinstance(binaries, Missing):
        return binaries
    return tuple(one for one in binaries.files if one.path not in binaries.unread and is_meant(one))


def _sms(facts: Facts) -> tuple[int, ...] | Missing:
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing):
        return gpus
    unread = next((gpu.sm for gpu in gpus if isinstance(gpu.sm, Missing)), None)
    return tuple(sorted({gpu.sm for gpu in gpus if isinstance(gpu.sm, int)})) if unread is None else unread


def _driver_cuda(facts: Facts) -> str | Missing:
    driver = facts.gpus.driver
    return driver if isinstance(driver, Missing) else driver.cuda


def _sibling(one: Binary, sm: int) -> str:
    """Units with code for another GPU of the same major only, none of which runs on this one."""
    missed = [unit for unit in one.units if of_unit(unit, sm, {}, Missing(reason="")) is Reach.NOT]
    names = {name for unit in missed for name in unit.split() if _is_sibling(name, sm)}
    number = sum(one.units[unit] for unit in missed if any(name in names for name in unit.split()))
    every = sum(counts(one, sm, Missing(reason="")).values())
    return f"{_name(one)}: {number} of {every} units ({', '.join(sorted(names))})" if names and number < every else ""


def _is_sibling(name: str, sm: int) -> bool:
    number = whole(name.removeprefix("sm_").removesuffix("a"))
    is_exact = name.startswith("sm_") and name.endswith("a")
    return is_exact and number is not None and number // 10 == sm // 10 and number != sm


def _is_core(one: Binary) -> bool:
    return one.owner == "vllm" and _CORE.fullmatch(_name(one)) is not None


def _is_compiled_at_load(one: Binary) -> bool:
    return _is_core(one) or (one.owner == "vllm" and _name(one).startswith("_vllm_fa2_C"))


def _name(one: Binary) -> str:
    return PurePosixPath(one.path).name


def _in_words(one: Binary, name: str) -> str:
    return f"{name} ({', '.join(architectures(one.units))})"


def cached_unloadable(facts: Facts) -> Relation:
    """Libraries in FlashInfer's cache of today that no process can load: "norm (it is empty)"."""
    package = facts.flashinfer
    if isinstance(facts.binaries, Missing):
        return facts.binaries
    if isinstance(package, Missing):
        return package
    if isinstance(package.cache_dir, Missing):
        return package.cache_dir
    below = f"{package.cache_dir}/cached_ops/"
    told = ((PurePosixPath(path), why) for path, why in facts.binaries.unread.items() if path.startswith(below))
    return tuple(f"{path.stem} ({why})" for path, why in told if path.parent.name == path.stem)


def prune_command(facts: Facts) -> Relation:
    """What removes such modules from the cache, and says so first."""
    return (command.line(facts.interpreter, "cache", "--prune"),)


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "vllm_not_here": (Kind.TEXT, vllm_not_here),
    "vllm_by_jit": (Kind.TEXT, vllm_by_jit),
    "vllm_ptx_refused": (Kind.TEXT, vllm_ptx_refused),
    "vllm_ptx_cuda": (Kind.VERSION, vllm_ptx_cuda),
    "vllm_for_sibling": (Kind.TEXT, vllm_for_sibling),
    "torch_not_here": (Kind.TEXT, torch_not_here),
    "cached_not_here": (Kind.TEXT, cached_not_here),
    "cached_cudart_absent": (Kind.TEXT, cached_cudart_absent),
    "cached_unloadable": (Kind.TEXT, cached_unloadable),
    "cache_prune_command": (Kind.TEXT, prune_command),
    "cached_not_here_folders": (Kind.TEXT, cached_not_here_folders),
    "jit_cache_not_here": (Kind.TEXT, jit_cache_not_here),
    "named_not_here": (Kind.TEXT, named_not_here),
    "vllm_cudart_absent": (Kind.TEXT, vllm_cudart_absent),
    "vllm_cudart_major": (Kind.TEXT, vllm_cudart_major),
    "vllm_undefined": (Kind.TEXT, vllm_undefined),
    "other_undefined": (Kind.TEXT, other_undefined),
    "vllm_requirement_of_torch": (Kind.TEXT, vllm_requirement_of_torch),
}
