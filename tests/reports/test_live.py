"""The table of `check --watch`, as a terminal gets it."""

from __future__ import annotations

import io
import re

import pytest
from report_samples import outcome, planned
from rich.cells import cell_len

from fi_doctor.model import Ending, Missing, Stage, Watch
from fi_doctor.reports.live import LiveTable

UP = "\x1b[1A"
SHOWN, HIDDEN = "\x1b[?25h", "\x1b[?25l"
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Clock:
    seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def table():
    def make(columns=80, lines=24, *, probes=(), color=False):
        stream, clock = io.StringIO(), Clock()
        made = LiveTable(stream, now=clock, color=color, size=lambda: (columns, lines))
        if probes:
            made.planned(tuple(probes), 600.0)
        return made, stream, clock

    return make


def redrawn(made, stream, clock):
    """The lines of the table as it is drawn now."""
    clock.seconds += 1
    at = stream.tell()
    made.tick()
    return frame(stream.getvalue()[at:])


def frame(written):
    return CONTROLS.sub("", written.rpartition("\r")[2]).splitlines()


def many(count):
    return [planned(f"attention.number_{number}", f"module_{number}") for number in range(count)]


def test_it_is_a_watch(table):
    watch: Watch = table()[0]
    assert watch


def test_each_probe_has_a_row_that_says_how_far_it_came(table):
    probes = norm, softmax, moe, rope = [
        planned(name, name) for name in ("norm.rmsnorm", "sampling.softmax", "moe", "rope")
    ]
    made, stream, clock = table(probes=[*probes, planned("quant.fp4", skip="needs SM100")])
    made.started(softmax)
    clock.seconds += 64
    made.objects(softmax, 3, 12)
    made.started(moe)
    made.reached(moe, Stage.BUILT)
    made.started(rope)
    made.ended(rope, outcome("rope", ending=Ending.SIGNALLED, detail="SIGSEGV"))
    made.started(norm)
    made.ended(norm, outcome("norm.rmsnorm"))
    status, heading, *rows = redrawn(made, stream, clock)
    assert status.startswith("1:05 elapsed, ")
    assert "2 of 4 probes done" in status
    assert heading.split() == ["probe", "so", "far", "time"]
    assert [row.split() for row in rows] == [
        ["norm.rmsnorm", "verified", "0:00"],
        ["sampling.softmax", "compiling", "1:05", "3", "of", "12", "objects"],
        ["moe", "built", "0:01"],
        ["rope", "signalled", "0:00", "SIGSEGV"],
    ]


def test_those_that_wait_for_a_module_tell_of_it(table):
    made, stream, clock = table(probes=[planned("norm.rmsnorm", "norm"), planned("rope", "rope"), planned("torch", "")])
    made.begun(("norm", "other"))
    made.building(1, 2, 7, 4, 30.0)
    status, _, *rows = redrawn(made, stream, clock)
    assert "building 1 module, 2 of 7 objects" in status
    assert [row.split()[1] for row in rows] == ["compiling", "waiting", "waiting"]
    made.settled("norm", "failed: \x1b[31mno nvcc", 1, 2)
    rows = redrawn(made, stream, clock)[2:]
    assert rows[0].split(maxsplit=2)[1:] == ["waiting", "norm: failed: \\x1b[31mno nvcc"]


def test_the_capability_is_named_where_there_are_two(table):
    probes = [planned(sm=90), planned(sm=100), planned("import.torch", "", sm=Missing(reason="-"))]
    rows = redrawn(*table(probes=probes))[1:]
    assert [row.split()[1] for row in rows] == ["SM", "90", "100", "-"]


@pytest.mark.parametrize(("columns", "lines", "room"), [(80, 24, 20), (60, 10, 6), (160, 24, 40), (200, 60, 60)])
def test_what_has_no_room_is_counted_and_what_runs_or_failed_stays(table, columns, lines, room):
    probes = many(60)
    made, stream, clock = table(columns, lines, probes=probes)
    for probe in probes[:50]:
        made.started(probe)
        made.ended(probe, outcome(probe.spec.id))
    made.started(probes[40])
    made.started(probes[57])
    made.ended(probes[57], outcome("57", ending=Ending.RAISED, detail="a reason of many words " * 20))
    drawn = redrawn(made, stream, clock)
    assert len(drawn) < lines
    assert max(map(cell_len, drawn)) <= columns
    text = "\n".join(drawn)
    assert "number_40 " in text
    assert re.search(r"number_57 +raised", text)
    assert text.count("attention.number_") == room
    assert bool(re.search(r"and \d+ more probes: \d+ (?:verified|waiting)", text)) is (room < 60)


def test_without_room_for_a_table_the_status_is_left(table):
    assert len(redrawn(*table(40, 5, probes=many(3)))) == 1


def test_lines_stand_above_and_are_broken_at_spaces(table):
    made, stream, clock = table(probes=many(2))
    made.note("a word " * 30 + "\x1b[31m")
    written = stream.getvalue()
    assert "\x1b[31m" not in written
    above = CONTROLS.sub("", written).partition("a word ")[2].partition("0:00 elapsed")[0].splitlines()
    assert len(above) == 3
    assert max(map(len, above)) <= 80
    assert len(redrawn(made, stream, clock)) == 4


def test_a_thousand_objects_at_once_are_drawn_once(table):
    probe = planned()
    made, stream, clock = table(probes=[probe])
    made.started(probe)
    clock.seconds += 1
    before = stream.getvalue().count("elapsed")
    for done in range(1000):
        made.objects(probe, done, 1000)
    assert stream.getvalue().count("elapsed") == before + 1


def test_the_table_goes_when_the_check_is_over_and_stays_where_it_was_broken_off(table):
    over, stream, _ = table()
    with over:
        over.planned(tuple(many(2)), 600.0)
    assert stream.getvalue().rpartition("waiting")[2].count(UP) == 4
    broken, stream, _ = table()
    broken.planned(tuple(many(2)), 600.0)
    with pytest.raises(KeyboardInterrupt), broken:
        raise KeyboardInterrupt
    assert stream.getvalue().rpartition("waiting")[2].count(UP) == 0
    assert stream.getvalue().endswith(f"\n{SHOWN}")
    length = stream.tell()
    broken.note("after the end")
    broken.tick()
    assert stream.tell() == length


def test_the_cursor_is_never_left_hidden(table):
    written = table(probes=many(1))[1].getvalue()
    assert written.rindex(SHOWN) > written.rindex(HIDDEN)


@pytest.mark.parametrize("error", [BrokenPipeError, OSError, ValueError])
def test_a_terminal_that_is_gone_ends_nothing(error):
    class Gone(io.StringIO):
        def write(self, text):
            raise error

    with LiveTable(Gone(), size=lambda: (80, 24)) as made:
        made.planned(tuple(many(2)), 600.0)
        made.note("lost")
        made.tick()


def test_colours_are_left_out_where_none_are_wanted(table):
    probes = many(1)
    assert "\x1b[1m" in table(probes=probes, color=True)[1].getvalue()
    assert "\x1b[1m" not in table(probes=probes)[1].getvalue()
