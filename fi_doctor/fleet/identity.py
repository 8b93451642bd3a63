"""What tells one node from another and configures nothing: it differs by nature, and is no drift.

A fact that is not named here configures the node. Each entry has its reason; nothing is left out because it happened
to vary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from fi_doctor.diagnosis.fact_changes import FOLLOWS_FROM_FILES, Told, leaves
from fi_doctor.model import secrets
from fi_doctor.model.numbers import whole
from fi_doctor.reports.redaction import names_host

# Kind of a fact, as `leaves` names it -> why it says nothing of how a node is configured.
IDENTIFIES = {
    "system.hostname": "the node's own name",
    "system.memory_available_mib": "what is free at that moment",
    "system.memory_left_mib": "what is free at that moment",
    "machine.folders.free_mib": "what is free at that moment",
    "machine.folders.free_inodes": "what is free at that moment",
    "machine.folders.quota": "what may still be taken at that moment",
    "machine.folders.blocked": "the first of those that are counted beside it",
    "machine.folders.nearest": "whether a folder is there yet that is made when it is needed",
    "machine.user.found_by": "how the report was asked for",
    "server.pid": "a number that the kernel gives",
    "server.parent": "a number that the kernel gives",
    "server.cgroup": "the name of a pod or of a container",
    "server.root": "the number of the process in a path",
    "server.shell": "the variables of whoever wrote the report",
    "interpreter.serving": "how the report was asked for",
    "interpreter.is_own": "how the report was asked for",
    "gpus.cuda_order": "serial numbers; what CUDA sees is counted",
    "gpus.links": "between serial numbers; told by the numbers of the GPUs",
    "gpus.gpus": "serial numbers, addresses and free memory are among them; told one by one, by the GPU's number",
    "installed_on": "the day on which files were copied, not what they are",
}
_UNTOLD = frozenset({*IDENTIFIES, *FOLLOWS_FROM_FILES})
# Variables that are a number or an address of this one process or node.
_OF_A_PROCESS = re.compile(
    r"(?:^|_)(?:RANK|PID|PORT|UUID|SESSION|CACHE_TAG|INSTANCE_ID|POD|POD_NAME)(?:_|$)|^PWD$|^OLDPWD$|^TMPDIR$"
)
# Amounts that two machines of one kind have almost alike, since firmware and the kernel keep some: to the nearest of
# 64, 96, 128, 192 GiB and so on. /dev/shm is half of the memory unless somebody sets it.
_ALMOST = ("system.memory_total_mib", "system.shm_mib")
_SERIAL = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_SERIALS = re.compile(rf"{_SERIAL.pattern}(?:,{_SERIAL.pattern})*")  # how many there are, the count of GPUs tells
_PCI = re.compile(r"\b(?:[0-9a-fA-F]{4,8}:)[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b")
_NODE = re.compile(r"^/dev/nvidia\d+$")
_OF_A_GPU = ("name", "sm", "memory_total_mib", "mig", "iommu", "compute_mode")
_SHARED_PREFIXES = ("/", "/usr", "/usr/local")  # of a Python of the system, below which all else lies too
_PREFIX = b"<prefix>"
_HOST = "<host>"
_SESSION = r"session_[0-9-]{10}_[0-9-]{8}_[0-9]+_[0-9]+"  # of `ray start`, below /tmp/ray
_NOT_INSTALLED = "not known: not installed in "
_NOTHING = ((), "None")  # an empty list, and null


def configuring(group: str, value: Any) -> Iterator[tuple[str, Told]]:
    """The facts of a group that configure the node, by name, as words. value: as a report has it."""
    for name, told in leaves(group, group, value, _UNTOLD):
        if told in _NOTHING or (group == "environment" and _is_of_one(name.partition(".")[2])):
            continue  # what is empty is not there, whether a report of another release writes it or not
        if group == "environment":  # of which an empty one is set, too
            yield name, _shown(name, told)
        elif told:
            yield name, _common(name, told)
    if group == "gpus" and isinstance(value, dict):
        yield from _gpus(value)


def without_prefix(group: str, raw: bytes, prefix: str) -> bytes:
    """The facts of a group as they are written, without the folder of the interpreter, which is told by itself."""
    if group == "interpreter" or not prefix.startswith("/") or prefix in _SHARED_PREFIXES:
        return raw
    return raw.replace(msgspec.json.encode(prefix)[1:-1], _PREFIX)


def names(hostname: str, node: str) -> re.Pattern[str]:
    """What finds the names of one machine in texts; a name without a number is a word that anything can have."""
    found = _called(hostname, node)
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, found))})(?![A-Za-z0-9])" if found else r"(?!)")


class Folders(NamedTuple):
    """The folders that one machine has for itself, in a text of paths or of JSON."""

    begins: tuple[str, ...]  # of which one stands in every text that names such a folder
    parts: str  # a pattern; there are thousands, and few are looked for

    def are_in(self, text: str) -> bool:
        """Whether it names one; quick where it does not."""
        return any(one in text for one in self.begins) and re.search(self.parts, text) is not None

    def without(self, text: str) -> str:
        """The same of any machine: "/scratch/<host>/cache"."""
        return re.sub(self.parts, _HOST, text)


def folders(hostname: str, node: str) -> Folders:
    """Those that are called as the machine, and those of a session of Ray's, which has its time and its process."""
    found = _called(hostname, node)
    parts = "|".join([*map(re.escape, found), _SESSION])
    return Folders((*(f"/{one}" for one in found), "/session_"), rf'(?<=/)(?:{parts})(?=[/:,;"\\\s]|$)')


def without_names(fact: tuple[str, Told], own: re.Pattern[str]) -> tuple[str, Told]:
    """A fact and its value without the names of its machine."""
    name, told = fact
    if isinstance(told, str):
        return own.sub(_HOST, name), own.sub(_HOST, told)
    return own.sub(_HOST, name), tuple(own.sub(_HOST, one) for one in told)


