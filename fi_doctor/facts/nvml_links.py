"""What NVML says of the ways between GPUs. Imports pynvml: import it late."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pynvml

from fi_doctor.model import Missing, PeerLink

# A query and what it is about in words -> its value, or why NVML does not give it.
Get = Callable[[Callable[[], object], str], object]

_READ, _WRITE, _NVLINK = 0, 1, 2  # nvmlGpuP2PCapsIndex_t; in some releases of pynvml they are tuples
_PCIE = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "internal",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
_STATUS = {
    pynvml.NVML_P2P_STATUS_OK: "ok",
    pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED: "chipset not supported",
    pynvml.NVML_P2P_STATUS_GPU_NOT_SUPPORTED: "GPU not supported",
    pynvml.NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: "topology not supported",
    pynvml.NVML_P2P_STATUS_DISABLED_BY_REGKEY: "disabled by a setting of the driver",
    pynvml.NVML_P2P_STATUS_NOT_SUPPORTED: "not supported",
}
_NO_SUCH_LINK = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT)


def read_nvlinks(handle: object) -> tuple[bool, ...]:
    """Whether each NVLink of a GPU is up; those that it does not have are left out."""
    states = (_nvlink(handle, number) for number in range(pynvml.NVML_NVLINK_MAX_LINKS))
    return tuple(state for state in states if state is not None)


def read_links(handles: Mapping[str, object], get: Get) -> tuple[PeerLink, ...]:
    """Every pair of these GPUs, given by UUID, once."""
    return tuple(_link(one, other, get) for one, other in itertools.combinations(handles.items(), 2))


def _nvlink(handle: object, number: int) -> bool | None:
    try:
        return bool(pynvml.nvmlDeviceGetNvLinkState(handle, number) == pynvml.NVML_FEATURE_ENABLED)
    except pynvml.NVMLError as error:
        if error.value in _NO_SUCH_LINK:
            return None
        raise


def _link(one: tuple[str, object], other: tuple[str, object], get: Get) -> PeerLink:
    ends = one[1], other[1]
    nvlink = _status(ends, _NVLINK, "peers over NVLink", get)
    level = get(lambda: pynvml.nvmlDeviceGetTopologyCommonAncestor(*ends), "place where two GPUs meet on PCIe")
    return PeerLink(
        one=one[0],
        other=other[0],
        pcie=level if isinstance(level, Missing) else _PCIE.get(level, f"level {level}"),
        nvlink=nvlink if isinstance(nvlink, Missing) else nvlink == "ok",
        read=_status(ends, _READ, "reading of a peer", get),
        write=_status(ends, _WRITE, "writing to a peer", get),
    )


def _status(ends: tuple[object, object], what: int, words: str, get: Get) -> str | Missing:
    status = get(lambda: pynvml.nvmlDeviceGetP2PStatus(*ends, what), words)
    return status if isinstance(status, Missing) else _STATUS.get(status, f"not known to NVML ({status})")
