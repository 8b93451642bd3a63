"""NCCL's log (NCCL_DEBUG=INFO): which ways it took between ranks. Pure: text in, facts out.

Source: NCCL 2.18 to 2.28, src/transport/*.cc and src/init.cc; lines of 2.28.9 were recorded on two H200.
"""

from __future__ import annotations

import re
from collections import Counter

from fi_doctor.model.collectives import NcclLog
from fi_doctor.model.numbers import whole

_MOST = 20  # warnings and devices that are kept
_INFO = re.compile(r"NCCL INFO (?P<words>.*)")
_WARN = re.compile(r"NCCL WARN (?P<words>.*)")
_LINK = re.compile(r"Channel \d+(?:/\d+)? : (?P<one>\d+)\[\w+\] -> (?P<other>\d+)\[\w+\](?: \[\w+\])? via (?P<way>\S+)")
_VERSION = re.compile(r"NCCL version (\S+)")
_NETWORK = re.compile(r"Using network (.+)")
_DEVICES = re.compile(r"NET/\w+ : Using (?P<devices>.*)")
_DEVICE = re.compile(r"\[\d+\]([^ \[;]+)")
_NODES = re.compile(r"comm \S+ rank \d+ nRanks \d+ nNodes (\d+)")


def parse(text: str, source: str) -> NcclLog:
    """All that is known of the lines; a log without any gives an empty one."""
    version, network, nodes = "", "", 0
    devices: dict[str, None] = {}
    warnings: dict[str, None] = {}
    links: Counter[str] = Counter()
    for line in text.splitlines():
        if warned := _WARN.search(line):
            warnings[warned["words"].strip()] = None
        if (told := _INFO.search(line)) is None:
            version = version or _first(_VERSION, line)  # in older releases a line of its own
            continue
        words = told["words"]
        if link := _LINK.match(words):
            links[way(link["way"])] += 1
        version = version or _first(_VERSION, words)
        network = _first(_NETWORK, words).strip() or network
        if listed := _DEVICES.match(words):
            devices.update(dict.fromkeys(_DEVICE.findall(listed["devices"])))
        nodes = max(nodes, whole(_first(_NODES, words)) or 0)
    return NcclLog(
        source=source,
        version=version,
        network=network,
        devices=tuple(devices)[:_MOST],
        links=dict(sorted(links.items())),
        nodes=nodes,
        warnings=tuple(warnings)[:_MOST],
    )


def way(words: str) -> str:
    """The way without the number of a network card, "NET/IB/0/GDRDMA" -> "NET/IB/GDRDMA"."""
    parts = [part for part in words.split("/") if not re.fullmatch(r"\d+(\(\d+\))?", part)]
    return "/".join(part for part in parts if part != "Shared")


def is_over_infiniband(ways: tuple[str, ...]) -> bool:
    """Whether anything goes over InfiniBand or RoCE, which no machine that fi-doctor was tried on had."""
    return any(one.startswith(("NET/IB", "COLLNET")) for one in ways)


def _first(pattern: re.Pattern[str], words: str) -> str:
    found = pattern.search(words)
    return found[1] if found else ""
