"""What conditions can ask about GPUs that have to reach each other."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.relations import Relation, visible_gpus
from fi_doctor.model import Facts, Gpu, Missing, PeerLink


def _gpus(facts: Facts) -> dict[str, Gpu] | Missing:
    gpus = visible_gpus(facts)
    return gpus if isinstance(gpus, Missing) else {gpu.uuid: gpu for gpu in gpus}


def sm_kinds(facts: Facts) -> Relation:
    """How many compute capabilities the visible GPUs have."""
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing):
        return gpus
    sms = [gpu.sm for gpu in gpus]
    unread = next((sm for sm in sms if isinstance(sm, Missing)), None)
    return (len(set(sms)),) if unread is None else unread


def mig(facts: Facts) -> Relation:
    """Whether MIG mode is on, of each visible GPU."""
    gpus = visible_gpus(facts)
    return gpus if isinstance(gpus, Missing) else tuple(gpu.mig for gpu in gpus)


def fewer_nvlinks(facts: Facts) -> Relation:
    """Visible GPUs with fewer NVLinks up than another one of their name: "GPU 3 (16 of 18 up)"."""
    gpus = _gpus(facts)
    if isinstance(gpus, Missing):
        return gpus
    unread = next((gpu.nvlinks for gpu in gpus.values() if isinstance(gpu.nvlinks, Missing)), None)
    if unread is not None:
        return unread
    most: dict[str, int] = {}
    for gpu in gpus.values():
        most[gpu.name] = max(most.get(gpu.name, 0), _up(gpu))
    return tuple(
        f"GPU {_number(gpu)} ({_up(gpu)} of {most[gpu.name]} up)" for gpu in gpus.values() if _up(gpu) < most[gpu.name]
    )


def pairs_without_nvlink(facts: Facts) -> Relation:
    """Pairs of visible GPUs that NVML says do not reach each other over NVLink: "0-1 (PHB)"."""
    return _pairs(facts, lambda link: link.nvlink, lambda link: link.nvlink is False, lambda link: link.pcie)


def peers_refused(facts: Facts) -> Relation:
    """Pairs of visible GPUs of which NVML says that they cannot read or write each other's memory, and why."""

    def said(link: PeerLink) -> str | Missing:
        return link.read if link.read != "ok" else link.write

    return _pairs(facts, said, lambda link: said(link) != "ok", said)


def no_peers(facts: Facts, sm: int | Missing) -> str:
    """That no two visible GPUs of this kind reach each other's memory, by NVML; "" where two do or it is open."""
    gpus, links = _gpus(facts), facts.gpus.links
    if isinstance(gpus, Missing) or isinstance(links, Missing):
        return ""
    ours = {uuid for uuid, gpu in gpus.items() if gpu.sm == sm}
    between = [link for link in links if link.one in ours and link.other in ours]
    refused = peers_refused(replace(facts, gpus=replace(facts.gpus, links=tuple(between))))
    told = () if isinstance(refused, Missing) else tuple(one for one in refused if isinstance(one, str))
    if not between or len(told) < len(between):
        return ""
    return f"NVML says that these GPUs do not reach each other's memory: {', '.join(told)}"


def iommu_translates(facts: Facts) -> Relation:
    """Visible GPUs whose addresses the IOMMU translates: "GPU 0 (DMA-FQ)"."""
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing):
        return gpus
    return _each(gpus, lambda gpu: gpu.iommu, lambda value: str(value) if str(value).startswith("DMA") else "")


def acs_redirects(facts: Facts) -> Relation:
    """Visible GPUs below bridges that send peer traffic up: "GPU 0 (0000:3a:00.0)"."""
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing):
        return gpus
    return _each(gpus, lambda gpu: gpu.acs_bridges, lambda value: " ".join(value) if isinstance(value, tuple) else "")


def _each(gpus: tuple[Gpu, ...], read: Callable[[Gpu], object], words: Callable[[object], str]) -> tuple[object, ...]:
    values = ((gpu, read(gpu)) for gpu in gpus)
    told = ((gpu, value if isinstance(value, Missing) else words(value)) for gpu, value in values)
    return tuple(one if isinstance(one, Missing) else f"GPU {_number(gpu)} ({one})" for gpu, one in told if one)


def _pairs(
    facts: Facts,
    read: Callable[[PeerLink], object],
    counts: Callable[[PeerLink], bool],
    words: Callable[[PeerLink], object],
) -> Relation:
    gpus, links = _gpus(facts), facts.gpus.links
    if isinstance(gpus, Missing):
        return gpus
    if isinstance(links, Missing):
        return links
    told: list[object] = []
    for link in links:
        value = read(link)
        if link.one not in gpus or link.other not in gpus:
            continue
        if isinstance(value, Missing):
            told.append(value)
        elif counts(link):
            why = words(link)
            pair = f"{_number(gpus[link.one])}-{_number(gpus[link.other])}"
            told.append(pair if isinstance(why, Missing) else f"{pair} ({why})")
    return tuple(told)


def _up(gpu: Gpu) -> int:
    return 0 if isinstance(gpu.nvlinks, Missing) else sum(gpu.nvlinks)


def _number(gpu: Gpu) -> int:
    """As nvidia-smi numbers it, which is what one looks it up by."""
    return gpu.nvml_index


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "sm_kinds": (Kind.NUMBER, sm_kinds),
    "mig": (Kind.FLAG, mig),
    "fewer_nvlinks": (Kind.TEXT, fewer_nvlinks),
    "pairs_without_nvlink": (Kind.TEXT, pairs_without_nvlink),
    "peers_refused": (Kind.TEXT, peers_refused),
    "iommu_translates": (Kind.TEXT, iommu_translates),
    "acs_redirects": (Kind.TEXT, acs_redirects),
}
