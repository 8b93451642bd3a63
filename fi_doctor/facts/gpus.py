"""GPUs and driver: NVML's list of all, CUDA's own numbers of those that a process sees, matched by UUID."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from fi_doctor.facts import cuda_order, nvml, pci
from fi_doctor.facts.container import read_container
from fi_doctor.facts.cuda_order import CudaDevice, CudaView
from fi_doctor.facts.environment import neutralise
from fi_doctor.facts.nvml_reasons import cuda_version
from fi_doctor.model import Driver, Gpu, GpuFacts, Missing, PeerLink
from fi_doctor.model.numbers import whole

_VARIABLE = "CUDA_VISIBLE_DEVICES"


def read_gpus(
    environ: Mapping[str, str],
    *,
    nvml_timeout_s: float = nvml.TIMEOUT_S,
    cuda_timeout_s: float = cuda_order.TIMEOUT_S,
) -> tuple[GpuFacts, dict[str, str]]:
    """Every GPU of the machine and how it was read, for a process with these variables.

    GPUs come from NVML; where NVML is missing, from the CUDA driver as far as it knows them.
    """
    listed = nvml.read_nvml(container=isinstance(read_container(environ), str), timeout_s=nvml_timeout_s)
    cuda = _read_cuda(environ, listed, cuda_timeout_s)
    visible = environ.get(_VARIABLE)
    driver, gpus, source = _combine(listed, cuda)
    facts = GpuFacts(
        driver=driver,
        gpus=gpus if isinstance(gpus, Missing) else tuple(_on_bus(match(gpu, cuda, visible)) for gpu in gpus),
        visible_devices=Missing(reason=f"{_VARIABLE} is not set") if visible is None else neutralise(visible),
        cuda_order=order_of(cuda, gpus, visible),
        unreadable=tuple(listed.unreadable),
        links=_links(listed),
    )
    order_source = f"cuDeviceGetUuid ({cuda.library})" if isinstance(cuda, CudaView) else "CUDA driver"
    return facts, {"gpus": source, "gpus.cuda_order": order_source}


def read_gpus_of_nvml(
    environ: Mapping[str, str], *, nvml_timeout_s: float = nvml.TIMEOUT_S
) -> tuple[GpuFacts, dict[str, str]]:
    """The same without asking the CUDA driver: its order is reckoned from NVML's list and CUDA_VISIBLE_DEVICES.

    CUDA puts the fastest GPU first, which NVML does not tell: where the variable numbers GPUs of several kinds, the
    order is Missing, unless CUDA_DEVICE_ORDER says that they are numbered by PCI address.
    """
    listed = nvml.read_nvml(container=isinstance(read_container(environ), str), timeout_s=nvml_timeout_s)
    gpus, visible = listed.gpus, environ.get(_VARIABLE)
    by_address = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    order = gpus if isinstance(gpus, Missing) else _reckoned(gpus, visible, by_address=by_address)
    facts = GpuFacts(
        driver=listed.driver,
        gpus=gpus if isinstance(gpus, Missing) else tuple(_on_bus(_numbered(gpu, order, visible)) for gpu in gpus),
        visible_devices=Missing(reason=f"{_VARIABLE} is not set") if visible is None else neutralise(visible),
        cuda_order=order,
        unreadable=tuple(listed.unreadable),
        links=_links(listed),
    )
    source = f"NVML {listed.driver.version}" if isinstance(listed.driver, Driver) else "NVML"
    return facts, {"gpus": source, "gpus.cuda_order": f"{_VARIABLE} and the order of NVML; CUDA was not asked"}


def match(gpu: Gpu, cuda: CudaView | Missing, visible: str | None) -> Gpu:
    """The GPU with CUDA's number for it, found by UUID. What NVML did not give is taken from CUDA where it is the same.

    Under MIG the number is that of the instance that CUDA sees, and memory stays NVML's: an instance has only a share.
    """
    if isinstance(cuda, Missing):
        return replace(gpu, cuda_index=cuda)
    for index, device in enumerate(cuda.devices):
        if gpu.uuid in (device.uuid, device.parent):
            return replace(_completed(gpu, device), cuda_index=index)
    return replace(gpu, cuda_index=Missing(reason=_why_unseen(gpu, cuda, visible)))


def order_of(
    cuda: CudaView | Missing, gpus: tuple[Gpu, ...] | Missing, visible: str | None
) -> tuple[str, ...] | Missing:
    """UUIDs in CUDA's order; Missing when CUDA sees no GPU though there are some and no variable hides them."""
    if isinstance(cuda, Missing):
        return cuda
    if cuda.failed and visible is None and isinstance(gpus, Missing):
        return Missing(reason=f"CUDA sees no GPU ({cuda.text}); {gpus.reason}")
    if cuda.failed and visible is None and gpus:
        return Missing(reason=_SEES_NONE.format(text=cuda.text))
    return tuple(device.uuid for device in cuda.devices)


def gpus_of_cuda(cuda: CudaView, why_no_nvml: str) -> tuple[Gpu, ...]:
    """The GPUs that CUDA sees, in PCI order as NVML would have them, with a reason for what only NVML knows."""
    by_address = sorted(cuda.devices, key=lambda device: (device.pci_bus or "").lower())
    return tuple(_gpu_of_cuda(index, device, why_no_nvml) for index, device in enumerate(by_address))


def driver_of_cuda(cuda: CudaView, listed: nvml.Nvml) -> Driver | Missing:
    """The driver without NVML: the loaded kernel driver's version, else that in the name of libcuda's file."""
    of_library = cuda.library.rpartition("libcuda.so.")[2]
    version = listed.kernel or (of_library if of_library.count(".") > 0 and of_library[:3].isdigit() else "")
    if not version:
        return Missing(reason=f"neither NVML nor /proc tells the driver's version ({_reason(listed.driver)})")
    return Driver(version=version, cuda=cuda_version(cuda.driver))


