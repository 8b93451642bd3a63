"""A fleet as one HTML page that needs nothing else: no script, no network, no other file."""

from __future__ import annotations

from markupsafe import Markup

from fi_doctor.fleet.console import standing
from fi_doctor.fleet.explaining import group_name
from fi_doctor.model.fleet import FleetReport
from fi_doctor.reports import html
from fi_doctor.reports.answer import EXIT_MEANINGS
from fi_doctor.reports.text import amount


def render(fleet: FleetReport) -> str:
    """The whole of it, with a table of all nodes."""
    style = html.style()
    page = html.environment().get_template("fleet.html")
    return (
        page.render(
            fleet=fleet,
            meaning=EXIT_MEANINGS.get(fleet.gate.code, "could not tell"),
            style=Markup(style),  # noqa: S704 - ours
            policy=f"default-src 'none'; style-src {html.digest(style)}; base-uri 'none'; form-action 'none'",
            odd=[one for one in fleet.groups if one.is_odd],
            nodes=sorted(fleet.nodes, key=lambda one: one.code == 0),
            standing=standing,
            group_name=group_name,
            amount=amount,
        )
        + "\n"
    )
