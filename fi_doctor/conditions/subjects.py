"""What a condition can ask about: a fixed table of subjects, each with its kind and how it is read off the facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fi_doctor.conditions import families, leaves, relations, requirements, tried
from fi_doctor.conditions.language import Keyed, Language, Reading, Special, Subject
from fi_doctor.conditions.leaves import Kind
from fi_doctor.model import (
    Facts,
    FlashInfer,
    Gpu,
    JitToolkit,
    Library,
    Missing,
    Nvcc,
    Outcome,
    Package,
    VersionCheck,
    command,
)
from fi_doctor.model.targets import JIT_CACHE_UNREAD


class View(NamedTuple):
    """What conditions look at."""

    facts: Facts
    outcomes: tuple[Outcome, ...] = ()


def _one(value: object) -> Reading:
    return value if isinstance(value, Missing) else (value,)


def _gpus(read: Callable[[tuple[Gpu, ...]], Reading]) -> Callable[[View], Reading]:
    def of(view: View) -> Reading:
        gpus = relations.visible_gpus(view.facts)
        return gpus if isinstance(gpus, Missing) else read(gpus)

    return of


def _driver(field: str) -> Callable[[View], Reading]:
    def of(view: View) -> Reading:
        driver = view.facts.gpus.driver
        return driver if isinstance(driver, Missing) else _one(getattr(driver, field))

    return of


def _jit(read: Callable[[JitToolkit], object]) -> Callable[[View], Reading]:
    def of(view: View) -> Reading:
        jit = view.facts.toolkit.jit
        return jit if isinstance(jit, Missing) else _one(read(jit))

    return of


def _nvcc(which: str, field: str) -> Callable[[View], Reading]:
    def read(jit: JitToolkit) -> object:
        nvcc: Nvcc | Missing = getattr(jit, which)
        return nvcc if isinstance(nvcc, Missing) else getattr(nvcc, field)

    return _jit(read)


def _nvcc_path(which: str) -> Callable[[View], Reading]:
    """Where a compiler lies; of one that is not here, as with --target, its name and release."""

    def of(view: View) -> Reading:
        path, version = _nvcc(which, "path")(view), _nvcc(which, "version")(view)
        return (f"nvcc {version[0]}",) if path == ("",) and not isinstance(version, Missing) else path

    return of


def _absent(field: str) -> Callable[[View], Reading]:
    """The names in a table of the toolkit that are not there; where no compiler could be asked, nothing is known."""

    def of(view: View) -> Reading:
        jit = view.facts.toolkit.jit
        if isinstance(jit, Missing):
            return jit
        table: dict[str, str | Missing] = getattr(jit, field)
        unread = [place for place in table.values() if isinstance(place, Missing)]
        absent = tuple(name for name, place in sorted(table.items()) if isinstance(place, Missing) and place.absent)
        return unread[0] if unread and not absent else absent

    return of


def _toolkit(field: str) -> Callable[[View], Reading]:
    return lambda view: _one(getattr(view.facts.toolkit, field))


def _flashinfer(read: Callable[[FlashInfer], object]) -> Callable[[View], Reading]:
    def of(view: View) -> Reading:
        package = view.facts.flashinfer
        return package if isinstance(package, Missing) else _one(read(package))

    return of


def _cached_count(package: FlashInfer) -> object:
    return Missing(reason=package.cached_unread) if package.cached_unread else len(package.cached_modules)


def _jit_cache_count(package: FlashInfer) -> object:
    is_unread = package.jit_cache_architectures == JIT_CACHE_UNREAD
    return JIT_CACHE_UNREAD if is_unread else len(package.jit_cache_modules)


def _checks(read: Callable[[VersionCheck], Reading]) -> Callable[[View], Reading]:
    def of(view: View) -> Reading:
        package = view.facts.flashinfer
        if isinstance(package, Missing):
            return package
        values: tuple[object, ...] = ()
        for check in package.version_checks:
            reading = read(check)
            values += () if isinstance(reading, Missing) else reading
        return values

    return of


def _matches(package: str) -> Callable[[View], Reading]:
    """Whether each of its version checks passed, those of providers such as flashinfer-jit-cache-sm90a among them."""
    return _checks(lambda check: (check.ok,) if f"{check.package}-".startswith(f"{package}-") else ())


def _architectures(view: View) -> Reading:
    package = view.facts.flashinfer
    return package if isinstance(package, Missing) else package.architectures


def _cache_owned_by_other(view: View) -> Reading:
    package = view.facts.flashinfer
    if isinstance(package, Missing):
        return package
    owner = package.cache_owner
    return owner if isinstance(owner, Missing) else (owner != view.facts.serving_uid,)


def _package(view: View, name: str) -> Reading:
    package = view.facts.packages.get(name, _unwatched(name))
    return package if isinstance(package, Missing) else _one(package.version)


def _installed(view: View, name: str) -> Reading:
    # The survey lists every distribution of the interpreter: one that it was asked for and did not find is not there.
    known = name in view.facts.packages
    return (isinstance(view.facts.packages[name], Package),) if known else _unwatched(name)


def _shadowed(view: View, name: str) -> Reading:
    package = view.facts.packages.get(name, _unwatched(name))
    return package if isinstance(package, Missing) else tuple(package.shadowed)


def _location(view: View, name: str) -> Reading:
    package = view.facts.packages.get(name, _unwatched(name))
    return package if isinstance(package, Missing) else (package.location,)


def _unwatched(name: str) -> Missing:
    return Missing(reason=f"nothing is known of {name}")


def _library(field: str) -> Callable[[View, str], Reading]:
    def of(view: View, name: str) -> Reading:
        library: Library | Missing = view.facts.libraries.get(name, _unwatched(name))
        return library if isinstance(library, Missing) else _one(getattr(library, field))

    return of


def _reason(view: View, name: str) -> Reading:
    reading = SUBJECTS[name].read(view) if name in SUBJECTS else _unwatched(name)
    return (reading.reason,) if isinstance(reading, Missing) else ()


def _env(view: View, name: str) -> Reading:
    value = view.facts.environment.get(name)
    return () if value is None else (value,)


def _env_set(view: View, name: str) -> Reading:
    return (bool(view.facts.environment.get(name)),)


def _relation(read: Callable[[Facts], Reading]) -> Callable[[View], Reading]:
    return lambda view: read(view.facts)


SUBJECTS: dict[str, Subject[View]] = {
    "sm": Subject(Kind.NUMBER, _gpus(lambda gpus: tuple(gpu.sm for gpu in gpus))),
    "cpu": Subject(Kind.TEXT, lambda view: (view.facts.system.machine,)),  # "x86_64", "aarch64"
    "gpu_name": Subject(Kind.TEXT, _gpus(lambda gpus: tuple(gpu.name for gpu in gpus))),
    "gpu_count": Subject(Kind.NUMBER, _gpus(lambda gpus: (len(gpus),))),  # those that CUDA sees
    "machine_gpu_count": Subject(Kind.NUMBER, _relation(relations.machine_gpu_count)),
    "driver": Subject(Kind.VERSION, _driver("version")),
    "driver_cuda": Subject(Kind.VERSION, _driver("cuda")),
    "cuda_home": Subject(Kind.TEXT, _jit(lambda jit: jit.cuda_home or "$CUDA_HOME")),
    "cuda_home_found_by": Subject(Kind.TEXT, _jit(lambda jit: jit.found_by)),
    "cuda_home_of_nvcc": Subject(Kind.TEXT, _relation(relations.cuda_home_of_nvcc)),
    "cuda_home_of_compiler": Subject(Kind.TEXT, _relation(relations.cuda_home_of_compiler)),
    "nvcc": Subject(Kind.VERSION, _nvcc("nvcc", "version")),  # $CUDA_HOME/bin/nvcc
    "nvcc_path": Subject(Kind.TEXT, _nvcc_path("nvcc")),
    "compiler": Subject(Kind.VERSION, _nvcc("compiler", "version")),  # FLASHINFER_NVCC where set
    "compiler_path": Subject(Kind.TEXT, _nvcc_path("compiler")),
    "other_nvcc": Subject(Kind.VERSION, _relation(relations.other_nvcc)),
    "gate_version": Subject(Kind.VERSION, _toolkit("gate_version")),
    "gate_source": Subject(Kind.TEXT, _toolkit("gate_source")),
    "torch_cuda": Subject(Kind.VERSION, _toolkit("torch_cuda")),
    "torch_has_cuda": Subject(Kind.FLAG, _relation(relations.torch_has_cuda)),
    "jit_cache_cuda": Subject(Kind.VERSION, _toolkit("jit_cache_cuda")),
    "jit_library_missing": Subject(Kind.TEXT, _absent("libraries")),
    "module_header_missing": Subject(Kind.TEXT, _absent("module_headers")),  # only some modules include these
    "module_library_missing": Subject(Kind.TEXT, _absent("module_libraries")),
    "header_not_found": Subject(Kind.TEXT, lambda view: tried.headers_not_found(view.outcomes)),
    "python_module_not_found": Subject(Kind.TEXT, lambda view: tried.python_modules_not_found(view.outcomes)),
    "library_not_found": Subject(Kind.TEXT, lambda view: tried.libraries_not_found(view.outcomes)),
    "ninja": Subject(Kind.TEXT, _toolkit("ninja")),
    "host_compiler": Subject(Kind.TEXT, _toolkit("host_compiler")),
    "host_compiler_version": Subject(Kind.VERSION, _toolkit("host_compiler_version")),
    "flashinfer": Subject(Kind.VERSION, _flashinfer(lambda package: package.version)),
    "flashinfer_root": Subject(Kind.TEXT, _flashinfer(lambda package: package.root)),
    "requirement_not_installed": Subject(Kind.TEXT, _relation(requirements.not_installed)),  # "ninja>=1.11"
    "architectures": Subject(Kind.TEXT, _architectures),
    "architectures_from": Subject(Kind.TEXT, _flashinfer(lambda package: package.architectures_from)),
    "sm_not_built_for": Subject(Kind.NUMBER, _relation(relations.sm_not_built_for)),
    "sm_built_without_suffix": Subject(Kind.NUMBER, _relation(relations.sm_built_without_suffix)),
    "architecture_unknown_to_nvcc": Subject(Kind.TEXT, _relation(relations.architecture_unknown_to_nvcc)),
    "architecture_wanted": Subject(Kind.TEXT, _relation(relations.architecture_wanted)),
    "cubin_matches": Subject(Kind.FLAG, _matches("flashinfer-cubin")),
    "jit_cache_matches": Subject(Kind.FLAG, _matches("flashinfer-jit-cache")),
    "mismatch": Subject(Kind.TEXT, _checks(lambda check: () if check.ok else (relations.mismatch(check),))),
    "mismatch_effect": Subject(Kind.TEXT, _checks(lambda check: () if check.ok else (check.effect,))),
    "version_check_disabled": Subject(Kind.FLAG, _flashinfer(lambda package: package.version_check_disabled)),
    "cache_base": Subject(Kind.TEXT, _flashinfer(lambda package: package.cache_base)),
    "cache_writable": Subject(Kind.FLAG, _flashinfer(lambda package: package.cache_writable)),
    "cache_owner": Subject(Kind.NUMBER, _flashinfer(lambda package: package.cache_owner)),
    "cache_owned_by_other": Subject(Kind.FLAG, _cache_owned_by_other),
    "jit_cache_module_count": Subject(Kind.NUMBER, _flashinfer(_jit_cache_count)),
    "cached_module_count": Subject(Kind.NUMBER, _flashinfer(_cached_count)),
    "container": Subject(Kind.TEXT, lambda view: _one(view.facts.system.container)),
    "shm_mib": Subject(Kind.NUMBER, lambda view: _one(view.facts.system.shm_mib)),
    "own_ipc_namespace": Subject(Kind.FLAG, lambda view: _one(view.facts.system.own_ipc_namespace)),
    "own_pid_namespace": Subject(Kind.FLAG, lambda view: _one(view.facts.system.own_pid_namespace)),
    "shared_ninja_log": Subject(Kind.FLAG, _flashinfer(lambda package: package.shared_ninja_log)),
    "nvcc_on_path": Subject(Kind.TEXT, _toolkit("nvcc_on_path")),
    "uid": Subject(Kind.NUMBER, lambda view: (view.facts.serving_uid,)),
    "report_command": Subject(Kind.TEXT, lambda view: (command.line(view.facts.interpreter, "report", "--yaml"),)),
    "python": Subject(Kind.TEXT, lambda view: (view.facts.interpreter.executable,)),
    "nvcc_newer_than_driver": Subject(Kind.FLAG, _relation(relations.nvcc_newer_than_driver)),
    "nvcc_major_newer_than_driver": Subject(Kind.FLAG, _relation(relations.nvcc_major_newer_than_driver)),
    "torch_cuda_newer_than_driver": Subject(Kind.FLAG, _relation(relations.torch_cuda_newer_than_driver)),
    "torch_cuda_major_newer_than_driver": Subject(Kind.FLAG, _relation(relations.torch_cuda_major_newer_than_driver)),
    "nvcc_differs_from_torch": Subject(Kind.FLAG, _relation(relations.nvcc_differs_from_torch)),
    "nvcc_major_differs_from_torch": Subject(Kind.FLAG, _relation(relations.nvcc_major_differs_from_torch)),
    "gate_differs_from_compiler": Subject(Kind.FLAG, _relation(relations.gate_differs_from_compiler)),
    "jit_cache_major_differs_from_torch": Subject(Kind.FLAG, _relation(relations.jit_cache_major_differs_from_torch)),
    "library_major_differs_from_torch": Subject(Kind.TEXT, _relation(relations.library_major_differs_from_torch)),
    **{name: Subject(kind, _relation(read)) for name, (kind, read) in families.SUBJECTS.items()},
}

KEYED: dict[str, Keyed[View]] = {
    "package": Keyed(Kind.VERSION, "distributions", _package),
    "installed": Keyed(Kind.FLAG, "distributions", _installed),
    "shadowed": Keyed(Kind.TEXT, "distributions", _shadowed),  # the copies on sys.path that lose
    "location": Keyed(Kind.TEXT, "distributions", _location),
    "library": Keyed(Kind.VERSION, "short library names", _library("version")),
    "library_path": Keyed(Kind.TEXT, "short library names", _library("path")),
    "library_origin": Keyed(Kind.TEXT, "short library names", _library("origin")),
    "reason": Keyed(Kind.TEXT, "subjects", _reason),  # why a subject is Missing
    "env": Keyed(Kind.TEXT, "variables", _env),
    "not_compiled": Keyed(  # but for a part
        Kind.TEXT, "beginnings of modules' names", lambda view, name: tried.not_compiled(view.outcomes, name)
    ),
    "env_set": Keyed(Kind.FLAG, "variables", _env_set),  # set and not empty
}

_OUTCOME = Special[View](leaves.check_outcome, lambda test, view: leaves.outcomes_pass(test, view.outcomes))
MACHINE = Language(SUBJECTS, KEYED, {"outcome": _OUTCOME})

check = MACHINE.check
check_text = MACHINE.check_text
fill = MACHINE.fill
holds = MACHINE.holds
parts = MACHINE.parts
unknowns = MACHINE.unknowns