_SEES_NONE = (
    "CUDA sees no GPU although NVML lists some ({text}): /dev/nvidia0 or /dev/nvidia-uvm may be missing, "
    "or the compute mode prohibits CUDA (nvidia-smi -q -d COMPUTE)"
)


def _on_bus(gpu: Gpu) -> Gpu:
    return replace(gpu, iommu=pci.read_iommu(gpu.pci_bus), acs_bridges=pci.read_acs_bridges(gpu.pci_bus))


def _links(listed: nvml.Nvml) -> tuple[PeerLink, ...] | Missing:
    return listed.gpus if isinstance(listed.gpus, Missing) else listed.links


def _read_cuda(environ: Mapping[str, str], listed: nvml.Nvml, timeout_s: float) -> CudaView | Missing:
    """Ask CUDA where an answer can be expected: starting a child costs more than all else on a machine without GPUs."""
    if listed.hung:
        return Missing(reason="CUDA was not asked, since NVML hangs")
    if listed.libcuda:
        return Missing(reason=f"CUDA was not asked: {listed.libcuda}, and the loader would wait for it")
    if isinstance(listed.gpus, Missing) and not cuda_order.may_have_libcuda(environ):
        return Missing(reason="CUDA was not asked: there is no libcuda.so.1, and NVML finds no driver either")
    return cuda_order.read_cuda(environ, timeout_s)


def _reckoned(gpus: tuple[Gpu, ...], visible: str | None, *, by_address: bool) -> tuple[str, ...] | Missing:
    """UUIDs as CUDA would number them: a list ends at the first word that names no GPU, or one for the second time."""
    every = tuple(gpu.uuid for gpu in gpus)
    if visible is None:
        return every
    chosen: list[str] = []
    for word in (part.strip() for part in visible.split(",")):
        if whole(word) is not None and len({gpu.sm for gpu in gpus}) > 1 and not by_address:
            return Missing(reason=f"{_VARIABLE} numbers GPUs of several kinds, and CUDA was not asked for its order")
        number = whole(word)
        named = [every[number]] if number is not None and number < len(every) else []
        named += [uuid for uuid in every if word.startswith("GPU-") and uuid.startswith(word)]
        if len(named) != 1 or named[0] in chosen:
            break
        chosen += named
    return tuple(chosen)


def _numbered(gpu: Gpu, order: tuple[str, ...] | Missing, visible: str | None) -> Gpu:
    if isinstance(order, Missing):
        return replace(gpu, cuda_index=order)
    if gpu.uuid not in order:
        hidden = f"hidden by {_VARIABLE}={neutralise(visible or '')}"
        return replace(gpu, cuda_index=Missing(reason=hidden))
    return replace(gpu, cuda_index=order.index(gpu.uuid))


def _combine(listed: nvml.Nvml, cuda: CudaView | Missing) -> tuple[Driver | Missing, tuple[Gpu, ...] | Missing, str]:
    """Driver, GPUs and where they are from: CUDA where NVML gives no list."""
    if isinstance(listed.gpus, Missing) and isinstance(cuda, CudaView) and cuda.devices:
        source = f"CUDA driver, only what it sees, numbered by PCI address ({cuda.library})"
        return driver_of_cuda(cuda, listed), gpus_of_cuda(cuda, listed.gpus.reason), source
    return listed.driver, listed.gpus, f"NVML {listed.driver.version}" if isinstance(listed.driver, Driver) else "NVML"


def _why_unseen(gpu: Gpu, cuda: CudaView, visible: str | None) -> str:
    if visible is not None:
        setting = f"{_VARIABLE}={neutralise(visible)}" if visible else f"an empty {_VARIABLE}"
        # With a device list that names something, no device at all may have a worse cause than the list.
        return f"CUDA sees no GPU at all with {setting}" if visible and cuda.failed else f"hidden by {setting}"
    if any(device.uuid.startswith("MIG-") for device in cuda.devices):
        return "CUDA sees a single MIG instance, and this GPU is not the one it belongs to"
    if gpu.mig is True:
        return "MIG mode is on, but CUDA sees no instance of this GPU (nvidia-smi mig -lgi)"
    return _SEES_NONE.format(text=cuda.text) if cuda.failed else "CUDA does not list this GPU, and no variable hides it"


def _completed(gpu: Gpu, device: CudaDevice) -> Gpu:
    if isinstance(gpu.sm, Missing) and device.sm is not None:
        gpu = replace(gpu, sm=device.sm)
    if isinstance(gpu.memory_total_mib, Missing) and device.memory_mib is not None and device.uuid == gpu.uuid:
        gpu = replace(gpu, memory_total_mib=device.memory_mib)
    return gpu


def _gpu_of_cuda(index: int, device: CudaDevice, why: str) -> Gpu:
    is_part = device.uuid != device.parent
    unknown = Missing(reason=f"only NVML could tell: {why}")
    not_given = Missing(reason=f"the CUDA driver did not tell, and NVML cannot: {why}")
    return Gpu(
        nvml_index=index,
        cuda_index=unknown,  # replaced when matched
        uuid=device.parent,
        name=device.name or "(no name from CUDA)",
        sm=not_given if device.sm is None else device.sm,
        memory_total_mib=not_given if device.memory_mib is None or is_part else device.memory_mib,
        memory_free_mib=unknown,
        mig=True if is_part else unknown,
        pci_bus=device.pci_bus or not_given,
    )


def _reason(value: object) -> str:
    return value.reason if isinstance(value, Missing) else ""
