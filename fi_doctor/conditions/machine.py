"""What conditions can ask about the machine: folders that are written, memory for compilers, the way out, the GPUs."""

from __future__ import annotations

from collections.abc import Callable

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.relations import Relation, visible_gpus
from fi_doctor.model import Facts, Folder, Gpu, Machine, Missing, Server
from fi_doctor.model.numbers import whole

# What one compile command of fused MoE takes: most of them, and the most (fi_doctor/probing/measured.py, PEAK_MIB).
MOST_TAKE_MIB, MOST_MIB = 3600, 5300
# For SM120 and 121 sixteen of them were seen to hold 91.5 GiB (https://github.com/vllm-project/vllm/issues/54237).
SM12X_MIB = 5900
_RESERVE_MIB = 1024
_OBJECTS = 242  # of fused MoE in 0.7.2.post1, the largest module: more jobs than that never run at once
_UNLIMITED = 0  # ninja -j 0
_FULL_MIB, _FULL_INODES = 64, 100
_LOW_MIB = 1024
_MOST_REMOVED = 8  # files that one line can name
_SHARE = 0.9  # of a GPU's memory that vLLM takes by default: gpu_memory_utilization, 0.92 in newer releases


def _machine(read: Callable[[Machine], Relation]) -> Callable[[Facts], Relation]:
    return lambda facts: facts.machine if isinstance(facts.machine, Missing) else read(facts.machine)


def _folder(purpose: str, read: Callable[[Folder], Relation]) -> Callable[[Facts], Relation]:
    """Something of the folder for that; nothing where the installed FlashInfer has none."""

    def of(machine: Machine) -> Relation:
        found = next((folder for folder in machine.folders if folder.purpose == purpose), None)
        return () if found is None else read(found)

    return _machine(of)


def _unwritable(folder: Folder) -> Relation:
    """The folder with the reason, where that user surely cannot write it."""
    if isinstance(folder.writable, Missing):
        return folder.writable
    return () if folder.writable else (f"{folder.path} ({folder.why})",)


def _sources_unwritable(folder: Folder) -> Relation:
    """Nothing where it is there already: what was generated before is not written again (write_file)."""
    return () if folder.exists else _unwritable(folder)


def _blocked(folder: Folder) -> Relation:
    more = folder.blocked_count - len(folder.blocked)
    return (*folder.blocked, *([f"and {more} more"] if more > 0 else []))


def _noexec(folder: Folder) -> Relation:
    if isinstance(folder.noexec, Missing):
        return folder.noexec
    return (f"{folder.path} (on {folder.mount})",) if folder.noexec else ()


def _with_little(is_little: Callable[[int, int], bool]) -> Callable[[Facts], Relation]:
    """Folders for builds in which there is that little, in MiB and inodes. What is not counted does not lack."""

    def of(machine: Machine) -> Relation:
        told = []
        for folder in machine.folders:
            mib = folder.free_mib
            if folder.purpose not in ("jit-cache", "temporary") or isinstance(mib, Missing):
                continue
            inodes = _FULL_INODES if isinstance(folder.free_inodes, Missing) else folder.free_inodes
            if is_little(mib, inodes):
                counted = "" if isinstance(folder.free_inodes, Missing) else f", {folder.free_inodes} inodes"
                told.append(f"{folder.path} ({mib} MiB{counted} free)")
        return tuple(told)

    return _machine(of)


def _is_full(mib: int, inodes: int) -> bool:
    return mib < _FULL_MIB or inodes < _FULL_INODES


def _is_low(mib: int, inodes: int) -> bool:
    return mib < _LOW_MIB and not _is_full(mib, inodes)


def serving_user(machine: Machine) -> Relation:
    """Who serves, in words."""
    user = machine.user
    name = "" if isinstance(user.name, Missing) else f" ({user.name})"
    return (f"user {user.uid}{name}",)


def downloads_impossible(machine: Machine) -> Relation:
    """Why nothing can be fetched from FlashInfer's repository; nothing where it may be possible."""
    network = machine.network
    if network.repository_is_local:
        return ()
    if network.no_download:
        return (network.no_download,)
    if isinstance(network.default_route, Missing):
        return network.default_route
    return () if network.default_route or network.proxies else ("there is no default route and no proxy is set",)


