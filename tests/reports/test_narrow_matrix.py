"""The matrix where there is little room: what is a matter of course needs no line of its own, all else does."""

from __future__ import annotations

from msgspec.structs import replace
from report_samples import all_good, cell, row

from fi_doctor.model import Evidence, Scope, Verdict
from fi_doctor.reports import render

PLAIN = "numbers agree with the reference"
PLAIN_PART = f"{PLAIN}; only a part of the module was compiled"
CELLS = (cell("float16"), cell("bfloat16"))


def as_reference(one, why, scope=Scope.FULL):
    return replace(one, why=why, scope=scope)


def matrix(width, *rows):
    """The table's lines; a row of a part of a module is always among them, so that there is a column for that."""
    part = as_reference(row("attention.with_a_long_name", cells=CELLS), PLAIN_PART, Scope.SUBSET)
    text = render(replace(all_good(), features=(part, *rows)), "console", width=width).splitlines()
    start = next(at for at, line in enumerate(text) if line.startswith("feature"))
    return text[start + 1 : text.index("", start)]


def test_what_works_as_its_columns_say_is_one_line_with_the_number_of_its_variants():
    first, second = matrix(80, as_reference(row("norm.rmsnorm", cells=CELLS), PLAIN))
    assert first.split() == ["attention.with_a_long_name", "works", "verified", "subset", "2", "variants"]
    assert second.split() == ["norm.rmsnorm", "works", "verified", "full", "2", "variants"]


def test_where_there_is_room_the_reason_is_said():
    first, second = matrix(160, as_reference(row("norm.rmsnorm", cells=CELLS), PLAIN))
    assert first.endswith(f"subset  {PLAIN_PART} (2 variants)")
    assert second.endswith(f"full    {PLAIN} (2 variants)")


def test_what_is_more_than_a_matter_of_course_keeps_its_reason():
    said = f"tactic_0: {PLAIN}"
    _, name, why = matrix(80, as_reference(row("norm.rmsnorm"), said))
    assert (name.split()[0], why) == ("norm.rmsnorm", f"    {said}")
    _, name, why = matrix(80, row("norm.rmsnorm", Verdict.WORKS, Evidence.RAN, PLAIN))
    assert (name.split()[2], why) == ("ran", f"    {PLAIN}")
    locked = as_reference(row("norm.rmsnorm", cells=CELLS), PLAIN).as_locked("2026-11-20")
    assert any("locked 2026-11-20" in line for line in matrix(80, locked)[1:])


def test_a_short_reason_stands_beside_its_row_and_a_long_one_below():
    crashed = row("norm.a", Verdict.BROKEN, Evidence.RAN, "it crashed")
    _, short, long, *below = matrix(80, crashed, replace(crashed, feature="norm.b", why="it crashed " * 9))
    assert short.endswith("  it crashed")
    assert not long.endswith("crashed")
    assert all(line.startswith("    it crashed") for line in below)
    assert max(map(len, (short, long, *below))) <= 80


def test_the_first_column_is_no_wider_than_what_is_listed_in_it():
    quiet = cell("a_variant_with_a_long_name_that_is_only_counted")
    cells = (quiet, cell("b", Verdict.BROKEN, Evidence.RAN, "it crashed"))
    lines = matrix(80, as_reference(row("norm.rmsnorm", cells=cells), PLAIN))
    assert lines[1].startswith("norm.rmsnorm                works")
    assert lines[1].endswith("1 of 2 variants")
    assert lines[2].split() == ["b", "broken", "ran", "full", "it", "crashed"]
