"""A fleet as JUnit XML: a suite for the fleet, and one for each node with the cases of its report."""

from __future__ import annotations

from collections.abc import Iterator

from fi_doctor.fleet.merging import Fleet
from fi_doctor.model.fleet import FleetReport
from fi_doctor.reports import junit
from fi_doctor.reports.answer import EXIT_MEANINGS
from fi_doctor.reports.junit import Case
from fi_doctor.reports.standing import Standing, State, of_gate
from fi_doctor.reports.text import clean

_FLEET = "fleet"


def render(fleet: Fleet) -> str:
    """The whole of it; never without a case."""
    cases = [junit.cases(report) for report in fleet.judged]
    suites = {_FLEET: list(_of_fleet(fleet.document))}
    suites |= {_suite(node.name): cases[node.judged] for node in fleet.document.nodes}
    return junit.document(suites, fleet.document.created)


def _of_fleet(fleet: FleetReport) -> Iterator[Case]:
    """The exit code; a node that was not read is an error, an odd one is told and fails nothing by that."""
    yield Case(_FLEET, EXIT_MEANINGS[0], of_gate(fleet.gate))
    for one in fleet.unread:
        why = clean(f"{one.what}: {one.why}" if one.why else one.what, 4000)
        yield Case(_FLEET, clean(f"{one.name} is read", 300), Standing(State.ERROR, why, "not read"))
    for group in fleet.groups:
        if group.is_odd:
            name = clean(f"{group.nodes[0]} is odd", 300)
            yield Case(_FLEET, name, Standing(State.PASSED, " ".join(line.strip() for line in group.said)))


def _suite(name: str) -> str:
    """The name of a node's suite, which is another than the fleet's own."""
    cleaned = clean(name, 200)
    return cleaned if cleaned != _FLEET else f"node {cleaned}"
