"""What lies around a build: the host compiler that nvcc takes, Triton's ptxas, and what Ray workers are given."""

from __future__ import annotations

from collections.abc import Callable

from packaging.version import Version

from fi_doctor.conditions.compilers import SINCE
from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.conditions.relations import Relation, visible_gpus
from fi_doctor.model import Facts, HostLimits, Missing

_OLDEST_GCC = 7  # -std=c++17 with its library: <optional>, which FlashInfer's modules include
_BUILD_VARIABLES = frozenset({"CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST", "CC", "CXX", "MAX_JOBS"})


def host_compiler_refused(facts: Facts) -> Relation:
    """The host compiler that nvcc calls and refuses, "gcc 16, at most 15"."""
    limits = facts.host_limits
    if isinstance(limits, Missing):
        return limits
    newest = _newest(limits)
    if isinstance(newest, Missing) or isinstance(limits.major, Missing):
        return newest if isinstance(newest, Missing) else Missing(reason="its version is not known")
    return (f"{limits.family} {limits.major}, at most {newest}",) if limits.checked and limits.major > newest else ()


def newest_host_compiler(facts: Facts) -> Relation:
    """The newest one that nvcc takes, as Debian names the program and the package: "g++-15"."""
    limits = facts.host_limits
    if isinstance(limits, Missing):
        return limits
    newest = _newest(limits)
    if isinstance(newest, Missing):
        return newest
    return (f"clang++-{newest}" if limits.family == "clang" else f"g++-{newest}",)


def host_compiler_too_old(facts: Facts) -> Relation:
    """A gcc without C++17, "gcc 5"."""
    limits = facts.host_limits
    if isinstance(limits, Missing):
        return limits
    if isinstance(limits.major, Missing):
        return limits.major
    return (f"gcc {limits.major}",) if limits.family == "gcc" and limits.major < _OLDEST_GCC else ()


def host_limits(field: str) -> Callable[[Facts], Relation]:
    """One field of the limits."""

    def of(facts: Facts) -> Relation:
        limits = facts.host_limits
        value = limits if isinstance(limits, Missing) else getattr(limits, field)
        return value if isinstance(value, Missing) else (value,)

    return of


def cublas_missing(facts: Facts) -> Relation:
    """Those of cuBLAS's libraries that the linker does not find."""
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    places = {name: jit.module_libraries.get(name) for name in ("cublas", "cublasLt")}
    return tuple(name for name, place in places.items() if isinstance(place, Missing) and place.absent)


def nvcc_dashed(facts: Facts) -> Relation:
    """The release of $CUDA_HOME/bin/nvcc as the names of NVIDIA's packages have it, "13-0"."""
    jit = facts.toolkit.jit
    nvcc = jit if isinstance(jit, Missing) else jit.nvcc
    version = nvcc if isinstance(nvcc, Missing) else nvcc.version
    return version if isinstance(version, Missing) else (version.replace(".", "-"),)


def cuda_home_malformed(facts: Facts) -> Relation:
    """CUDA_HOME, or CUDA_PATH, as set, where it has what no such folder has."""
    set_here = facts.environment.get("CUDA_HOME") or facts.environment.get("CUDA_PATH") or ""
    is_odd = set_here.startswith("~") or _meant(set_here) != set_here.rstrip("/")
    return (set_here,) if set_here and is_odd else ()


def cuda_home_meant(facts: Facts) -> Relation:
    """What it probably was to be."""
    found = cuda_home_malformed(facts)
    meant = "" if isinstance(found, Missing) or not found else _meant(str(found[0]))
    if not meant.startswith("~"):
        return (meant,) if meant else Missing(reason="it names no folder")
    home = facts.environment.get("HOME")
    return (meant.replace("~", home, 1),) if home else Missing(reason="HOME is not known")


def ptxas_too_old(facts: Facts) -> Relation:
    """Triton's ptxas that does not know a GPU here, "ptxas 12.8 for SM121, which needs 12.9"."""
    old = _old(facts)
    if isinstance(old, Missing):
        return old
    return tuple(f"ptxas {version} for SM{sm}, which needs {need}" for version, sm, need, _ in old)


def ptxas_variable(facts: Facts) -> Relation:
    """The variable that names another."""
    old = _old(facts)
    return old if isinstance(old, Missing) else tuple(dict.fromkeys(variable for *_, variable in old))


