"""A fleet for strangers: nodes by number, and no name of a person or a host, no address and no serial number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor.fleet.reading import Reading
from fi_doctor.model import Report
from fi_doctor.model.fleet import FleetReport, Unread
from fi_doctor.reports import redaction

_QUOTED = re.compile(r'"[^"]*"|\'[^\']*\'')  # in what is said of a report that was not read: its path


class Redaction(NamedTuple):
    """How nodes were called, and the variables of this process, which name its user and its host."""

    names: frozenset[str]
    environ: Mapping[str, str]

    def document(self, fleet: FleetReport) -> FleetReport:
        """The same without names; nodes are numbered already."""
        nodes = tuple(replace(one, hostname="", gpus=()) for one in fleet.nodes)
        return redaction.without_names(replace(fleet, nodes=nodes), self.names, self.environ)

    def report(self, report: Report) -> Report:
        """A report of what is judged, the same way."""
        return redaction.without_names(redaction.redact(report, self.environ), self.names, self.environ)


def of(readings: Sequence[Reading], unread: Sequence[Unread], environ: Mapping[str, str]) -> Redaction:
    """What takes the names of these nodes out."""
    names = (*(one.name for one in readings), *(one.name for one in unread), *(one.hostname for one in readings))
    called = (part for name in names for part in (name, *name.split("/")))
    return Redaction(frozenset(name for one in called for name in redaction.host_names(one)), environ)


def numbered(readings: Sequence[Reading]) -> list[Reading]:
    """The same, called by their numbers, without the paths of their files."""
    return [one._replace(name=f"<node {number}>", source="") for number, one in enumerate(readings, 1)]


def unread_numbered(unread: Sequence[Unread], first: int) -> list[Unread]:
    """The same of nodes without a report; first: the number of the first of them."""
    return [
        replace(
            one,
            name=f"<node {number}>",
            source="",
            what=_QUOTED.sub("<report>", one.what),
            why=_QUOTED.sub("<report>", one.why),
        )
        for number, one in enumerate(unread, first)
    ]
