"""What decides whether GPUs, and the processes that have them, reach each other: inputs of rows with several ranks."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from fi_doctor.facts.files import read_text
from fi_doctor.locking.model import ABSENT
from fi_doctor.model import Facts, Gpu, Missing, PeerLink

_TRACE = 19  # CAP_SYS_PTRACE, linux/capability.h
_SCOPE = "proc/sys/kernel/yama/ptrace_scope"
_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-fA-F]+)$", re.MULTILINE)
_FILTER = re.compile(r"^Seccomp:\s*(\d+)$", re.MULTILINE)
_UNREAD = "?"


def between(facts: Facts, sm: str, most: int, least: int = 2) -> str:
    """The ways between the first GPUs of a kind ("sm90") in CUDA's order, so many at most, and what lies above each.

    ABSENT where there are fewer than least.

    GPUs are numbered by their place, so that another pair that is joined as the old one was makes no difference.
    """
    gpus = facts.gpus.gpus
    seen = [] if isinstance(gpus, Missing) else [gpu for gpu in gpus if f"sm{gpu.sm}" == sm]
    places = {place: gpu for gpu in seen if not isinstance(place := gpu.cuda_index, Missing)}
    numbered = list(enumerate(places[place] for place in sorted(places)[:most]))
    if len(numbered) < least:
        return ABSENT
    links = () if isinstance(facts.gpus.links, Missing) else facts.gpus.links
    by_ends = {frozenset((link.one, link.other)): link for link in links}
    pairs = (
        f"{a}-{b} {_way(by_ends.get(frozenset((one.uuid, other.uuid))))}"
        for (a, one), (b, other) in itertools.combinations(numbered, 2)
    )
    return "; ".join([*pairs, *(f"{place}: {_above(gpu)}" for place, gpu in numbered)])


def tracing(root: Path = Path("/")) -> str:
    """Whether a process may look into another one of the same user, as FlashInfer up to 0.6 does to share memory."""
    scope, status = read_text(root / _SCOPE), read_text(root / "proc/self/status")
    words = "" if isinstance(status, Missing) else status
    effective, filtered = _EFFECTIVE.search(words), _FILTER.search(words)
    may = _UNREAD if effective is None else "yes" if int(effective[1], 16) >> _TRACE & 1 else "no"
    asked = _UNREAD if filtered is None else filtered[1]
    return f"ptrace_scope {_UNREAD if isinstance(scope, Missing) else scope.strip()}, SYS_PTRACE {may}, seccomp {asked}"


def _way(link: PeerLink | None) -> str:
    if link is None:
        return _UNREAD
    nvlink = _UNREAD if isinstance(link.nvlink, Missing) else "NVLink" if link.nvlink else "no NVLink"
    return f"{nvlink}, {_words(link.pcie)}, read {_words(link.read)}, write {_words(link.write)}"


def _above(gpu: Gpu) -> str:
    links = _UNREAD if isinstance(gpu.nvlinks, Missing) else f"{sum(gpu.nvlinks)} of {len(gpu.nvlinks)}"
    bridges = _UNREAD if isinstance(gpu.acs_bridges, Missing) else len(gpu.acs_bridges)
    return f"{links} NVLinks, IOMMU {_words(gpu.iommu)}, ACS at {bridges}"


def _words(fact: str | Missing) -> str:
    return fact if isinstance(fact, str) else _UNREAD
