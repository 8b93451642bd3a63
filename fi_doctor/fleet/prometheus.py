"""A fleet as metrics: those of each node's report with the node as a label, and those of the fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fi_doctor.fleet.merging import Fleet
from fi_doctor.model.fleet import FleetReport
from fi_doctor.reports import prometheus
from fi_doctor.reports.prometheus import Gauge, gauge
from fi_doctor.reports.text import clean

_NODE = "node"


def render(fleet: Fleet) -> str:
    """The whole of it: each metric once, with the samples of all nodes."""
    every = (*_of_fleet(fleet.document), *_of_nodes(fleet))
    return "".join(line + "\n" for one in every for line in prometheus.lines(one))


def _of_fleet(fleet: FleetReport) -> Iterator[Gauge]:
    codes = Counter(str(one.code) for one in fleet.nodes)
    codes["unread"] = len(fleet.unread)
    yield gauge("fleet_gate_exit_code", "Exit code of the gate over all nodes.", [({}, fleet.gate.code)])
    told = [({"exit_code": code}, codes[code]) for code in ("0", "1", "3", "unread")]
    yield gauge("fleet_nodes", "Nodes by the exit code of their gate; unread: without a report.", told)
    odd = {name for group in fleet.groups if group.is_odd for name in group.nodes}
    said = "Whether a node stands apart from most nodes."
    yield gauge("fleet_odd", said, [({_NODE: one.name}, one.name in odd) for one in fleet.nodes])


def _of_nodes(fleet: Fleet) -> Iterator[Gauge]:
    of_reports = [list(prometheus.gauges(report)) for report in fleet.judged]
    for position, first in enumerate(of_reports[0] if of_reports else ()):
        samples = {
            ((_NODE, clean(node.name, 200)), *labels): value
            for node in fleet.document.nodes
            for labels, value in of_reports[node.judged][position].samples.items()
        }
        yield Gauge(first.name, first.help, samples)
