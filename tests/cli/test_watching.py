"""What tells of a check: a table where it is asked for and can be drawn, lines elsewhere."""

from __future__ import annotations

import pytest

from fi_doctor.cli import watching
from fi_doctor.cli.asked import Asked, begin_check
from fi_doctor.errors import UsageError
from fi_doctor.model import Silent
from fi_doctor.reports.live import LiveTable
from fi_doctor.reports.progress import Progress


@pytest.mark.parametrize(
    ("is_terminal", "is_watched", "term", "kind"),
    [
        (True, True, "xterm", LiveTable),
        (True, True, "", LiveTable),
        (True, True, "dumb", Progress),
        (True, False, "xterm", Progress),
        (False, True, "xterm", Progress),
    ],
)
def test_a_table_needs_a_terminal_that_can_draw_and_is_asked_for(monkeypatch, is_terminal, is_watched, term, kind):
    monkeypatch.setenv("TERM", term)
    assert type(watching.teller(is_terminal=is_terminal, is_watched=is_watched, selected=False)) is kind


@pytest.mark.parametrize(("term", "count"), [("dumb", 0), ("xterm", 1)])
def test_a_dumb_terminal_gets_lines(monkeypatch, capsys, term, count):
    monkeypatch.setenv("TERM", term)
    teller = watching.teller(is_terminal=True, is_watched=False, selected=False)
    teller.building(1, 0, 3, 2, 10.0)
    assert capsys.readouterr().err.count("\x1b[K") == count


@pytest.mark.parametrize("asked", [Asked(quiet=True), Asked(depth="static", is_watched=True)], ids=["quiet", "static"])
def test_where_nothing_is_tried_or_wanted_nothing_is_told(asked):
    with watching.progress(asked) as watch:
        assert isinstance(watch, Silent)


@pytest.mark.parametrize(
    ("other", "named"),
    [({"example": "h200"}, "--example"), ({"from_file": "-"}, "--from"), ({"quiet": True}, "--quiet")],
)
def test_there_must_be_something_to_watch(other, named):
    with pytest.raises(UsageError, match=f"--watch and {named}: there is nothing to watch"):
        begin_check(Asked(is_watched=True, **other))
