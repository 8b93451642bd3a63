"""What lies above a GPU on PCIe, from /sys: the IOMMU that may translate, and bridges that send peer traffic up."""

from __future__ import annotations

import re
from pathlib import Path

from fi_doctor.model import Missing

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_EXTENDED = 0x100  # where extended capabilities begin; below it everybody may read
_ACS = 0x000D
_CONTROL = 6  # of the ACS capability, 16 bits
_REDIRECT = 0x4 | 0x8  # P2P request redirect and P2P completion redirect


def device_folder(bus: str, root: Path = Path("/")) -> Path:
    """The device's folder. NVML writes "00000000:0F:00.0", Linux "0000:0f:00.0"."""
    domain, _, rest = bus.lower().partition(":")
    return root / "sys/bus/pci/devices" / f"{int(domain, 16):04x}:{rest}"


def read_iommu(bus: str | Missing, root: Path = Path("/")) -> str | Missing:
    """The type of the device's IOMMU group: "identity" passes addresses on, "DMA" and "DMA-FQ" translate them.

    "none" where no IOMMU is in use, or none that this machine, which may be a virtual one, knows of.
    Source: /sys/kernel/iommu_groups/<number>/type, from Linux 5.11 on
    """
    if isinstance(bus, Missing):
        return bus
    try:
        folder = device_folder(bus, root)
        if not folder.exists():
            return Missing(reason=f"{folder} is not there")
        group = folder / "iommu_group"
        return (group / "type").read_text(encoding="utf-8").strip() if group.exists() else "none"
    except ValueError:
        return Missing(reason=f"{bus!r} is not a PCI address")
    except OSError as error:
        return Missing(reason=f"{error.filename} cannot be read: {error.strerror}")


def read_acs_bridges(bus: str | Missing, root: Path = Path("/")) -> tuple[str, ...] | Missing:
    """Addresses of the bridges above the device that redirect peer requests or completions, the nearest last.

    Source: the control register of the ACS capability; only root may read so far into a bridge's configuration.
    """
    if isinstance(bus, Missing):
        return bus
    try:
        folder = device_folder(bus, root)
        if not folder.exists():
            return Missing(reason=f"{folder} is not there")
        above = [part for part in folder.resolve().parents if _ADDRESS.fullmatch(part.name)]
        found = {bridge.name: redirects((bridge / "config").read_bytes()) for bridge in reversed(above)}
    except ValueError:
        return Missing(reason=f"{bus!r} is not a PCI address")
    except OSError as error:
        return Missing(reason=f"{error.filename} cannot be read: {error.strerror}")
    unread = next((name for name, one in found.items() if one is None), "")
    if unread:
        return Missing(reason=f"the whole configuration of bridge {unread} can be read by root only")
    return tuple(name for name, one in found.items() if one)


def redirects(config: bytes) -> bool | None:
    """Whether a bridge sends peer traffic up, from its configuration space; None when that does not reach so far."""
    if len(config) <= _EXTENDED:
        return None
    at, seen = _EXTENDED, set[int]()
    while at >= _EXTENDED and at + _CONTROL + 2 <= len(config) and at not in seen:
        seen.add(at)
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            return bool(int.from_bytes(config[at + _CONTROL : at + _CONTROL + 2], "little") & _REDIRECT)
        at = header >> 20
    return False