def ray_not_copied(facts: Facts) -> Relation:
    """Variables of FlashInfer's builds that are set here, and that vLLM does not hand to Ray workers."""
    copies, vllm = facts.ray_copies, facts.vllm
    if isinstance(copies, Missing):
        return copies
    if isinstance(vllm, Missing):
        return vllm
    if "variables" in vllm.unreadable:
        return Missing(reason=vllm.unreadable["variables"])
    prefixes = (*copies.prefixes, *_listed(facts, "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"))
    names = {*copies.names, *vllm.variables, *_listed(facts, "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY")}
    return tuple(
        name
        for name in facts.environment
        if (name.startswith("FLASHINFER_") or name in _BUILD_VARIABLES)
        and (name in copies.kept_back or (name not in names and not name.startswith(prefixes)))
    )


def ray_extra(facts: Facts) -> Relation:
    """The setting of the installed vLLM that adds names, where it has one."""
    names = ray_not_copied(facts)
    if isinstance(names, Missing) or isinstance(facts.vllm, Missing):
        return names
    setting = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
    if setting not in facts.vllm.variables:
        return Missing(reason=f"the installed vLLM has no {setting}")
    return (",".join([*_listed(facts, setting), *map(str, names)]),)


def has_ray(facts: Facts) -> Relation:
    """Whether Ray is installed."""
    return facts.site if isinstance(facts.site, Missing) else (facts.site.has_ray,)


def _meant(text: str) -> str:
    """The first folder in it, without quotes, blanks and what belongs to the compiler."""
    first = next((part for part in text.strip(" \t\r\n\"'").split(":") if part.strip()), "").strip(" \t\"'")
    for end in ("/nvcc", "/bin"):
        first = first.rstrip("/").removesuffix(end)
    return first.rstrip("/")


def _newest(limits: HostLimits) -> int | Missing:
    if isinstance(limits.family, Missing):
        return limits.family
    return limits.newest_clang if limits.family == "clang" else limits.newest_gcc


def _old(facts: Facts) -> list[tuple[str, int, str, str]] | Missing:
    """Version, SM, what it needs and the variable, for each GPU that its ptxas does not know."""
    triton, gpus = facts.triton_ptxas, visible_gpus(facts)
    if isinstance(triton, Missing):
        return triton
    if isinstance(gpus, Missing):
        return gpus
    found = []
    for sm in sorted({gpu.sm for gpu in gpus if not isinstance(gpu.sm, Missing)}):
        second = sm >= 100 and not (isinstance(triton.blackwell, Missing) and triton.blackwell.absent)
        ptxas = triton.blackwell if second else triton.common
        need = ".".join(map(str, SINCE.get(sm, ())))
        if not need or isinstance(ptxas, Missing) or not isinstance(ptxas.version, str):
            continue
        if (release := parse_version(ptxas.version)) is not None and release < Version(need):
            variable = "TRITON_PTXAS_BLACKWELL_PATH" if second else "TRITON_PTXAS_PATH"
            found.append((ptxas.version, sm, need, variable))
    return found


def _listed(facts: Facts, variable: str) -> tuple[str, ...]:
    words = (word.strip() for word in facts.environment.get(variable, "").split(","))
    return tuple(word for word in words if word)


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "host_compiler_refused": (Kind.TEXT, host_compiler_refused),
    "host_compiler_too_old": (Kind.TEXT, host_compiler_too_old),
    "newest_host_compiler": (Kind.TEXT, newest_host_compiler),
    "nvcc_host_compiler": (Kind.TEXT, host_limits("compiler")),
    "nvcc_host_compiler_named_by": (Kind.TEXT, host_limits("named_by")),
    "host_limits_source": (Kind.TEXT, host_limits("source")),
    "cublas_missing": (Kind.TEXT, cublas_missing),
    "nvcc_dashed": (Kind.TEXT, nvcc_dashed),
    "cuda_home_malformed": (Kind.TEXT, cuda_home_malformed),
    "cuda_home_meant": (Kind.TEXT, cuda_home_meant),
    "ptxas_too_old": (Kind.TEXT, ptxas_too_old),
    "ptxas_variable": (Kind.TEXT, ptxas_variable),
    "ray_not_copied": (Kind.TEXT, ray_not_copied),
    "ray_extra": (Kind.TEXT, ray_extra),
    "has_ray": (Kind.FLAG, has_ray),
}
