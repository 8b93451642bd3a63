"""A report as text: one renderer for each format, none of which decides anything."""

from __future__ import annotations

from fi_doctor.errors import UsageError
from fi_doctor.model import Report
from fi_doctor.model.policy import FORMATS
from fi_doctor.reports.beside import NOTHING, Beside


def render(
    report: Report,
    format: str,  # noqa: A002 - the option's own name
    *,
    width: int = 80,
    color: bool = False,
    beside: Beside = NOTHING,
) -> str:
    """The report in one of FORMATS, ending with a newline; `width` and `color` concern the console only.

    beside: what is not in the report; without it SARIF has what the report itself says of a rule, and the console no
    links.

    UsageError when there is no such format.
    """
    # The renderers are imported where they are used: `fi-doctor --help` needs neither rich nor yaml.
    match format:
        case "console":
            from fi_doctor.reports import console  # noqa: PLC0415 - see above

            return console.render(report, width=width, color=color, pages=beside.pages)
        case "json":
            from fi_doctor.reports import document  # noqa: PLC0415 - see above

            return document.to_json(report)
        case "yaml":
            from fi_doctor.reports import document  # noqa: PLC0415 - see above

            return document.to_yaml(report)
        case "sarif":
            from fi_doctor.reports import sarif  # noqa: PLC0415 - see above

            return sarif.render(report, beside)
        case _:
            return _plain(report, format)


def _plain(report: Report, form: str) -> str:
    """The formats that ask for nothing but the report."""
    match form:
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
        case "nfd":
            from fi_doctor.reports import nfd  # noqa: PLC0415 - see above

            return nfd.render(report)
        case "termination-log":
            from fi_doctor.reports import termination  # noqa: PLC0415 - see above

            return termination.render(report)
        case _:
            raise UsageError(f'there is no format "{form}"', todo=f"one of: {', '.join(FORMATS)}")
