"""A report as text: one renderer for each format, none of which decides anything."""

from __future__ import annotations

from fi_doctor.errors import UsageError
from fi_doctor.model import Report

FORMATS = ("console", "json", "yaml", "markdown", "junit", "github", "html", "prometheus")


def render(report: Report, format: str, *, width: int = 80, color: bool = False) -> str:  # noqa: A002 - the option's own name
    """The report in one of FORMATS, ending with a newline; `width` and `color` concern the console only.

    UsageError when there is no such format.
    """
    # The renderers are imported where they are used: `fi-doctor --help` needs neither rich nor yaml.
    match format:
        case "console":
            from fi_doctor.reports import console  # noqa: PLC0415 - see above

            return console.render(report, width=width, color=color)
        case "json":
            from fi_doctor.reports import document  # noqa: PLC0415 - see above

            return document.to_json(report)
        case "yaml":
            from fi_doctor.reports import document  # noqa: PLC0415 - see above

            return document.to_yaml(report)
        case "markdown":
            from fi_doctor.reports import markdown  # noqa: PLC0415 - see above

            return markdown.render(report)
        case "junit":
            from fi_doctor.reports import junit  # noqa: PLC0415 - see above

            return junit.render(report)
        case "github":
            from fi_doctor.reports import github  # noqa: PLC0415 - see above

            return github.render(report)
        case "html":
            from fi_doctor.reports import html  # noqa: PLC0415 - see above

            return html.render(report)
        case "prometheus":
            from fi_doctor.reports import prometheus  # noqa: PLC0415 - see above

            return prometheus.render(report)
        case _:
            raise UsageError(f'there is no format "{format}"', todo=f"one of: {', '.join(FORMATS)}")