def is_untold(fact: str, section: Mapping[str, Told]) -> bool:
    """Whether a section that lacks the fact says nothing of it.

    Of a package that a release of fi-doctor did not look for, and of what GPUs are, where there are none to ask.
    """
    if fact.startswith("packages."):
        package = fact.split(".")[1]
        return not any(one.split(".")[1] == package for one in section)
    if not fact.startswith("gpus.") or fact.startswith("gpus.driver"):
        return False
    count = section.get("gpus.count", "")
    return count == "0" or not (isinstance(count, str) and count.isdigit())


def serials(gpus: Any) -> tuple[str, ...]:
    """The UUIDs of the GPUs; none where they were taken out, or are not known."""
    found = gpus.get("gpus") if isinstance(gpus, dict) else None
    words = [one.get("uuid") for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return tuple(sorted(one for one in words if isinstance(one, str) and _SERIAL.fullmatch(one)))


def _called(hostname: str, node: str) -> list[str]:
    whole = {hostname, hostname.partition(".")[0], node.rpartition("/")[2]}
    return sorted((one for one in whole if len(one) >= 4 and re.search(r"\d", one)), key=len, reverse=True)


def _shown(name: str, told: Told) -> Told:
    """A variable; hidden where it is a secret, whoever wrote the report."""
    is_secret = isinstance(told, str) and secrets.is_secret(name.partition(".")[2], told)
    return secrets.HIDDEN if is_secret else _common(name, told)


def _is_of_one(variable: str) -> bool:
    return names_host(variable) or _OF_A_PROCESS.search(variable) is not None


def _common(name: str, told: Told) -> Told:
    """The same without what is the node's own in it: serial numbers, addresses of devices, exact amounts of memory."""
    if name in _ALMOST and isinstance(told, str) and (number := whole(told)) is not None:
        return _almost(number)
    if isinstance(told, tuple):
        items = tuple(_without_serials(one) for one in told)
        if name == "machine.driver_files.nodes":
            return tuple(sorted({_NODE.sub("/dev/nvidiaN", one) for one in items}))
        return items
    return _without_serials(told)


def _without_serials(text: str) -> str:
    if text.startswith(_NOT_INSTALLED):
        return _NOT_INSTALLED.removesuffix(" in ")  # whatever the interpreter is called
    if "-" in text:
        text = _SERIALS.sub("serial numbers", text)
    return _PCI.sub("a PCI address", text) if ":" in text else text


def _almost(mib: int) -> str:
    """An amount of memory to the nearest power of two, or one and a half of it: "128 GiB", "64 MiB"."""
    if mib <= 0:
        return f"{mib} MiB"
    below = 2 ** math.floor(math.log2(mib))
    near = min((below, below * 3 // 2 or below, below * 2), key=lambda one: abs(one - mib))
    return f"{near // 1024} GiB" if near >= 1024 and near % 1024 == 0 else f"{near} MiB"


def _gpus(value: dict[str, Any]) -> Iterator[tuple[str, Told]]:
    """What the GPUs are, without what they are called; where not all are alike, each by its number."""
    found = value.get("gpus")
    if not isinstance(found, list):
        if not _is_missing(value.get("driver")):  # without a driver there is nobody to count them
            yield "gpus.count", f"not known: {found.get('reason', '')}" if isinstance(found, dict) else "not known"
        return
    gpus = [one for one in found if isinstance(one, dict)]
    yield "gpus.count", str(len(gpus))
    for field in _OF_A_GPU:
        if any(field in one for one in gpus):
            yield f"gpus.{field}", _alike([_words(one.get(field)) for one in gpus])
    for field, words in (("nvlinks", _links_up), ("acs_bridges", _amount)):
        if any(field in one for one in gpus):  # reports of old releases have none
            yield f"gpus.{field}", _alike([words(one.get(field)) for one in gpus])
    order = value.get("cuda_order")
    yield "gpus.cuda_sees", str(len(order)) if isinstance(order, list) else _words(order)
    if value.get("links"):  # of one GPU there are none
        yield "gpus.peers", _peers(value["links"], [one.get("uuid") for one in gpus])


def _is_missing(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") == "missing"


def _alike(values: list[str]) -> str:
    """The value that all GPUs have, else those that few of them have: "17 of 18 up on GPU 1"."""
    kinds = sorted(set(values), key=lambda one: (-values.count(one), one))
    if len(kinds) < 2:
        return kinds[0] if kinds else ""
    numbers = {kind: [str(number) for number, value in enumerate(values) if value == kind] for kind in kinds[1:]}
    return ", ".join(f"{kind} on GPU {' '.join(of)}" for kind, of in numbers.items())


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return f"not known: {value.get('reason', '')}"
    return str(value)


def _links_up(value: Any) -> str:
    if not isinstance(value, list):
        return _words(value)
    return f"{sum(map(bool, value))} of {len(value)} up" if value else "none"


def _amount(value: Any) -> str:
    return str(len(value)) if isinstance(value, list) else _words(value)


def _peers(value: Any, uuids: list[Any]) -> Told:
    """How each pair of GPUs reaches each other, by their numbers."""
    if not isinstance(value, list):
        return _words(value)
    numbers = {uuid: number for number, uuid in enumerate(uuids)}
    said = []
    for link in value:
        one, other = sorted((numbers.get(link.get("one"), -1), numbers.get(link.get("other"), -1)))
        ways = ", ".join(f"{key} {_words(link.get(key))}" for key in ("pcie", "nvlink", "read", "write"))
        said.append(f"{one}-{other}: {ways}")
    return tuple(sorted(said))
