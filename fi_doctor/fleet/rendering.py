"""A fleet as text: one renderer for each format, none of which decides anything."""

from __future__ import annotations

from typing import Any

import msgspec

from fi_doctor.errors import UsageError
from fi_doctor.fleet.merging import Fleet
from fi_doctor.model.fleet import FLEET_SCHEMA, FleetReport

FORMATS = ("console", "json", "yaml", "markdown", "junit", "html", "prometheus")


def render(fleet: Fleet, form: str, *, width: int = 80) -> str:
    """The fleet in one of FORMATS, ending with a newline; width: of the console, in columns.

    UsageError when there is no such format.
    """
    # Imported where they are used, as in fi_doctor.reports.
    match form:
        case "console":
            from fi_doctor.fleet import console  # noqa: PLC0415 - see above

            return console.render(fleet.document, width=width)
        case "json" | "yaml":
            from fi_doctor.reports import document  # noqa: PLC0415 - see above

            plain = document.portable(msgspec.to_builtins(fleet.document, order="deterministic"))
            return document.json_of(plain) if form == "json" else document.yaml_of(plain)
        case "markdown":
            from fi_doctor.fleet import markdown  # noqa: PLC0415 - see above

            return markdown.render(fleet.document)
        case "junit":
            from fi_doctor.fleet import junit  # noqa: PLC0415 - see above

            return junit.render(fleet)
        case "html":
            from fi_doctor.fleet import html  # noqa: PLC0415 - see above

            return html.render(fleet.document)
        case "prometheus":
            from fi_doctor.fleet import prometheus  # noqa: PLC0415 - see above

            return prometheus.render(fleet)
        case _:
            raise UsageError(f'there is no format "{form}" of a fleet', todo=f"one of: {', '.join(FORMATS)}")


def schema() -> dict[str, Any]:
    """The JSON Schema of a fleet, generated from the types."""
    return {"$id": FLEET_SCHEMA, "title": "fi-doctor fleet", **msgspec.json.schema(FleetReport)}
