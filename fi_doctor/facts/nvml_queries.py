"""The questions put to NVML, each with its own reason where it is not answered. Imports pynvml: import it late."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import pynvml

from fi_doctor.facts import nvml_links
from fi_doctor.facts import nvml_reasons as reasons
from fi_doctor.facts.nvml import Nvml
from fi_doctor.model import Driver, Gpu, Missing, PeerLink

_CUDA_NOT_ASKED = Missing(reason="CUDA was not asked for its order")

_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}

T = TypeVar("T")


def ask(answer: Nvml) -> None:
    """Start NVML, ask everything and stop it; what it is doing and what it gave stand in the answer all the time."""
    answer.doing = "starting (nvmlInit)"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        answer.driver = answer.gpus = Missing(
            reason=reasons.why_not_started(
                error.value, str(error), library=answer.library, kernel=answer.kernel, container=answer.container
            )
        )
        return
    try:
        answer.doing = "telling the driver's version"
        answer.driver = _read_driver(answer.libcuda)
        answer.gpus = _read_gpus(answer)
        answer.doing = "telling how GPUs reach each other"
        answer.links = _read_links(answer.gpus)
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read_driver(libcuda: str) -> Driver | Missing:
    version = _get(lambda: str(pynvml.nvmlSystemGetDriverVersion()), "driver version")
    if isinstance(version, Missing):
        return version
    # _v2 asks the libcuda that a process would load, the first version the driver that NVML belongs to.
    if libcuda:
        return Driver(version=version, cuda=Missing(reason=f"libcuda.so.1 was not loaded: {libcuda}"))
    cuda = _get(lambda: int(pynvml.nvmlSystemGetCudaDriverVersion_v2()), "CUDA version")
    if isinstance(cuda, Missing):
        cuda = _get(lambda: int(pynvml.nvmlSystemGetCudaDriverVersion()), "CUDA version")
    return Driver(version=version, cuda=cuda if isinstance(cuda, Missing) else reasons.cuda_version(cuda))


def _read_gpus(answer: Nvml) -> tuple[Gpu, ...] | Missing:
    answer.doing = "counting the GPUs"
    count = _get(lambda: int(pynvml.nvmlDeviceGetCount()), "number of GPUs")
    if isinstance(count, Missing):
        return count
    gpus = []
    for index in range(count):
        answer.doing = f"reading GPU {index} of {count}"
        gpu = _read_gpu(index)
        if isinstance(gpu, Gpu):
            gpus.append(gpu)
        else:
            answer.unreadable.append(f"GPU {index}: {gpu.reason}")
    return tuple(gpus)


def _read_links(gpus: tuple[Gpu, ...] | Missing) -> tuple[PeerLink, ...] | Missing:
    if isinstance(gpus, Missing):
        return gpus
    handles = {gpu.uuid: _handle(gpu.nvml_index) for gpu in gpus}
    there = {uuid: handle for uuid, handle in handles.items() if not isinstance(handle, Missing)}
    return nvml_links.read_links(there, _get)


def _read_gpu(index: int) -> Gpu | Missing:
    """One GPU; Missing when it does not even say who it is."""
    handle = _handle(index)
    if isinstance(handle, Missing):
        return handle
    uuid = _get(lambda: str(pynvml.nvmlDeviceGetUUID(handle)), "UUID")
    if isinstance(uuid, Missing):
        return uuid
    name = _get(lambda: str(pynvml.nvmlDeviceGetName(handle)), "name")
    total, free = _read_memory(handle)
    return Gpu(
        nvml_index=index,
        cuda_index=_CUDA_NOT_ASKED,
        uuid=uuid,
        name="(no name from NVML)" if isinstance(name, Missing) else name,
        sm=_get(lambda: _read_sm(handle), "compute capability"),
        memory_total_mib=total,
        memory_free_mib=free,
        mig=_get(lambda: _read_mig(handle), "MIG mode"),
        pci_bus=_get(lambda: _read_pci_bus(handle), "PCI address"),
        nvlinks=_get(lambda: nvml_links.read_nvlinks(handle), "state of the NVLinks"),
        compute_mode=_get(lambda: _read_compute_mode(handle), "compute mode"),
        compute_processes=_get(lambda: _count_processes(handle), "number of processes on the GPU"),
    )


def _handle(index: int) -> object | Missing:
    return _get(lambda: pynvml.nvmlDeviceGetHandleByIndex(index), "handle")


def _read_memory(handle: object) -> tuple[int | Missing, int | Missing]:
    """Total and free memory in MiB. Source: nvmlDeviceGetMemoryInfo, whose total is what nvidia-smi shows."""
    memory = _get(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle), "memory")
    if isinstance(memory, Missing):
        return memory, memory
    return int(memory.total) >> 20, int(memory.free) >> 20


def _read_sm(handle: object) -> int:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return int(major) * 10 + int(minor)


def _read_mig(handle: object) -> bool:
    """Whether MIG mode is on now; a GPU that knows no MIG has it off."""
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
            return False
        raise


def _read_compute_mode(handle: object) -> str:
    """Who may use CUDA on it. Source: nvmlComputeMode_t."""
    mode = int(pynvml.nvmlDeviceGetComputeMode(handle))
    return _COMPUTE_MODES.get(mode, f"mode {mode}")


def _count_processes(handle: object) -> int:
    """Processes with a CUDA context on it, those of other containers too; drivers before 510 know the older question.

    pynvml refuses to call the function without a version in its name where the driver is older than itself.
    """
    try:
        return len(pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return len(pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle))


def _read_pci_bus(handle: object) -> str:
    bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return bus.decode() if isinstance(bus, bytes) else str(bus)


def _get(read: Callable[[], T], what: str) -> T | Missing:
    """A value of one query, or why NVML does not give it."""
    try:
        return read()
    except pynvml.NVMLError as error:
        return Missing(reason=reasons.why_not_given(error.value, str(error), what))
    except UnicodeDecodeError as error:
        return Missing(reason=f"no {what} from NVML: its answer is not text ({error.object[:32]!r})")
