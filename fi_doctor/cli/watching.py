"""What tells of a check on stderr while it works: nothing, lines in a log, a status line, or a table."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from fi_doctor.cli.asked import Asked
from fi_doctor.model import Depth, Silent, Watch


@contextlib.contextmanager
def progress(asked: Asked) -> Iterator[Watch]:
    """What tells of the work on stderr, for as long as it takes."""
    if asked.quiet or asked.depth == Depth.STATIC.value:
        yield Silent()
        return
    with teller(is_terminal=sys.stderr.isatty(), is_watched=asked.is_watched, selected=bool(asked.features)) as watch:
        yield watch


def teller(*, is_terminal: bool, is_watched: bool, selected: bool) -> contextlib.AbstractContextManager[Watch]:
    """The table where it is asked for and can be drawn in place, else lines."""
    from fi_doctor.probing.measured import BUILD_S

    can_draw = is_terminal and os.environ.get("TERM", "") != "dumb"
    if is_watched and can_draw:
        from fi_doctor.reports.live import LiveTable

        return LiveTable(sys.stderr, estimates=BUILD_S, selected=selected, color=not os.environ.get("NO_COLOR"))
    from fi_doctor.reports.progress import Progress

    return Progress(sys.stderr, is_terminal=can_draw, estimates=BUILD_S, selected=selected)