def jobs_beyond_memory(facts: Facts) -> Relation:
    """What ninja would run at once while it compiles fused MoE, where that takes more memory than there is."""
    jobs, have = ninja_jobs(facts), memory_left_mib(facts)
    if isinstance(jobs, Missing):
        return jobs
    if isinstance(have, Missing):
        return have
    need = min(jobs, _OBJECTS) * (SM12X_MIB if _is_sm12x(facts) else MOST_TAKE_MIB)
    if _has_moe(facts) or need <= have:
        return ()
    return (f"{min(jobs, _OBJECTS)} compilers at once take about {need >> 10} GiB, and {have / 1024:.0f} GiB are left",)


def max_jobs(facts: Facts) -> Relation:
    """The MAX_JOBS that memory carries while fused MoE is compiled."""
    have, threads = memory_left_mib(facts), _threads(facts)
    if isinstance(have, Missing):
        return have
    if isinstance(threads, Missing):
        return threads
    each = SM12X_MIB if _is_sm12x(facts) else MOST_MIB
    return (max(1, min(facts.system.cpus, (have - _RESERVE_MIB) // (each * threads))),)


def ninja_jobs(facts: Facts) -> int | Missing:
    """Compilers that FlashInfer's ninja runs at once: MAX_JOBS where that is a number, else ninja's own count of CPUs.

    Source: _get_num_workers in flashinfer/jit/cpp_ext.py; GuessParallelism in ninja.cc: two CPUs count as three, and
    more as two more than there are.
    """
    threads = _threads(facts)
    if isinstance(threads, Missing):
        return threads
    jobs, cpus = whole(facts.environment.get("MAX_JOBS", "")), facts.system.cpus
    if jobs is not None:
        return (jobs if jobs != _UNLIMITED else _OBJECTS) * threads
    return (cpus + (2 if cpus > 2 else 1)) * threads


def memory_left_mib(facts: Facts) -> int | Missing:
    """What new processes may take: of the machine, and of the limits of control groups."""
    system = facts.system
    amounts = (system.memory_available_mib, system.memory_left_mib)
    known = [amount for amount in amounts if not isinstance(amount, Missing)]
    return min(known) if known else Missing(reason="how much memory is left is not told")


def gpus_prohibited(facts: Facts) -> Relation:
    """GPUs on which no process may use CUDA, by their compute mode."""
    gpus = facts.gpus.gpus
    if isinstance(gpus, Missing):
        return gpus
    return tuple(f"GPU {gpu.nvml_index}" for gpu in gpus if gpu.compute_mode == "prohibited")


def exclusive_in_use(facts: Facts) -> Relation:
    """Visible GPUs that one process alone may use, and that one uses; those of the process of --pid are its own."""
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing) or isinstance(facts.server, Server):
        return gpus if isinstance(gpus, Missing) else ()
    return tuple(f"GPU {gpu.nvml_index}" for gpu in gpus if _is_exclusive(gpu))


def memory_taken(facts: Facts) -> Relation:
    """Visible GPUs with too little free memory for a server: "GPU 0 (52000 of 143771 MiB free)".

    Of MIG instances nothing is told: NVML counts the whole GPU.
    """
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing) or isinstance(facts.server, Server):
        return gpus if isinstance(gpus, Missing) else ()
    return tuple(
        f"GPU {gpu.nvml_index} ({gpu.memory_free_mib} of {gpu.memory_total_mib} MiB free)"
        for gpu in gpus
        if gpu.mig is not True
        and isinstance(gpu.memory_free_mib, int)
        and isinstance(gpu.memory_total_mib, int)
        and gpu.memory_free_mib < _SHARE * gpu.memory_total_mib
    )


def mig_without_instance(facts: Facts) -> Relation:
    """GPUs in MIG mode of which CUDA sees no instance though no variable chooses among them."""
    gpus = facts.gpus.gpus
    if isinstance(gpus, Missing):
        return gpus
    if not isinstance(facts.gpus.visible_devices, Missing) or facts.gpus.cuda_sees_any:
        return ()
    return tuple(f"GPU {gpu.nvml_index}" for gpu in gpus if gpu.mig is True and isinstance(gpu.cuda_index, Missing))


def _is_exclusive(gpu: Gpu) -> bool:
    is_alone = isinstance(gpu.compute_mode, str) and gpu.compute_mode.startswith("exclusive")
    return is_alone and isinstance(gpu.compute_processes, int) and gpu.compute_processes > 0


def _threads(facts: Facts) -> int | Missing:
    """Compilers of one nvcc: --threads parts the work by architectures, so that one has no use for more."""
    if isinstance(facts.flashinfer, Missing):
        return facts.flashinfer
    if isinstance(facts.flashinfer.architectures, Missing):
        return facts.flashinfer.architectures
    wanted = whole(facts.environment.get("FLASHINFER_NVCC_THREADS", "")) or 1
    return max(1, min(wanted, len(facts.flashinfer.architectures)))


def _is_sm12x(facts: Facts) -> bool:
    """Whether modules are compiled for SM120 or 121."""
    architectures = () if isinstance(facts.flashinfer, Missing) else facts.flashinfer.architectures
    return not isinstance(architectures, Missing) and any(name.startswith("12") for name in architectures)


def _has_moe(facts: Facts) -> bool:
    """Whether fused MoE need not be compiled, or cannot be."""
    if isinstance(facts.flashinfer, Missing) or isinstance(facts.toolkit.jit, Missing):
        return True
    built = (*facts.flashinfer.cached_modules, *facts.flashinfer.jit_cache_modules)
    return any(name.startswith("fused_moe") for name in built)


def _cubin_count(facts: Facts) -> Relation:
    if isinstance(facts.flashinfer, Missing):
        return facts.flashinfer
    return facts.flashinfer.cubins if isinstance(facts.flashinfer.cubins, Missing) else (facts.flashinfer.cubins,)


def _cubins_damaged(facts: Facts) -> Relation:
    if isinstance(facts.flashinfer, Missing):
        return facts.flashinfer
    told = tuple(f"{path} ({how})" for path, how in facts.flashinfer.cubins_damaged.items())
    return (*told[:3], f"{len(told) - 3} more") if len(told) > 4 else told


def _cubins_to_remove(facts: Facts) -> Relation:
    """Those files; Missing where they are too many for one line."""
    damaged = () if isinstance(facts.flashinfer, Missing) else tuple(facts.flashinfer.cubins_damaged)
    return damaged if len(damaged) <= _MOST_REMOVED else Missing(reason=f"there are {len(damaged)} of them")


def _nodes(machine: Machine) -> Relation:
    nodes = machine.driver_files.nodes
    return nodes if isinstance(nodes, Missing) else (len(nodes),)


def _is_libcuda_absent(machine: Machine) -> Relation:
    libcuda = machine.driver_files.libcuda
    return libcuda if isinstance(libcuda, Missing) and not libcuda.absent else (isinstance(libcuda, Missing),)


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "serving_user": (Kind.TEXT, _machine(serving_user)),
    "cutlass_sources_unwritable": (Kind.TEXT, _folder("cutlass-sources", _sources_unwritable)),
    "cubins_damaged": (Kind.TEXT, _cubins_damaged),
    "cubins_to_remove": (Kind.TEXT, _cubins_to_remove),
    "cubins_unwritable": (Kind.TEXT, _folder("cubins", _unwritable)),
    "cubin_links_unwritable": (Kind.TEXT, _folder("cubin-links", _unwritable)),
    "deep_gemm_unwritable": (Kind.TEXT, _folder("deep-gemm", _unwritable)),
    "temporary_unwritable": (Kind.TEXT, _folder("temporary", _unwritable)),
    "cache_blocked": (Kind.TEXT, _folder("jit-cache", _blocked)),
    "cache_noexec": (Kind.TEXT, _folder("jit-cache", _noexec)),
    "folders_full": (Kind.TEXT, _with_little(_is_full)),
    "folders_low": (Kind.TEXT, _with_little(_is_low)),
    "python_unreachable": (Kind.TEXT, _machine(lambda machine: machine.unreachable)),
    "downloads_impossible": (Kind.TEXT, _machine(downloads_impossible)),
    "cubin_count": (Kind.NUMBER, _cubin_count),
    "cubin_dir": (Kind.TEXT, _folder("cubins", lambda folder: (folder.path,))),
    "jobs_beyond_memory": (Kind.TEXT, jobs_beyond_memory),
    "max_jobs": (Kind.NUMBER, max_jobs),
    "gpus_prohibited": (Kind.TEXT, gpus_prohibited),
    "exclusive_in_use": (Kind.TEXT, exclusive_in_use),
    "gpu_memory_taken": (Kind.TEXT, memory_taken),
    "mig_without_instance": (Kind.TEXT, mig_without_instance),
    "gpu_node_count": (Kind.NUMBER, _machine(_nodes)),
    "libcuda_stub": (
        Kind.TEXT,
        _machine(lambda machine: (machine.driver_files.stub,) if machine.driver_files.stub else ()),
    ),
    "libcuda_absent": (Kind.FLAG, _machine(_is_libcuda_absent)),
}
